/// Grids and their error messages. SPDX-License-Identifier: Apache-2.0
#include "parallel/process_grid.hpp"

#include "core/errors.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace atl {
namespace {

ParallelOptions options(Strategy strategy, int shard_size = 0, int group_size = 0, int groups = 0) {
  ParallelOptions result;
  result.strategy = strategy;
  result.shard_size = shard_size;
  result.group_size = group_size;
  result.groups = groups;
  return result;
}

/// The message of the ConfigError, or "no error".
std::string error_of(const ParallelOptions& wrong, int ranks) {
  try {
    const ProcessGrid grid(wrong, ranks, 0);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "no error";
}

TEST(ProcessGrid, StrategiesFillTheWorld) {
  struct Case {
    ParallelOptions options;
    int ranks, groups, replicas, shards;
  };
  for (const Case& c : {
           Case{options(Strategy::ddp), 1, 1, 1, 1},
           Case{options(Strategy::ddp), 6, 1, 6, 1},
           Case{options(Strategy::ddp, 1), 6, 1, 6, 1},
           Case{options(Strategy::fsdp), 1, 1, 1, 1},
           Case{options(Strategy::fsdp), 7, 1, 1, 7},
           Case{options(Strategy::fsdp, 7), 7, 1, 1, 7},
           Case{options(Strategy::hsdp, 4), 8, 1, 2, 4},
           Case{options(Strategy::hsdp, 8), 8, 1, 1, 8},
           Case{options(Strategy::hsdp, 1), 8, 1, 8, 1},
           Case{options(Strategy::hsdp, 3), 12, 1, 4, 3},
           Case{options(Strategy::fl_fsdp, 0, 2), 8, 4, 1, 2},
           Case{options(Strategy::fl_fsdp, 0, 0, 2), 8, 2, 1, 4},
           Case{options(Strategy::fl_fsdp, 4), 8, 2, 1, 4},
           Case{options(Strategy::fl_fsdp, 4, 4, 2), 8, 2, 1, 4},
           Case{options(Strategy::fl_fsdp, 0, 0, 1), 8, 1, 1, 8},
           Case{options(Strategy::fl_fsdp, 0, 1), 8, 8, 1, 1},
           Case{options(Strategy::fl_hsdp, 2, 4), 8, 2, 2, 2},
           Case{options(Strategy::fl_hsdp, 4, 32), 512, 16, 8, 4},
           Case{options(Strategy::fl_hsdp, 4, 0, 16), 512, 16, 8, 4},
           Case{options(Strategy::fl_hsdp, 3, 6, 2), 12, 2, 2, 3},
           Case{options(Strategy::fl_hsdp, 2, 0, 1), 8, 1, 4, 2},
       }) {
    SCOPED_TRACE(std::string(name_of(c.options.strategy)) + " on " + std::to_string(c.ranks));
    std::set<std::tuple<int, int, int>> places;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const ProcessGrid grid(c.options, c.ranks, rank);
      EXPECT_EQ(grid.world_size(), c.ranks);
      EXPECT_EQ(grid.rank(), rank);
      EXPECT_EQ(grid.number_of_groups(), c.groups);
      EXPECT_EQ(grid.shape(), (GroupShape{c.replicas, c.shards}));
      // Shard fastest, then replica, then group.
      EXPECT_EQ((grid.group() * c.replicas + grid.replica()) * c.shards + grid.shard(), rank);
      EXPECT_EQ(grid.first_rank(grid.group()) + grid.rank_in_group(), rank);
      EXPECT_EQ(grid.first_rank(grid.group()), grid.group() * c.replicas * c.shards);
      EXPECT_TRUE(grid.shard() >= 0 && grid.shard() < c.shards && grid.replica() >= 0 && grid.replica() < c.replicas);
      places.insert({grid.group(), grid.replica(), grid.shard()});
    }
    EXPECT_EQ(places.size(), static_cast<std::size_t>(c.ranks));
  }
}

TEST(ProcessGrid, NamesAreThoseOfTheConfiguration) {
  EXPECT_EQ(name_of(Strategy::ddp), "ddp");
  EXPECT_EQ(name_of(Strategy::fsdp), "fsdp");
  EXPECT_EQ(name_of(Strategy::hsdp), "hsdp");
  EXPECT_EQ(name_of(Strategy::fl_fsdp), "fl+fsdp");
  EXPECT_EQ(name_of(Strategy::fl_hsdp), "fl+hsdp");
}

TEST(ProcessGrid, Describes) {
  EXPECT_EQ(ProcessGrid(options(Strategy::fl_fsdp, 0, 2), 4, 0).describe(),
            "4 ranks = 2 groups x 1 replica x 2 shards");
  EXPECT_EQ(ProcessGrid(options(Strategy::ddp), 1, 0).describe(), "1 rank = 1 group x 1 replica x 1 shard");
  EXPECT_EQ(ProcessGrid(options(Strategy::fl_hsdp, 4, 32), 512, 0).describe(),
            "512 ranks = 16 groups x 8 replicas x 4 shards");
}

TEST(ProcessGrid, GroupsOfGivenSizes) {
  ParallelOptions given;
  given.strategy = Strategy::fl_fsdp;
  given.group_sizes = {4, 2, 1};
  const ProcessGrid sharded(given, 7, 5);
  EXPECT_EQ(sharded.groups(), (std::vector<GroupShape>{{1, 4}, {1, 2}, {1, 1}}));
  EXPECT_FALSE(sharded.equal_groups());
  EXPECT_EQ(sharded.group(), 1);
  EXPECT_EQ(sharded.shard(), 1);
  EXPECT_EQ(sharded.first_rank(2), 6);
  EXPECT_EQ(
      sharded.describe(),
      "7 ranks = 1 group x 1 replica x 4 shards + 1 group x 1 replica x 2 shards + 1 group x 1 replica x 1 shard");
  given.strategy = Strategy::fl_hsdp;
  given.shard_size = 2;
  given.group_sizes = {4, 2, 6};
  const ProcessGrid replicated(given, 12, 9);
  EXPECT_EQ(replicated.groups(), (std::vector<GroupShape>{{2, 2}, {1, 2}, {3, 2}}));
  EXPECT_EQ(std::tuple(replicated.group(), replicated.replica(), replicated.shard()), std::tuple(2, 1, 1));
  given.group_sizes = {6, 6};
  EXPECT_TRUE(ProcessGrid(given, 12, 0).equal_groups());

  EXPECT_EQ(
      error_of(given, 8),
      "parallel.group_sizes = [6, 6] are 12 ranks, but there are 8: start 12 ranks, or give sizes that add up to 8");
  given.group_sizes = {4, 3};
  EXPECT_EQ(error_of(given, 7),
            "parallel.shard_size = 2 does not divide the 3 ranks of group 1 (7 ranks in all) (replicas need equal "
            "shards); nearest: 1 or 3");
  given.group_sizes = {7, 0};
  EXPECT_EQ(error_of(given, 7), "parallel.group_sizes = [7, 0] has a group of 0 ranks; each needs at least 1");
  given.group_sizes = {4, 2, 1};
  given.groups = 3;
  EXPECT_EQ(error_of(given, 7),
            "parallel.group_sizes = [4, 2, 1] and parallel.groups = 3 exclude each other: both say what the federation "
            "groups are; remove one");
  given.groups = 0;
  given.strategy = Strategy::fl_fsdp;
  EXPECT_EQ(
      error_of(given, 7),
      "parallel.shard_size = 2 and parallel.group_sizes = [4, 2, 1] exclude each other with strategy \"fl+fsdp\", "
      "where a group is one replica; remove one, or use strategy \"fl+hsdp\"");
  given.strategy = Strategy::hsdp;
  EXPECT_EQ(
      error_of(given, 8),
      "parallel.group_sizes = [4, 2, 1] has no meaning with parallel.strategy = \"hsdp\" on 8 ranks (one group of "
      "all ranks); remove it, or use strategy \"fl+hsdp\"");
}

// Ranks dealt to nodes in turn, as some launchers do; and nodes with different numbers of ranks.
TEST(ProcessGrid, GroupsOfCellsNeedNotBeNeighbours) {
  ParallelOptions given;
  given.strategy = Strategy::fl_hsdp;
  given.shard_size = 2;
  given.group_by = ParallelOptions::GroupBy::node;
  const std::vector<int> cells{5, 3, 5, 3, 5, 5};
  std::vector<std::tuple<int, int, int>> places;
  for (int rank = 0; rank < 6; ++rank) {
    const ProcessGrid grid(given, 6, rank, cells);
    places.emplace_back(grid.group(), grid.replica(), grid.shard());
    EXPECT_EQ(grid.groups(), (std::vector<GroupShape>{{2, 2}, {1, 2}}));
    EXPECT_EQ(grid.first_rank(1), 1);
    EXPECT_EQ(grid.world_rank(0, 3), 5);
    EXPECT_EQ(grid.world_rank(grid.group(), grid.rank_in_group()), rank);
    EXPECT_FALSE(grid.equal_groups());
  }
  EXPECT_EQ(places,
            (std::vector<std::tuple<int, int, int>>{{0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {1, 0, 1}, {0, 1, 0}, {0, 1, 1}}));
  given.shard_size = 3;
  EXPECT_THROW(ProcessGrid(given, 6, 0, cells), ConfigError);
}

TEST(ProcessGrid, OfAnyShapesAndOrder) {
  const std::vector<int> order{0, 4, 2, 3, 1};
  for (int position = 0; position < 5; ++position) {
    const int rank = order[static_cast<std::size_t>(position)];
    const ProcessGrid grid({{1, 2}, {3, 1}}, rank, order);
    EXPECT_EQ(grid.world_size(), 5);
    EXPECT_EQ(grid.rank(), rank);
    EXPECT_EQ(grid.group(), position < 2 ? 0 : 1);
    EXPECT_EQ(grid.rank_in_group(), position < 2 ? position : position - 2);
    EXPECT_EQ(grid.world_rank(grid.group(), grid.rank_in_group()), rank);
  }
  // Rank 0 writes what group 0's first replica gathers.
  EXPECT_THROW(ProcessGrid({{1, 2}, {3, 1}}, 0, {1, 0, 2, 3, 4}), Error);
}

TEST(ProcessGrid, WrongDivisorsNameTheNearest) {
  EXPECT_EQ(error_of(options(Strategy::hsdp, 3), 8),
            "parallel.shard_size = 3 does not divide 8 ranks (replicas need equal shards); nearest: 2 or 4");
  EXPECT_EQ(error_of(options(Strategy::hsdp, 16), 8),
            "parallel.shard_size = 16 does not divide 8 ranks (replicas need equal shards); nearest: 8");
  EXPECT_EQ(error_of(options(Strategy::hsdp, 2), 1),
            "parallel.shard_size = 2 does not divide 1 rank (replicas need equal shards); nearest: 1");
  EXPECT_EQ(error_of(options(Strategy::fl_fsdp, 0, 0, 5), 12),
            "parallel.groups = 5 does not divide 12 ranks (federation groups must be equal); nearest: 4 or 6");
  EXPECT_EQ(error_of(options(Strategy::fl_fsdp, 0, 5), 7),
            "parallel.group_size = 5 does not divide 7 ranks (federation groups must be equal); nearest: 1 or 7");
  EXPECT_EQ(error_of(options(Strategy::fl_fsdp, 3), 8),
            "parallel.shard_size = 3 does not divide 8 ranks (federation groups must be equal); nearest: 2 or 4");
  // The group, not the world, must be divided: 4 divides 12, but not a group of 6.
  EXPECT_EQ(
      error_of(options(Strategy::fl_hsdp, 4, 6), 12),
      "parallel.shard_size = 4 does not divide the 6 ranks of a group (12 ranks in all) (replicas need equal shards); "
      "nearest: 3 or 6");
}

TEST(ProcessGrid, NegativeValuesAreErrors) {
  EXPECT_EQ(error_of(options(Strategy::hsdp, -1), 8),
            "parallel.shard_size = -1 must be at least 1 (8 ranks); nearest: 1");
  EXPECT_EQ(error_of(options(Strategy::fl_fsdp, 0, -2), 8),
            "parallel.group_size = -2 must be at least 1 (8 ranks); nearest: 1");
  EXPECT_EQ(error_of(options(Strategy::ddp, 0, 0, -3), 8),
            "parallel.groups = -3 must be at least 1 (8 ranks); nearest: 1");
}

TEST(ProcessGrid, MissingKeysAreErrorsWithTheChoices) {
  EXPECT_EQ(
      error_of(options(Strategy::hsdp), 8),
      "parallel.shard_size is missing: parallel.strategy = \"hsdp\" needs the ranks of one replica; for 8 ranks: 1, 2, "
      "4, 8");
  EXPECT_EQ(
      error_of(options(Strategy::fl_hsdp, 0, 6), 12),
      "parallel.shard_size is missing: parallel.strategy = \"fl+hsdp\" needs the ranks of one replica; for the 6 ranks "
      "of a group (12 ranks in all): 1, 2, 3, 6");
  EXPECT_EQ(
      error_of(options(Strategy::fl_fsdp), 4),
      "parallel.groups or parallel.group_size is missing: parallel.strategy = \"fl+fsdp\" needs the federation groups; "
      "for 4 ranks: 1, 2, 4");
  // In fl+hsdp the shards say nothing of the groups.
  EXPECT_EQ(
      error_of(options(Strategy::fl_hsdp, 2), 4),
      "parallel.groups or parallel.group_size is missing: parallel.strategy = \"fl+hsdp\" needs the federation groups; "
      "for 4 ranks: 1, 2, 4");
}

TEST(ProcessGrid, KeysWithoutMeaningAreErrors) {
  EXPECT_EQ(error_of(options(Strategy::fsdp, 0, 0, 2), 8),
            "parallel.groups = 2 has no meaning with parallel.strategy = \"fsdp\" on 8 ranks (one group of all ranks); "
            "remove "
            "it, or use strategy \"fl+fsdp\"");
  EXPECT_EQ(
      error_of(options(Strategy::hsdp, 2, 4), 8),
      "parallel.group_size = 4 has no meaning with parallel.strategy = \"hsdp\" on 8 ranks (one group of all ranks); "
      "remove it, or use strategy \"fl+hsdp\"");
  EXPECT_NE(error_of(options(Strategy::ddp, 0, 0, 1), 8), "no error");
  EXPECT_EQ(
      error_of(options(Strategy::fsdp, 4), 8),
      "parallel.shard_size = 4 contradicts parallel.strategy = \"fsdp\", which has shard_size 8 on 8 ranks; remove it, "
      "or use strategy \"hsdp\"");
  EXPECT_EQ(
      error_of(options(Strategy::ddp, 8), 8),
      "parallel.shard_size = 8 contradicts parallel.strategy = \"ddp\", which has shard_size 1 on 8 ranks; remove it, "
      "or use strategy \"hsdp\"");
}

TEST(ProcessGrid, KeysThatDisagreeAreErrors) {
  EXPECT_EQ(
      error_of(options(Strategy::fl_fsdp, 0, 2, 2), 8),
      "parallel.group_size = 2 contradicts parallel.groups = 2 on 8 ranks (groups of 2 or of 4 ranks?); remove one, or "
      "set group_size = 4");
  EXPECT_EQ(error_of(options(Strategy::fl_fsdp, 2, 4), 8),
            "parallel.shard_size = 2 contradicts parallel.group_size = 4 on 8 ranks (groups of 2 or of 4 ranks?); "
            "remove one, "
            "or set shard_size = 4");
  EXPECT_NE(error_of(options(Strategy::fl_hsdp, 2, 4, 4), 8), "no error");
}

}  // namespace
}  // namespace atl
