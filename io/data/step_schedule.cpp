/// Dealing sequences to ranks. SPDX-License-Identifier: Apache-2.0
#include "io/data/step_schedule.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

namespace atl {

std::vector<std::int64_t> GroupShare::offsets(int rank, std::int64_t micro_batch) const {
  std::vector<std::int64_t> result(static_cast<std::size_t>(width()));
  for (std::int64_t slot = 0; slot < width(); ++slot) {
    const std::int64_t offset = (micro_batch * width() + slot) * ranks + rank;
    result[static_cast<std::size_t>(slot)] = offset < batch ? offset : -1;
  }
  return result;
}

GroupShare group_share(const TrainOptions& options, int ranks) {
  const auto [batch, micro, accumulate] = std::tuple(options.batch, options.micro_batch, options.accumulate);
  if (batch < 0 || micro < 0 || accumulate < 0) {
    throw ConfigError(fmt::format("train.batch = {}, micro_batch = {}, accumulate = {}: must not be negative", batch,
                                  micro, accumulate));
  }
  if (batch == 0 && micro == 0) {
    throw ConfigError(
        "train.batch (sequences of a group per step) or train.micro_batch (sequences of a rank) is needed");
  }
  if (batch == 0) return {micro * std::max<std::int64_t>(1, accumulate) * ranks, ranks, micro};

  GroupShare share{batch, ranks, batch};
  const std::int64_t per_rank = share.per_rank();
  share.micro = micro > 0 ? micro : accumulate > 0 ? (per_rank + accumulate - 1) / accumulate : per_rank;
  if (accumulate > 0 && share.micro_batches() != accumulate) {
    throw ConfigError(
        fmt::format("train.accumulate = {} does not fit: train.batch = {} on {} ranks of a group is {} "
                    "sequences a rank, {} micro-batches of at most {}; leave train.accumulate out",
                    accumulate, batch, ranks, per_rank, share.micro_batches(), share.micro));
  }
  return share;
}

StepSchedule::StepSchedule(const ProcessGrid& grid, const TrainOptions& options)
    : share_(group_share(options, grid.shape().ranks())),
      rank_in_group_(grid.rank_in_group()),
      least_width_(share_.width()) {
  for (int group = 0; group < grid.number_of_groups(); ++group) {
    const auto& shape = grid.groups()[static_cast<std::size_t>(group)];
    const GroupShare share = group_share(options, shape.ranks());
    if (group < grid.group()) first_ += share.batch;
    world_batch_ += share.batch;
    least_width_ = std::min(least_width_, share.width());
  }
}

std::vector<std::int64_t> StepSchedule::positions(std::int64_t cursor, std::int64_t micro_batch) const {
  std::vector<std::int64_t> result = share_.offsets(rank_in_group_, micro_batch);
  for (auto& position : result) {
    if (position >= 0) position += cursor + first_;
  }
  return result;
}

}  // namespace atl
