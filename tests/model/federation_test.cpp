/// Federated runs against plain ones, and aggregation against a mean made on the host. SPDX-License-Identifier:
/// Apache-2.0
#include "parallel/federation.hpp"

#include "tests/model/group_models.hpp"

#include <limits>

namespace atl {
namespace {

/// Every way to cut the world into groups: fl+fsdp, and fl+hsdp with replicas down to one rank.
std::vector<ParallelOptions> grids() {
  std::vector<ParallelOptions> all;
  for (int groups = 2; groups <= world_ranks(); ++groups) {
    if (world_ranks() % groups != 0) continue;
    all.push_back(grid_of(Strategy::fl_fsdp, 0, groups));
    const int ranks = world_ranks() / groups;
    for (int s = 1; s < ranks; ++s)
      if (ranks % s == 0) all.push_back(grid_of(Strategy::fl_hsdp, s, groups));
  }
  return all;
}

template <class T>
class FederationTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FederationTest, Types);

TYPED_TEST(FederationTest, TokensWeighTheMean) {
  using T = TypeParam;
  const LlamaConfig config = tiny_config(Head::own);
  for (const ParallelOptions& grid : grids()) {
    TinyRun<T> run(MPI_COMM_WORLD, config, grid);
    SCOPED_TRACE(run.grid.describe());
    set_models(run);
    const int groups = run.grid.number_of_groups();
    const std::vector<double> tokens = tokens_of(groups), weights = shares(tokens);
    if (groups == 2) {
      EXPECT_EQ(weights, (std::vector<double>{0.75, 0.25}));
    }
    // In two parts: tokens of several steps add up.
    const auto mine = static_cast<std::int64_t>(tokens[static_cast<std::size_t>(run.grid.group())]);
    run.federation.count_tokens(mine / 4);
    run.federation.count_tokens(mine - mine / 4);
    const RoundReport report = run.federation.aggregate(run.exec, run.parameters);

    const FullUnits<T> expected = weighted_mean<T>(config, weights), mean = run.masters();
    EXPECT_TRUE(same_bits(mean, expected)) << difference(config, mean, expected).value;
    EXPECT_TRUE(same_on_all_ranks(run.communicators.world, mean));
    EXPECT_EQ(report.round, 1);
    EXPECT_EQ(report.tokens, tokens);
    ASSERT_EQ(report.drift.size(), tokens.size());
    for (int g = 0; g < groups; ++g)
      EXPECT_LE(
          relative_difference(report.drift[static_cast<std::size_t>(g)], distance(whole_model<T>(g, config), expected)),
          1e-12);
    EXPECT_GT(report.bytes, 0u);

    // The next round counts its own tokens.
    const RoundReport next = run.federation.aggregate(run.exec, run.parameters);
    EXPECT_EQ(next.round, 2);
    EXPECT_EQ(next.tokens, std::vector<double>(tokens.size(), 0.0));
    expect_close(config, run.masters(), expected, std::is_same_v<T, float> ? 1e-6 : 1e-15, "mean of equal models");
  }
}

TYPED_TEST(FederationTest, EqualWeightsOnRequestAndWithoutTokens) {
  using T = TypeParam;
  const LlamaConfig config = tiny_config(Head::tied);
  for (const bool on_request : {true, false})
    for (const ParallelOptions& grid : grids()) {
      TinyOptions options;
      if (on_request) options.federation.weights = FederationOptions::Weights::uniform;
      TinyRun<T> run(MPI_COMM_WORLD, config, grid, options);
      set_models(run);
      if (on_request) run.federation.count_tokens(run.grid.group() == 0 ? 300 : 100);
      run.federation.aggregate(run.exec, run.parameters);
      const int groups = run.grid.number_of_groups();
      const std::vector<double> weights(static_cast<std::size_t>(groups), 1.0 / groups);
      EXPECT_TRUE(same_bits(run.masters(), weighted_mean<T>(config, weights))) << run.grid.describe();
    }
}

// What a group without tokens holds must not matter, however wild.
TEST(Federation, AGroupWithoutTokensHasNoWeight) {
  const LlamaConfig config = tiny_config(Head::own);
  for (const ParallelOptions& grid : grids()) {
    TinyRun<float> run(MPI_COMM_WORLD, config, grid);
    const int idle = run.grid.number_of_groups() - 1;
    set_models(run);
    if (run.grid.group() == idle)
      run.set(&ShardedUnit<float>::master, [](std::size_t, std::size_t i) { return i % 2 == 0 ? 1e30 : -1e30; });
    run.federation.count_tokens(run.grid.group() == idle ? 0 : 128);
    run.federation.aggregate(run.exec, run.parameters);
    std::vector<double> weights(static_cast<std::size_t>(idle), 1.0 / idle);
    EXPECT_LE(difference(config, run.masters(), weighted_mean<float>(config, weights)).value, 1e-6);
  }
}

// NaN on a single rank of group 1: every rank of the world throws, and says which group.
TYPED_TEST(FederationTest, AModelThatIsNotFiniteIsAnErrorOnEveryRank) {
  using T = TypeParam;
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const ParallelOptions& grid : grids()) {
      TinyRun<T> run(MPI_COMM_WORLD, tiny_config(Head::own), grid);
      run.federation.count_tokens(10);
      if (run.grid.group() == 1)
        run.set(&ShardedUnit<T>::master, [&](std::size_t u, std::size_t i) { return u == 2 && i == 3 ? bad : 1.0; });
      for (const bool temporary : {true, false}) {
        try {
          if (temporary) {
            const TemporaryAverage<T> average(run.exec, run.federation, run.parameters);
          } else {
            run.federation.aggregate(run.exec, run.parameters);
          }
          ADD_FAILURE() << "no error";
        } catch (const CollectiveError& error) {
          EXPECT_NE(std::string(error.what()).find("group 1 "), std::string::npos) << error.what();
        }
      }
      run.communicators.world.barrier();  // nobody is left behind in a collective call
    }
}

TYPED_TEST(FederationTest, TemporaryAverageShowsTheMeanAndRestoresEveryBit) {
  using T = TypeParam;
  const LlamaConfig config = tiny_config(Head::own);
  for (const ParallelOptions& grid : grids()) {
    TinyRun<T> run(MPI_COMM_WORLD, config, grid);
    set_models(run);
    const std::vector<double> tokens = tokens_of(run.grid.number_of_groups());
    run.federation.count_tokens(static_cast<std::int64_t>(tokens[static_cast<std::size_t>(run.grid.group())]));
    const FullUnits<T> own = run.masters(), mean = weighted_mean<T>(config, shares(tokens));
    {
      const TemporaryAverage<T> average(run.exec, run.federation, run.parameters);
      EXPECT_TRUE(same_bits(run.masters(), mean)) << run.grid.describe();
    }
    EXPECT_TRUE(same_bits(run.masters(), own)) << run.grid.describe();
    EXPECT_EQ(run.federation.round(), 0);
    // The round goes on as if nothing had happened.
    EXPECT_EQ(run.federation.aggregate(run.exec, run.parameters).tokens, tokens);
    EXPECT_TRUE(same_bits(run.masters(), mean));
  }
}

// What a checkpoint saves: every element of a unit once in a group, whatever its shape; and where the round stands.
TEST(Federation, SlicesOfAGroupCoverEachUnitOnce) {
  for (const ParallelOptions& grid : grids()) {
    TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::own), grid);
    SCOPED_TRACE(run.grid.describe());
    ASSERT_EQ(run.federation.outer_state().size(), run.parameters.number_of_units());
    for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
      const auto& unit = run.parameters.unit(u);
      const Range mine = run.federation.outer_state()[u].owned;
      EXPECT_EQ(intersect(mine, unit.owned), mine);
      const auto all =
          run.communicators.group.all_gather({static_cast<double>(mine.begin), static_cast<double>(mine.end)});
      std::vector<int> owners(unit.layout.size());
      for (std::size_t r = 0; r < all.size(); r += 2)
        for (std::size_t i = static_cast<std::size_t>(all[r]); i < static_cast<std::size_t>(all[r + 1]); ++i)
          ++owners.at(i);
      EXPECT_EQ(owners, std::vector<int>(unit.layout.size(), 1)) << unit.layout.unit().name;
    }
  }
}

TEST(Federation, GoesOnWhereItWas) {
  for (const ParallelOptions& grid : grids()) {
    TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::own), grid);
    run.federation.restore(7, 100.0 + run.grid.group());
    run.federation.count_tokens(10);
    EXPECT_EQ(run.federation.tokens_in_round(), 110.0 + run.grid.group());
    const RoundReport report = run.federation.aggregate(run.exec, run.parameters);
    EXPECT_EQ(report.round, 8);
    EXPECT_EQ(report.tokens.back(), 110.0 + run.grid.number_of_groups() - 1);
    EXPECT_EQ(run.federation.tokens_in_round(), 0.0);
  }
}

TEST(Federation, MeansOfStepsAreWeightedByTokens) {
  for (const ParallelOptions& grid : grids()) {
    TinyRun<double> run(MPI_COMM_WORLD, tiny_config(Head::tied), grid);
    const int groups = run.grid.number_of_groups(), mine = run.grid.group();
    const auto value = [](int g, int step) { return 1.0 + g + 10 * step; };
    const auto weight = [](int g, int step) { return step == 1 ? 0.0 : step == 2 && g == 0 ? 0.0 : 1.0 + g * step; };
    std::vector<double> values, weights;
    for (int step = 0; step < 3; ++step) {
      // A group without tokens has no loss: what it says instead must not matter.
      weights.push_back(weight(mine, step));
      values.push_back(weights.back() > 0 ? value(mine, step) : std::nan(""));
    }
    const std::vector<WorldMean> means = run.federation.mean_over_groups(values, weights);
    ASSERT_EQ(means.size(), 3u);
    for (int step = 0; step < 3; ++step) {
      double sum = 0, total = 0;
      for (int g = 0; g < groups; ++g) {
        sum += weight(g, step) * value(g, step);
        total += weight(g, step);
      }
      const WorldMean& mean = means[static_cast<std::size_t>(step)];
      EXPECT_EQ(mean.tokens, total);
      EXPECT_DOUBLE_EQ(mean.mean, total > 0 ? sum / total : 0.0);
    }
  }
}

// One SGD step of each group from the same model, averaged by tokens, is one step on all groups' sequences together.
TEST(Federation, AveragingEverySgdStepIsTrainingOnTheJointBatch) {
  for (const Head head : {Head::tied, Head::own}) {
    if (head == Head::tied && world_ranks() > 4) continue;  // seen on fewer ranks
    const LlamaConfig config = tiny_config(head);
    for (const Targets targets : {Targets::all, Targets::some}) {
      TinyOptions options = with_sgd();
      options.federation.every = 1;
      options.targets = targets;
      for (const ParallelOptions& grid : grids()) {
        // Equal shares; or one sequence more than groups divide, so that some groups have fewer, or none.
        const std::size_t batch = 2 * static_cast<std::size_t>(grid.groups) + (targets == Targets::some ? 1 : 0);
        options.shape.micro_batch = static_cast<std::int64_t>(batch);
        TinyRun<double> one(MPI_COMM_SELF, config, grid_of(Strategy::fsdp), options);
        TinyRun<double> run(MPI_COMM_WORLD, config, grid, options);
        SCOPED_TRACE(run.grid.describe());
        for (std::int64_t step = 1; step <= 3; ++step) {
          const StepResult expected = one.step(step, batch, 0.1), result = run.step(step, batch, 0.1);
          const WorldMean mean =
              run.federation.mean_over_groups({result.loss}, {static_cast<double>(result.tokens)}).at(0);
          EXPECT_EQ(mean.tokens, static_cast<double>(expected.tokens));
          EXPECT_LE(relative_difference(mean.mean, expected.loss), 1e-12);
          ASSERT_TRUE(run.federation.due(step));
          run.federation.aggregate(run.exec, run.parameters);
        }
        expect_close(config, run.masters(), one.masters(), 1e-12, "parameters");
      }
    }
  }
}

template <class T>
void expect_one_group_to_be_fsdp() {
  TinyOptions options;
  options.federation.every = 2;
  for (const Head head : {Head::tied, Head::own}) {
    if (head == Head::tied && world_ranks() > 4) continue;
    TinyRun<T> plain(MPI_COMM_WORLD, tiny_config(head), grid_of(Strategy::fsdp), options);
    TinyRun<T> federated(MPI_COMM_WORLD, tiny_config(head), grid_of(Strategy::fl_fsdp, 0, 1), options);
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      const StepResult expected = plain.step(step, 5), result = federated.step(step, 5);
      EXPECT_EQ(result.loss, expected.loss);
      EXPECT_EQ(result.gradient_norm, expected.gradient_norm);
      federated.aggregate_if_due(step);
    }
    EXPECT_EQ(federated.federation.round(), 3);
    EXPECT_TRUE(same_bits(federated.masters(), plain.masters()));
  }
}
TEST(Federation, OfOneGroupIsFsdpToTheBit) {
  expect_one_group_to_be_fsdp<float>();
  expect_one_group_to_be_fsdp<bf16>();
}

// Averages are those of the fp32 masters, and what is computed with follows them, inside a round and after it.
TEST(Federation, InBf16ComputesWithTheAverage) {
  if (world_ranks() % 2 != 0) return;
  const LlamaConfig config = tiny_config(Head::own);
  TinyRun<bf16> run(MPI_COMM_WORLD, config, grid_of(Strategy::fl_fsdp, 0, 2));
  const Batch batch = run.batch({3, 5});
  const auto expect_same_model = [&] {
    TinyRun<bf16> fresh(MPI_COMM_SELF, config, grid_of(Strategy::fsdp));
    const FullUnits<bf16> masters = run.masters();
    fresh.set(&ShardedUnit<bf16>::master, [&](std::size_t u, std::size_t i) { return masters[u][i]; });
    EXPECT_EQ(run.model.forward(run.exec, batch), fresh.model.forward(fresh.exec, batch));
  };
  expect_same_model();
  run.step(1, 6);
  const double own = run.model.forward(run.exec, batch);
  expect_same_model();
  {
    const TemporaryAverage<bf16> average(run.exec, run.federation, run.parameters);
    EXPECT_NE(run.model.forward(run.exec, batch), own);
    expect_same_model();
  }
  EXPECT_EQ(run.model.forward(run.exec, batch), own);
  run.federation.aggregate(run.exec, run.parameters);
  EXPECT_TRUE(same_on_all_ranks(run.communicators.world, run.masters()));
  expect_same_model();
}

TEST(Federation, RoundsEndEveryHStepsAndAfterTheLast) {
  const auto ends = [](std::int64_t every, std::int64_t steps) {
    TinyOptions options;
    options.federation.every = every;
    options.steps = steps;
    const TinyRun<float> run(MPI_COMM_SELF, tiny_config(Head::tied), grid_of(Strategy::fsdp), options);
    std::vector<std::int64_t> due;
    for (std::int64_t step = 1; step <= steps; ++step)
      if (run.federation.due(step)) due.push_back(step);
    return due;
  };
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(ends(8, 5), (Steps{5}));
  EXPECT_EQ(ends(8, 20), (Steps{8, 16, 20}));
  EXPECT_EQ(ends(5, 10), (Steps{5, 10}));
  EXPECT_EQ(ends(1, 3), (Steps{1, 2, 3}));
}

// Between aggregations the groups differ; after each, and after a last round that is shorter, they do not.
TEST(Federation, GroupsAreTheSameAfterEachRound) {
  for (const std::int64_t every : {2, 8}) {
    TinyOptions options;
    options.federation.every = every;
    for (const ParallelOptions& grid : grids()) {
      TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::tied), grid, options);
      SCOPED_TRACE(run.grid.describe());
      for (std::int64_t step = 1; step <= options.steps; ++step) {
        run.step(step, 2 * static_cast<std::size_t>(grid.groups));
        EXPECT_FALSE(same_on_all_ranks(run.communicators.world, run.masters())) << step;
        EXPECT_TRUE(same_on_all_ranks(run.communicators.group, run.masters())) << step;
        run.aggregate_if_due(step);
        if (step % every == 0 || step == options.steps) {
          EXPECT_TRUE(same_on_all_ranks(run.communicators.world, run.masters())) << step;
        }
      }
      EXPECT_EQ(run.federation.round(), every == 2 ? 3 : 1);
    }
  }
}

TEST(Federation, ReplicasInsideAGroupChangeNothing) {
  const LlamaConfig config = tiny_config(Head::own);
  TinyOptions options;
  options.federation.every = 2;
  for (const ParallelOptions& grid : grids()) {
    if (grid.strategy != Strategy::fl_hsdp) continue;
    TinyRun<double> sharded(MPI_COMM_WORLD, config, grid_of(Strategy::fl_fsdp, 0, grid.groups), options);
    TinyRun<double> replicated(MPI_COMM_WORLD, config, grid, options);
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      for (auto* run : {&sharded, &replicated}) {
        run->step(step, 9);
        run->aggregate_if_due(step);
      }
    }
    expect_close(config, replicated.masters(), sharded.masters(), 1e-12, replicated.grid.describe());
  }
}

/// Elements of the padding that are not zero, over the world; `padded` counts all of them.
template <class T>
double broken_padding(const TinyRun<T>& run, double& padded) {
  double broken = 0, all = 0;
  for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
    const auto& unit = run.parameters.unit(u);
    const std::vector<View1<Accumulator<T>>> views{unit.master, unit.gradient, unit.moment1, unit.moment2};
    for (const auto& view : views) {
      const auto values = to_host(view);
      EXPECT_EQ(values.size(), unit.layout.shard_size());
      for (std::size_t i = unit.owned.size(); i < values.size(); ++i) {
        ++all;
        broken += values[i] != 0 ? 1 : 0;
      }
    }
  }
  padded = run.communicators.world.sum(all);
  return run.communicators.world.sum(broken);
}

TEST(Federation, PaddingStaysZeroForAWholeRun) {
  TinyOptions options;
  options.federation.every = 4;
  options.steps = 10;
  std::vector<ParallelOptions> all = grids();
  all.push_back(grid_of(Strategy::fl_fsdp, 0, 1));
  int with_padding = 0;
  for (const Head head : {Head::tied, Head::own})
    for (const ParallelOptions& grid : all) {
      if (world_ranks() > 4 && grid.strategy == Strategy::fl_hsdp) continue;
      TinyRun<float> run(MPI_COMM_WORLD, tiny_config(head), grid, options);
      double padded = 0;
      for (std::int64_t step = 1; step <= options.steps; ++step) {
        run.step(step, 5);
        run.aggregate_if_due(step);
        ASSERT_EQ(broken_padding(run, padded), 0.0) << run.grid.describe() << ", step " << step;
      }
      with_padding += padded > 0 ? 1 : 0;
    }
  EXPECT_GE(with_padding, 2);
}

}  // namespace
}  // namespace atl
