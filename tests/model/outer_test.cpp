/// Aggregations with an outer optimizer, and what becomes of the groups' own. SPDX-License-Identifier: Apache-2.0
#include "tests/model/group_models.hpp"

#include <optional>

namespace atl {
namespace {

using Outer = FederationOptions::Outer;

/// fl+fsdp, fl+hsdp, and unequal groups, where the world is large enough; and one group.
std::vector<ProcessGrid> grids() {
  const int n = world_ranks();
  std::vector<ProcessGrid> all{grid_of({{1, n}})};
  if (n >= 2) all.push_back(grid_of({{1, n / 2}, {1, n - n / 2}}));
  if (n >= 3) all.push_back(grid_of({{n - 1, 1}, {1, 1}}));
  if (n % 4 == 0) all.push_back(grid_of({{2, n / 4}, {2, n / 4}}));
  return all;
}

TinyOptions with_outer(Outer outer, std::optional<double> lr = {}, std::optional<double> momentum = {}) {
  TinyOptions options;
  options.federation.outer = outer;
  options.federation.every = 2;
  options.federation.lr = lr;
  options.federation.momentum = momentum;
  return options;
}

/// Training steps with aggregations in between.
template <class T>
void train(TinyRun<T>& run) {
  for (std::int64_t step = 1; step <= run.options.steps; ++step) {
    run.step(step, 6);
    run.aggregate_if_due(step);
  }
}

TEST(OuterOptimizer, SgdOfRateOneIsFedavgToTheBit) {
  for (const ProcessGrid& grid : grids()) {
    SCOPED_TRACE(grid.describe());
    TinyRun<float> plain(grid, tiny_config(Head::own), with_outer(Outer::fedavg));
    TinyRun<float> outer(grid, tiny_config(Head::own), with_outer(Outer::sgd, 1.0, 0.0));
    train(plain);
    train(outer);
    EXPECT_TRUE(same_bits(outer.masters(), plain.masters()));
  }
}

// One round of each kind from made-up models, against its formula on the whole model.
TEST(OuterOptimizer, StepsOnSlicesAreStepsOnTheWhole) {
  const LlamaConfig config = tiny_config(Head::own);
  for (const ProcessGrid& grid : grids())
    for (const Outer kind : {Outer::sgd, Outer::adam, Outer::yogi, Outer::adagrad}) {
      SCOPED_TRACE(grid.describe());
      TinyRun<double> run(grid, config, with_outer(kind, 0.25));
      FullUnits<double> expected = run.masters();  // the model of the start, until it is the expected one
      set_models(run);
      const std::vector<double> tokens = tokens_of(grid.number_of_groups());
      run.federation.count_tokens(static_cast<std::int64_t>(tokens[static_cast<std::size_t>(grid.group())]));
      const FullUnits<double> mean = weighted_mean<double>(config, shares(tokens));
      const RoundReport report = run.federation.aggregate(run.exec, run.parameters);
      for (std::size_t u = 0; u < expected.size(); ++u)
        for (std::size_t i = 0; i < expected[u].size(); ++i) {
          const double d = expected[u][i] - mean[u][i], t2 = 1e-6, tau = 1e-3;
          double step = 1.9 * d;  // nesterov: d + 0.9 d
          if (kind == Outer::adam) step = 0.1 * d / (std::sqrt(0.99 * t2 + 0.01 * d * d) + tau);
          if (kind == Outer::yogi) step = 0.1 * d / (std::sqrt(t2 - 0.01 * d * d * (t2 > d * d ? 1 : -1)) + tau);
          if (kind == Outer::adagrad) step = d / (std::sqrt(t2 + d * d) + tau);
          expected[u][i] -= 0.25 * step;
        }
      // Made-up models have size 1, so d is exact to 1e-16; adam's and yogi's roots lose no more.
      expect_close(config, run.masters(), expected, 1e-12, std::string(name_of(kind)));
      EXPECT_TRUE(same_on_all_ranks(run.communicators.world, run.masters()));
      // The drift is the distance from the mean, not from where the outer step leads.
      for (int g = 0; g < grid.number_of_groups(); ++g) {
        const double drift = distance(whole_model<double>(g, config), mean);
        EXPECT_NEAR(report.drift[static_cast<std::size_t>(g)], drift, 1e-12 * drift);
      }
      // The next round starts from the new model.
      for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
        const OuterState<double>& state = run.federation.outer_state()[u];
        const auto& unit = run.parameters.unit(u);
        EXPECT_EQ(to_host(state.anchor), to_host(unit.local(unit.master, state.owned)));
      }
    }
}

// Stopped after a round and set up anew with what a checkpoint holds, a run goes on to the same bits.
TEST(OuterOptimizer, GoesOnFromItsState) {
  for (const ProcessGrid& grid : grids())
    for (const Outer kind : {Outer::sgd, Outer::yogi}) {
      TinyRun<float> whole(grid, tiny_config(Head::tied), with_outer(kind, 0.1));
      TinyRun<float> first(grid, tiny_config(Head::tied), with_outer(kind, 0.1));
      TinyRun<float> second(grid, tiny_config(Head::tied), with_outer(kind, 0.1));
      const auto round = [](TinyRun<float>& run) {
        set_models(run);
        run.federation.count_tokens(10 + run.grid.group());
        run.federation.aggregate(run.exec, run.parameters);
      };
      round(whole), round(whole);
      round(first);
      for (std::size_t u = 0; u < first.parameters.number_of_units(); ++u) {
        const OuterState<float>&from = first.federation.outer_state()[u], &to = second.federation.outer_state()[u];
        EXPECT_EQ(from.owned, to.owned);
        Kokkos::deep_copy(to.anchor, from.anchor);
        if (from.moment1.extent(0) > 0) Kokkos::deep_copy(to.moment1, from.moment1);
        if (from.moment2.extent(0) > 0) Kokkos::deep_copy(to.moment2, from.moment2);
      }
      second.federation.restore(first.federation.round(), first.federation.tokens_in_round());
      round(second);
      EXPECT_TRUE(same_bits(second.masters(), whole.masters())) << grid.describe();
      EXPECT_EQ(second.federation.round(), 2);
    }
}

TEST(InnerState, IsKeptAveragedOrReset) {
  using InnerState = FederationOptions::InnerState;
  const LlamaConfig config = tiny_config(Head::own);
  for (const ProcessGrid& grid : grids())
    for (const InnerState inner : {InnerState::keep, InnerState::average, InnerState::reset}) {
      SCOPED_TRACE(grid.describe());
      TinyOptions options;
      options.federation.every = 1;
      options.federation.inner_state = inner;
      TinyRun<double> run(grid, config, options);
      run.optimizer.step(run.exec, 0.0);  // so that there is a step to forget
      run.set(&ShardedUnit<double>::moment1,
              [&](std::size_t u, std::size_t i) { return model_of(run.grid.group(), u, i); });
      run.set(&ShardedUnit<double>::moment2,
              [&](std::size_t u, std::size_t i) { return std::abs(model_of(run.grid.group(), u, i)); });
      const std::vector<double> tokens = tokens_of(grid.number_of_groups());
      run.federation.count_tokens(static_cast<std::int64_t>(tokens[static_cast<std::size_t>(grid.group())]));
      run.aggregate_if_due(1);
      const FullUnits<double> m = run.full(&ShardedUnit<double>::moment1), v = run.full(&ShardedUnit<double>::moment2);
      if (inner == InnerState::keep) {
        EXPECT_TRUE(same_bits(m, whole_model<double>(grid.group(), config)));
      } else if (inner == InnerState::average) {
        EXPECT_TRUE(same_bits(m, weighted_mean<double>(config, shares(tokens))));
        EXPECT_TRUE(same_on_all_ranks(run.communicators.world, v));
      } else {
        for (const auto* moments : {&m, &v})
          for (const auto& unit : *moments) EXPECT_EQ(unit, std::vector<double>(unit.size(), 0.0));
      }
      EXPECT_EQ(run.optimizer.steps(), inner == InnerState::reset ? 0 : 1);
    }
}

}  // namespace
}  // namespace atl
