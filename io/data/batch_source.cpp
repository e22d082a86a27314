/// Filling batches from a token source. SPDX-License-Identifier: Apache-2.0
#include "io/data/batch_source.hpp"

#include "core/errors.hpp"
#include "io/data/permutation.hpp"
#include "io/data/step_schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace atl {

Sequences::Sequences(std::shared_ptr<const TokenSource> source, std::int64_t T) : source_(std::move(source)), T_(T) {
  ATOLL_REQUIRE(T >= 1);
  const std::int64_t n = source_->tokens();
  if (n < 2)
    throw DataError(fmt::format("{}: has {} tokens; at least 2 are needed to predict one", source_->name(), n));
  count_ = (n - 2) / T + 1;  // ceil((n - 1) / T)
}

void Sequences::fill(std::span<const std::int64_t> indices, Batch& batch) const {
  const auto T = static_cast<std::size_t>(T_);
  batch.sequences = static_cast<std::int64_t>(indices.size());
  batch.length = T_;
  batch.tokens.assign(indices.size() * T, 0);
  batch.targets.assign(indices.size() * T, ignored_target);
  std::vector<std::int32_t> window;
  for (std::size_t b = 0; b < indices.size(); ++b) {
    if (indices[b] < 0) continue;
    ATOLL_REQUIRE(indices[b] < count_);
    const std::int64_t begin = indices[b] * T_;
    window.resize(static_cast<std::size_t>(std::min(T_ + 1, source_->tokens() - begin)));
    source_->read(begin, window);
    std::copy(window.begin(), window.end() - 1, batch.tokens.begin() + static_cast<std::ptrdiff_t>(b * T));
    std::copy(window.begin() + 1, window.end(), batch.targets.begin() + static_cast<std::ptrdiff_t>(b * T));
  }
}

std::int64_t BatchSource::sequence_index(std::int64_t position) const {
  const std::int64_t n = sequences_.count();
  const Permutation permutation(static_cast<std::uint64_t>(n), seed_, static_cast<std::uint64_t>(position / n));
  return static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(position % n)));
}

void BatchSource::fill(std::span<const std::int64_t> positions, Batch& batch) const {
  std::vector<std::int64_t> indices(positions.begin(), positions.end());
  for (auto& index : indices) index = index < 0 ? -1 : sequence_index(index);
  sequences_.fill(indices, batch);
}

Batch BatchSource::batch(std::span<const std::int64_t> positions) const {
  Batch result;
  fill(positions, result);
  return result;
}

void BatchSource::require_sequences(std::int64_t world_batch) const {
  if (sequences_.count() >= world_batch) return;
  throw DataError(
      fmt::format("{}: has {} sequences of {} tokens, but one step of all groups takes {}; use more data, a smaller "
                  "train.batch or a "
                  "shorter data.sequence_length",
                  sequences_.source().name(), sequences_.count(), sequences_.length(), world_batch));
}

EvaluationSource::EvaluationSource(std::shared_ptr<const TokenSource> source, std::int64_t T, int ranks, int rank,
                                   std::int64_t micro_batch, std::int64_t limit)
    : sequences_(std::move(source), T), ranks_(ranks), rank_(rank), micro_(micro_batch), used_(sequences_.count()) {
  if (limit > 0) used_ = std::min(used_, limit);
}

std::int64_t EvaluationSource::micro_batches() const { return GroupShare{used_, ranks_, micro_}.micro_batches(); }

void EvaluationSource::fill(std::int64_t micro_batch, Batch& batch) const {
  sequences_.fill(GroupShare{used_, ranks_, micro_}.offsets(rank_, micro_batch), batch);
}

Batch EvaluationSource::batch(std::int64_t micro_batch) const {
  Batch result;
  fill(micro_batch, result);
  return result;
}

}  // namespace atl
