/// Every grid takes the same sequences each step, each of them once. SPDX-License-Identifier: Apache-2.0
#include "io/data/step_schedule.hpp"

#include "core/errors.hpp"
#include "io/data/batch_source.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace atl {
namespace {

struct Layout {
  int groups, ranks;  // ranks of a group
};

ProcessGrid grid_of(const Layout& layout, int rank) {
  ParallelOptions options;
  options.strategy = layout.groups == 1 ? Strategy::fsdp : Strategy::fl_fsdp;
  if (layout.groups > 1) options.groups = layout.groups;
  return ProcessGrid(options, layout.groups * layout.ranks, rank);
}

TrainOptions batch_of(std::int64_t batch, std::int64_t micro = 0, std::int64_t accumulate = 0) {
  TrainOptions options;
  options.batch = batch;
  options.micro_batch = micro;
  options.accumulate = accumulate;
  return options;
}

/// All positions that the ranks of a layout take in the step at `cursor`, sorted; checks that ranks share evenly.
std::vector<std::int64_t> step(const Layout& layout, const TrainOptions& options, std::int64_t cursor) {
  std::vector<std::int64_t> all;
  std::map<int, std::set<std::int64_t>> counts, rounds;  // of each group
  for (int rank = 0; rank < layout.groups * layout.ranks; ++rank) {
    const ProcessGrid grid = grid_of(layout, rank);
    const StepSchedule schedule(grid, options);
    std::int64_t count = 0;
    for (std::int64_t a = 0; a < schedule.micro_batches(); ++a) {
      const auto positions = schedule.positions(cursor, a);
      EXPECT_EQ(static_cast<std::int64_t>(positions.size()), schedule.width());
      if (options.micro_batch > 0) {
        EXPECT_LE(schedule.width(), options.micro_batch);
      }
      for (const auto position : positions) {
        if (position < 0) continue;
        EXPECT_EQ((position - cursor) / schedule.group_batch(), grid.group());  // the group's own block
        all.push_back(position);
        ++count;
      }
    }
    counts[grid.group()].insert(count);
    rounds[grid.group()].insert(schedule.micro_batches());
  }
  for (const auto& [group, seen] : counts) EXPECT_LE(*seen.rbegin() - *seen.begin(), 1) << "ranks of group " << group;
  for (const auto& [group, seen] : rounds) EXPECT_EQ(seen.size(), 1u) << "micro-batches in group " << group;
  std::sort(all.begin(), all.end());
  return all;
}

TEST(StepSchedule, AStepTakesTheNextPositionsOnceOnEveryGrid) {
  for (const std::int64_t micro : {0, 1, 2, 3}) {
    for (const Layout layout : {Layout{1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 7}, {2, 1}, {2, 2}, {2, 3}, {3, 4}, {4, 7}}) {
      const std::int64_t world = 24;  // not a multiple of 7 ranks, nor of 3 x 4 groups' micro-batches
      std::vector<std::int64_t> expected(world);
      for (std::int64_t i = 0; i < world; ++i) expected[static_cast<std::size_t>(i)] = 1000 + i;
      EXPECT_EQ(step(layout, batch_of(world / layout.groups, micro), 1000), expected)
          << layout.groups << " groups of " << layout.ranks << ", micro " << micro;
    }
  }
}

TEST(StepSchedule, FewerSequencesThanRanks) {
  EXPECT_EQ(step({1, 7}, batch_of(3), 5), (std::vector<std::int64_t>{5, 6, 7}));
}

// Over an epoch of 8 steps: every sequence exactly once, the same set each step, whatever the grid.
TEST(StepSchedule, EpochVisitsEverySequenceOnceAndGridsAgree) {
  const auto source = std::make_shared<const MemorySource>("zeros", 2, std::vector<std::uint16_t>(24 * 8 * 4 + 1));
  const BatchSource batches(source, 4, 3);
  ASSERT_EQ(Sequences(source, 4).count(), 24 * 8);
  std::vector<std::vector<std::set<std::int64_t>>> grids;
  for (const Layout layout : {Layout{1, 1}, {1, 3}, {2, 2}, {3, 4}, {1, 7}}) {
    auto& steps = grids.emplace_back();
    std::set<std::int64_t> epoch;
    for (std::int64_t s = 0; s < 8; ++s) {
      auto& indices = steps.emplace_back();
      for (const auto position : step(layout, batch_of(24 / layout.groups, 2), s * 24)) {
        indices.insert(batches.place(position).sequence);
      }
      EXPECT_EQ(indices.size(), 24u);
      epoch.insert(indices.begin(), indices.end());
    }
    EXPECT_EQ(epoch.size(), 24u * 8u);
    EXPECT_EQ(steps, grids.front());
  }
}

/// Positions of each group in the step at `cursor`, sorted, for groups of any shapes; ranks in another order than the
/// world's hold what their place in the group says.
std::vector<std::vector<std::int64_t>> groups_of_step(const std::vector<GroupShape>& shapes,
                                                      const std::vector<int>& order, const TrainOptions& options,
                                                      std::int64_t cursor) {
  std::vector<std::vector<std::int64_t>> all(shapes.size());
  int ranks = 0;
  for (const GroupShape& shape : shapes) ranks += shape.ranks();
  std::set<std::int64_t> world_batches, widths, least;
  for (int rank = 0; rank < ranks; ++rank) {
    const ProcessGrid grid(shapes, rank, order);
    const StepSchedule schedule(grid, options);
    world_batches.insert(schedule.world_batch());
    widths.insert(schedule.width());
    least.insert(schedule.least_width());
    for (std::int64_t a = 0; a < schedule.micro_batches(); ++a)
      for (const auto position : schedule.positions(cursor, a))
        if (position >= 0) all[static_cast<std::size_t>(grid.group())].push_back(position);
  }
  EXPECT_EQ(world_batches.size(), 1u);
  EXPECT_EQ(least, std::set<std::int64_t>{*widths.begin()});
  for (auto& group : all) std::sort(group.begin(), group.end());
  return all;
}

std::vector<std::int64_t> from_to(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = begin; i < end; ++i) all.push_back(i);
  return all;
}

// A batch is that of each group, whatever its size; batches of a rank make groups' batches follow their sizes.
TEST(StepSchedule, UnequalGroupsTakeDisjointSequences) {
  for (const std::vector<int>& order : {std::vector<int>(), std::vector<int>{0, 6, 2, 4, 3, 1, 5}})
    for (const std::vector<GroupShape>& shapes :
         {std::vector<GroupShape>{{1, 4}, {1, 2}, {1, 1}}, std::vector<GroupShape>{{2, 2}, {2, 1}, {1, 1}}}) {
      for (const std::int64_t micro : {0, 1, 3}) {
        const auto equal = groups_of_step(shapes, order, batch_of(5, micro), 100);
        EXPECT_EQ(equal[0], from_to(100, 105));
        EXPECT_EQ(equal[1], from_to(105, 110));
        EXPECT_EQ(equal[2], from_to(110, 115));
      }
      const auto by_ranks = groups_of_step(shapes, order, batch_of(0, 2, 3), 100);
      EXPECT_EQ(by_ranks[0], from_to(100, 124));
      EXPECT_EQ(by_ranks[1], from_to(124, 136));
      EXPECT_EQ(by_ranks[2], from_to(136, 142));
    }
}

TEST(GroupShare, WhatIsNotGivenFollows) {
  const auto expect = [](const TrainOptions& options, int ranks, std::int64_t batch, std::int64_t rounds,
                         std::int64_t width) {
    const GroupShare share = group_share(options, ranks);
    EXPECT_EQ(share.batch, batch);
    EXPECT_EQ(share.micro_batches(), rounds);
    EXPECT_EQ(share.width(), width);
  };
  expect(batch_of(16), 4, 16, 1, 4);
  expect(batch_of(16, 3), 4, 16, 2, 2);  // 4 a rank in 2 micro-batches: 2 + 2, not 3 + 1
  expect(batch_of(16, 0, 4), 4, 16, 4, 1);
  expect(batch_of(16, 2, 2), 4, 16, 2, 2);
  expect(batch_of(17, 8), 4, 17, 1, 5);
  expect(batch_of(0, 3), 4, 12, 1, 3);
  expect(batch_of(0, 3, 5), 4, 60, 5, 3);
}

TEST(GroupShare, ContradictionsAreErrors) {
  EXPECT_NE(message_of<ConfigError>([] { group_share(batch_of(0), 4); }).find("train.batch"), std::string::npos);
  EXPECT_EQ(message_of<ConfigError>([] { group_share(batch_of(16, 2, 3), 4); }),
            "train.accumulate = 3 does not fit: train.batch = 16 on 4 ranks of a group is 4 sequences a rank, 2 "
            "micro-batches of at most 2; leave train.accumulate out");
  EXPECT_NE(message_of<ConfigError>([] { group_share(batch_of(-1), 4); }).find("negative"), std::string::npos);
}

}  // namespace
}  // namespace atl
