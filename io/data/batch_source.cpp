/// Filling batches from a token source. SPDX-License-Identifier: Apache-2.0
#include "io/data/batch_source.hpp"

#include "core/errors.hpp"
#include "core/random.hpp"
#include "io/data/permutation.hpp"
#include "io/data/step_schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace atl {

Sequences::Sequences(std::shared_ptr<const TokenSource> source, std::int64_t T, std::int64_t stride,
                     const DocumentOptions& documents)
    : source_(std::move(source)), T_(T), stride_(stride == 0 ? T : stride) {
  ATOLL_REQUIRE(T >= 1 && stride_ >= 1 && stride_ <= T);
  const std::int64_t n = source_->tokens();
  if (n < 2)
    throw DataError(fmt::format("{}: has {} tokens; at least 2 are needed to predict one", source_->name(), n));
  count_ = n - 1 <= T ? 1 : (n - 2 - T) / stride_ + 2;  // 1 + ceil((n - 1 - T) / stride)
  if (documents.packing == Packing::documents) documents_.emplace(source_, documents.end_of_document);
}

void clear(Batch& batch, std::size_t sequences, std::int64_t T, Packing packing) {
  batch.sequences = static_cast<std::int64_t>(sequences);
  batch.length = T;
  batch.tokens.assign(sequences * static_cast<std::size_t>(T), 0);
  batch.targets.assign(sequences * static_cast<std::size_t>(T), ignored_target);
  batch.document_starts.assign(packing == Packing::documents ? batch.tokens.size() : 0, 0);
}

void Sequences::fill(std::span<const std::int64_t> indices, Batch& batch) const {
  clear(batch, indices.size(), T_, packing());
  for (std::size_t b = 0; b < indices.size(); ++b)
    if (indices[b] >= 0) fill_slot(indices[b], batch, b);
}

void Sequences::fill_slot(std::int64_t index, Batch& batch, std::size_t slot) const {
  ATOLL_REQUIRE(index < count_);
  const std::int64_t begin = index * stride_;
  std::vector<std::int32_t> window(static_cast<std::size_t>(std::min(T_ + 1, source_->tokens() - begin)));
  source_->read(begin, window);
  const auto at = static_cast<std::ptrdiff_t>(slot) * T_;
  std::copy(window.begin(), window.end() - 1, batch.tokens.begin() + at);
  const std::ptrdiff_t counted_before = index == 0 ? 0 : static_cast<std::ptrdiff_t>(T_ - stride_);
  std::copy(window.begin() + 1 + counted_before, window.end(), batch.targets.begin() + at + counted_before);
  if (!documents_) return;
  std::vector<std::size_t> begins = documents_->begins(begin, window);
  for (const std::size_t first : begins) batch.targets[static_cast<std::size_t>(at) + first - 1] = ignored_target;
  begins.push_back(window.size() - 1);  // padding, where there is any
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : static_cast<std::size_t>(T_);
    for (std::size_t t = begins[i]; t < end; ++t)
      batch.document_starts[static_cast<std::size_t>(at) + t] = static_cast<std::int32_t>(begins[i]);
  }
}

namespace {

std::vector<Sequences> cut(const TrainingData& data, std::int64_t T, const DocumentOptions& documents) {
  std::vector<Sequences> all;
  for (const auto& source : data.sources) all.emplace_back(source, T, 0, documents);
  return all;
}

std::vector<double> weights_in_force(const TrainingData& data, const std::vector<Sequences>& sequences) {
  ATOLL_REQUIRE(data.weights.empty() || data.weights.size() == sequences.size());
  if (!data.weights.empty()) return data.weights;
  std::vector<double> weights;
  for (const Sequences& source : sequences) weights.push_back(static_cast<double>(source.count()));
  return weights;
}

}  // namespace

BatchSource::BatchSource(const TrainingData& data, std::int64_t T, std::uint64_t seed, const DocumentOptions& documents)
    : sequences_(cut(data, T, documents)),
      weights_(weights_in_force(data, sequences_)),
      total_(std::accumulate(weights_.begin(), weights_.end(), 0.)),
      order_(weights_, seed) {
  // The order of a source alone is that of its number in a mixture: a second source leaves the first one's as it was.
  for (std::size_t k = 0; k < sequences_.size(); ++k)
    seeds_.push_back(k == 0 ? seed : random_bits(random_key(seed, "mixture/source"), k));
}

BatchSource::Place BatchSource::place(std::int64_t position) const {
  const MixtureOrder::Place drawn = order_(position);
  const std::int64_t n = sequences_[drawn.source].count(), epoch = drawn.index / n;
  const Permutation permutation(static_cast<std::uint64_t>(n), seeds_[drawn.source], static_cast<std::uint64_t>(epoch));
  return {drawn.source, epoch, static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(drawn.index % n)))};
}

void BatchSource::fill(std::span<const std::int64_t> positions, Batch& batch) const {
  clear(batch, positions.size(), sequences_[0].length(), sequences_[0].packing());
  for (std::size_t b = 0; b < positions.size(); ++b) {
    if (positions[b] < 0) continue;
    const Place from = place(positions[b]);
    sequences_[from.source].fill_slot(from.sequence, batch, b);
  }
}

Batch BatchSource::batch(std::span<const std::int64_t> positions) const {
  Batch result;
  fill(positions, result);
  return result;
}

void BatchSource::require_sequences(std::int64_t world_batch) const {
  for (std::size_t k = 0; k < sequences_.size(); ++k) {
    const auto needed = static_cast<std::int64_t>(std::ceil(share(k) * static_cast<double>(world_batch)));
    if (sequences_[k].count() >= needed) continue;
    throw DataError(fmt::format(
        "{}: has {} sequences of {} tokens, but one step of all groups takes {}{}; use more data, a smaller "
        "train.batch{} or a shorter data.sequence_length",
        sequences_[k].source().name(), sequences_[k].count(), sequences_[k].length(), needed,
        sequences_.size() == 1 ? "" : " of it", sequences_.size() == 1 ? "" : ", a smaller weight"));
  }
}

std::vector<std::string> BatchSource::describe(std::int64_t positions) const {
  std::vector<std::string> lines;
  for (std::size_t k = 0; k < sequences_.size(); ++k)
    lines.push_back(
        fmt::format("{}: {:.4g} % of the sequences, {:.3g} epochs", sequences_[k].source().name(), 100 * share(k),
                    share(k) * static_cast<double>(positions) / static_cast<double>(sequences_[k].count())));
  return lines;
}

EvaluationSource::EvaluationSource(std::shared_ptr<const TokenSource> source, std::int64_t T, int ranks, int rank,
                                   std::int64_t micro_batch, std::int64_t limit, std::int64_t stride,
                                   const DocumentOptions& documents)
    : sequences_(std::move(source), T, stride, documents),
      ranks_(ranks),
      rank_(rank),
      micro_(micro_batch),
      used_(sequences_.count()) {
  if (limit > 0) used_ = std::min(used_, limit);
}

std::int64_t EvaluationSource::micro_batches() const {
  const std::int64_t world = micro_ * ranks_;
  return (used_ + world - 1) / world;
}

void EvaluationSource::fill(std::int64_t micro_batch, Batch& batch) const {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(micro_));
  for (std::int64_t i = 0; i < micro_; ++i) {
    const std::int64_t index = (micro_batch * ranks_ + rank_) * micro_ + i;
    indices[static_cast<std::size_t>(i)] = index < used_ ? index : -1;
  }
  sequences_.fill(indices, batch);
}

Batch EvaluationSource::batch(std::int64_t micro_batch) const {
  Batch result;
  fill(micro_batch, result);
  return result;
}

}  // namespace atl
