/// Sequences of T tokens, in training order and in evaluation order. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/document_index.hpp"
#include "io/data/mixture.hpp"
#include "io/data/token_source.hpp"
#include "model/batch.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace atl {

/// Cuts a source of n tokens into ceil((n - 1) / T) sequences. Sequence i has the inputs [i T, i T + T) and as targets
/// the same shifted by one, so that every token but the first is a target exactly once. The last sequence may be
/// shorter: it is padded with token 0 and ignored targets. With Packing::documents the first token of a document is no
/// target, and batches say where each token's document begins; padding is a document of its own.
class Sequences {
 public:
  /// With a `stride` below T, for evaluation: sequence i has the inputs [i stride, i stride + T), and all but the first
  /// one count only their last `stride` targets, those that no earlier one counts: each has at least T - stride tokens
  /// of context before its input, or all there are. 0: T. DataError for a source of less than two tokens, and as
  /// DocumentIndex.
  Sequences(std::shared_ptr<const TokenSource> source, std::int64_t T, std::int64_t stride = 0,
            const DocumentOptions& documents = {});

  std::int64_t count() const { return count_; }
  std::int64_t length() const { return T_; }
  Packing packing() const { return documents_ ? Packing::documents : Packing::concatenate; }
  const TokenSource& source() const { return *source_; }

  /// (indices.size(), T): the sequences of these indices; -1 is an empty one, whose targets are all ignored.
  void fill(std::span<const std::int64_t> indices, Batch& batch) const;
  /// The sequence of this index as sequence `slot` of a batch of empty ones.
  void fill_slot(std::int64_t index, Batch& batch, std::size_t slot) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  std::int64_t T_, stride_, count_;
  std::optional<DocumentIndex> documents_;  // with Packing::documents
};

/// A batch of `sequences` sequences of T tokens, all of them empty.
void clear(Batch& batch, std::size_t sequences, std::int64_t T, Packing packing);

/// Training order. The state of the loader is one number, the global cursor: positions count sequences since the start
/// of training, over all epochs. MixtureOrder deals them to the sources. Each source has epochs of its own, each a
/// permutation of its own, a pure function of (seed, source, epoch).
class BatchSource {
 public:
  BatchSource(const TrainingData& data, std::int64_t T, std::uint64_t seed, const DocumentOptions& documents = {});

  /// Where the sequence at a position comes from.
  struct Place {
    std::size_t source = 0;
    std::int64_t epoch = 0, sequence = 0;
  };
  Place place(std::int64_t position) const;

  /// The sequences at these positions (from StepSchedule); -1 is an empty one.
  void fill(std::span<const std::int64_t> positions, Batch& batch) const;
  Batch batch(std::span<const std::int64_t> positions) const;

  /// DataError naming both numbers and the fix when one step of the world needs more sequences than a source has.
  void require_sequences(std::int64_t world_batch) const;

  std::size_t sources() const { return sequences_.size(); }
  /// "wiki.h5: 50 % of the sequences, 1.3 epochs" of each source, for a run of so many positions.
  std::vector<std::string> describe(std::int64_t positions) const;

 private:
  double share(std::size_t source) const { return weights_[source] / total_; }

  std::vector<Sequences> sequences_;
  std::vector<std::uint64_t> seeds_;
  std::vector<double> weights_;
  double total_ = 0;
  MixtureOrder order_;
};

/// Evaluation order: all sequences (or the first `limit` of them, where it is not 0), in order, cut into micro-batches
/// that no number of ranks changes, the last one padded with empty sequences; they are dealt to the ranks one by one,
/// empty ones where a rank has none left. So each is computed alike on any grid. `micro_batch` is the same on all
/// ranks.
class EvaluationSource {
 public:
  EvaluationSource(std::shared_ptr<const TokenSource> source, std::int64_t T, int ranks, int rank,
                   std::int64_t micro_batch, std::int64_t limit = 0, std::int64_t stride = 0,
                   const DocumentOptions& documents = {});

  const Sequences& sequences() const { return sequences_; }
  std::int64_t micro_batches() const;
  void fill(std::int64_t micro_batch, Batch& batch) const;
  Batch batch(std::int64_t micro_batch) const;

 private:
  Sequences sequences_;
  int ranks_, rank_;
  std::int64_t micro_, used_;
};

}  // namespace atl
