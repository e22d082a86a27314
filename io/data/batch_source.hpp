/// Sequences of T tokens, in training order and in evaluation order. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_source.hpp"
#include "model/batch.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace atl {

/// Cuts a source of n tokens into ceil((n - 1) / T) sequences. Sequence i has the inputs [i T, i T + T) and as targets
/// the same shifted by one, so that every token but the first is a target exactly once. The last sequence may be
/// shorter: it is padded with token 0 and ignored targets.
class Sequences {
 public:
  /// DataError for a source of less than two tokens.
  Sequences(std::shared_ptr<const TokenSource> source, std::int64_t T);

  std::int64_t count() const { return count_; }
  std::int64_t length() const { return T_; }
  const TokenSource& source() const { return *source_; }

  /// (indices.size(), T): the sequences of these indices; -1 is an empty one, whose targets are all ignored.
  void fill(std::span<const std::int64_t> indices, Batch& batch) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  std::int64_t T_, count_;
};

/// Training order. The state of the loader is one number, the global cursor: positions count sequences since the start
/// of training, over all epochs. Each epoch is a permutation of its own, a pure function of (seed, epoch).
class BatchSource {
 public:
  BatchSource(std::shared_ptr<const TokenSource> source, std::int64_t T, std::uint64_t seed)
      : sequences_(std::move(source), T), seed_(seed) {}

  const Sequences& sequences() const { return sequences_; }

  /// The sequence at a position, of epoch position / count.
  std::int64_t sequence_index(std::int64_t position) const;

  /// The sequences at these positions (from StepSchedule); -1 is an empty one.
  void fill(std::span<const std::int64_t> positions, Batch& batch) const;
  Batch batch(std::span<const std::int64_t> positions) const;

  /// DataError naming both numbers and the fix when one step of the world needs more sequences than there are.
  void require_sequences(std::int64_t world_batch) const;

 private:
  Sequences sequences_;
  std::uint64_t seed_;
};

/// Evaluation order: all sequences (or the first `limit` of them, where it is not 0), in order, dealt to the ranks one
/// by one. Every rank has the same number of micro-batches, padded with empty sequences.
class EvaluationSource {
 public:
  EvaluationSource(std::shared_ptr<const TokenSource> source, std::int64_t T, int ranks, int rank,
                   std::int64_t micro_batch, std::int64_t limit = 0);

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
