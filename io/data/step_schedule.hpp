/// Which sequences each rank trains on in a step: pure functions of the grid. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/options.hpp"
#include "parallel/process_grid.hpp"

#include <cstdint>
#include <vector>

namespace atl {

/// B sequences dealt to N ranks one by one: rank r has the offsets r, r + N, r + 2 N, ... below B, so that the ranks'
/// counts differ by one at most. All ranks run the same number of micro-batches of the same width, some of whose slots
/// are empty.
struct GroupShare {
  std::int64_t batch = 1;  ///< B
  int ranks = 1;           ///< N
  std::int64_t micro = 1;  ///< sequences that a rank may hold at once

  std::int64_t per_rank() const { return (batch + ranks - 1) / ranks; }  ///< of the ranks with the most
  std::int64_t micro_batches() const { return (per_rank() + micro - 1) / micro; }
  /// Slots of a micro-batch: at most `micro`, and as few as this number of micro-batches needs.
  std::int64_t width() const { return (per_rank() + micro_batches() - 1) / micro_batches(); }
  /// width() offsets in [0, batch) of one micro-batch of one rank; -1 is an empty slot.
  std::vector<std::int64_t> offsets(int rank, std::int64_t micro_batch) const;
};

/// batch, micro_batch and accumulate of [train] for a group of `ranks` ranks: those not given follow from the others.
/// ConfigError when neither batch nor micro_batch is given, or when the three contradict one another.
GroupShare group_share(const TrainOptions& options, int ranks);

/// A step of the world takes the next positions of the global cursor: first those of group 0, then those of group 1,
/// ... So the set of sequences of a step depends on the cursor and the sum of the groups' batches, not on the grid.
class StepSchedule {
 public:
  StepSchedule(const ProcessGrid& grid, const TrainOptions& options);

  std::int64_t world_batch() const { return world_batch_; }              ///< positions that a step takes
  std::int64_t group_batch() const { return share_.batch; }              ///< of this rank's group
  std::int64_t micro_batches() const { return share_.micro_batches(); }  ///< A, of this rank's group
  std::int64_t width() const { return share_.width(); }                  ///< sequences of a micro-batch
  std::int64_t least_width() const { return least_width_; }              ///< over all groups: what any rank can hold

  /// width() positions of this rank's micro-batch in the step that starts at `cursor`; -1 is an empty slot.
  std::vector<std::int64_t> positions(std::int64_t cursor, std::int64_t micro_batch) const;

 private:
  GroupShare share_;
  int rank_in_group_;
  std::int64_t world_batch_ = 0;
  std::int64_t least_width_;
  std::int64_t first_ = 0;  // of this group in a step
};

}  // namespace atl
