/// Groups of unequal shapes: exact means over the common refinement of their slices, agreement, data. SPDX-License-
/// Identifier: Apache-2.0
#include "tests/model/group_models.hpp"

#include <limits>
#include <numeric>

namespace atl {
namespace {

/// Groups that differ in shards, in replicas, in both; in the order of the world, and in another one.
std::vector<ProcessGrid> grids() {
  const int n = world_ranks();
  std::vector<std::vector<GroupShape>> shapes{{{1, n - 1}, {1, 1}}, {{1, 1}, {n - 1, 1}}};
  if (n == 8) {
    // Four groups of which one has no tokens (tokens_of): two terms alone have the same sum in any order.
    shapes = {{{1, 3}, {1, 5}}, {{3, 1}, {5, 1}}, {{2, 2}, {1, 3}, {1, 1}}, {{1, 3}, {2, 1}, {1, 2}, {1, 1}}};
  } else if (n % 3 == 0) {
    shapes.push_back({{2, n / 3}, {1, n / 3}});
  }
  std::vector<int> turned(static_cast<std::size_t>(n));
  std::iota(turned.begin(), turned.end(), 0);
  std::reverse(turned.begin() + 1, turned.end());
  std::vector<ProcessGrid> all;
  for (const auto& groups : shapes) all.push_back(grid_of(groups));
  all.push_back(grid_of(shapes.back(), turned));
  return all;
}

template <class T>
class UnequalGroups : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(UnequalGroups, Types);

TYPED_TEST(UnequalGroups, HaveTheExactMeanToTheBit) {
  using T = TypeParam;
  const LlamaConfig config = tiny_config(Head::own);
  for (const ProcessGrid& grid : grids()) {
    TinyRun<T> run(grid, config);
    SCOPED_TRACE(run.grid.describe());
    set_models(run);
    const int groups = run.grid.number_of_groups();
    const std::vector<double> tokens = tokens_of(groups);
    run.federation.count_tokens(static_cast<std::int64_t>(tokens[static_cast<std::size_t>(run.grid.group())]));
    const FullUnits<T> own = run.masters(), expected = weighted_mean<T>(config, shares(tokens));
    {
      const TemporaryAverage<T> average(run.exec, run.federation, run.parameters);
      EXPECT_TRUE(same_bits(run.masters(), expected));
    }
    EXPECT_TRUE(same_bits(run.masters(), own));
    const RoundReport report = run.federation.aggregate(run.exec, run.parameters);
    const FullUnits<T> mean = run.masters();
    EXPECT_TRUE(same_bits(mean, expected)) << difference(config, mean, expected).value;
    EXPECT_TRUE(same_on_all_ranks(run.communicators.world, mean));
    EXPECT_EQ(report.tokens, tokens);
    ASSERT_EQ(report.drift.size(), tokens.size());
    for (int g = 0; g < groups; ++g)
      EXPECT_LE(
          relative_difference(report.drift[static_cast<std::size_t>(g)], distance(whole_model<T>(g, config), expected)),
          1e-12);
    for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
      const auto& unit = run.parameters.unit(u);
      const auto values = to_host(unit.master);
      for (std::size_t i = unit.owned.size(); i < values.size(); ++i) EXPECT_EQ(values[i], 0) << "padding";
    }
  }
}

TYPED_TEST(UnequalGroups, StopAlikeWhereAModelIsNotFinite) {
  using T = TypeParam;
  for (const ProcessGrid& grid : grids())
    for (int broken = 0; broken < grid.number_of_groups(); ++broken) {
      TinyRun<T> run(grid, tiny_config(Head::own));
      run.federation.count_tokens(10);
      if (run.grid.group() == broken)
        run.set(&ShardedUnit<T>::master, [](std::size_t u, std::size_t i) {
          return u == 1 && i == 3 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
        });
      try {
        run.federation.aggregate(run.exec, run.parameters);
        ADD_FAILURE() << "no error";
      } catch (const CollectiveError& error) {
        EXPECT_NE(std::string(error.what()).find("group " + std::to_string(broken) + " "), std::string::npos)
            << error.what();
      }
      run.communicators.world.barrier();  // nobody is left behind in a collective call
    }
}

TEST(UnequalGroups, ExchangeTheMeansOfTheirSteps) {
  for (const ProcessGrid& grid : grids()) {
    TinyRun<double> run(grid, tiny_config(Head::tied));
    const double mine = run.grid.group();
    const auto means = run.federation.mean_over_groups({mine, 10}, {1 + mine, 2});
    double sum = 0, total = 0;
    for (int g = 0; g < run.grid.number_of_groups(); ++g) sum += (1 + g) * g, total += 1 + g;
    ASSERT_EQ(means.size(), 2u);
    EXPECT_EQ(means[0].tokens, total);
    EXPECT_DOUBLE_EQ(means[0].mean, sum / total);
    EXPECT_EQ(means[1].mean, 10.0);
  }
}

// A checkpoint saves every element once.
TEST(UnequalGroups, SlicesOfAGroupCoverEachUnitOnce) {
  for (const ProcessGrid& grid : grids()) {
    TinyRun<float> run(grid, tiny_config(Head::own));
    for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
      const Range mine = run.federation.outer_state()[u].owned;
      EXPECT_EQ(intersect(mine, run.parameters.unit(u).owned).size(), mine.size());
      const auto all =
          run.communicators.group.all_gather({static_cast<double>(mine.begin), static_cast<double>(mine.end)});
      std::vector<int> owners(run.parameters.unit(u).layout.size());
      for (std::size_t r = 0; r < all.size(); r += 2)
        for (auto i = static_cast<std::size_t>(all[r]); i < static_cast<std::size_t>(all[r + 1]); ++i) ++owners.at(i);
      EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
    }
  }
}

// The same groups, sharded or replicated inside, train the same model.
TEST(UnequalGroups, ReplicasInsideAGroupChangeNothing) {
  const int n = world_ranks();
  if (n % 3 != 0) GTEST_SKIP() << "on 3 or 6 ranks";
  const LlamaConfig config = tiny_config(Head::own);
  TinyOptions options;
  options.federation.every = 2;
  TinyRun<double> sharded(grid_of({{1, 2 * n / 3}, {1, n / 3}}), config, options);
  TinyRun<double> replicated(grid_of({{2, n / 3}, {n / 3, 1}}), config, options);
  for (std::int64_t step = 1; step <= options.steps; ++step)
    for (auto* run : {&sharded, &replicated}) {
      run->step(step, 9);
      run->aggregate_if_due(step);
    }
  expect_close(config, replicated.masters(), sharded.masters(), 1e-12, replicated.grid.describe());
}

}  // namespace
}  // namespace atl
