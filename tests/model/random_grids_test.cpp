/// Federated runs on grids of any shape against the sequential reference. SPDX-License-Identifier: Apache-2.0
#include "tests/model/federated_reference.hpp"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <utility>

namespace atl {
namespace {

using Outer = FederationOptions::Outer;

/// A run: shapes, and how many sequences and micro-batches a step of each group has.
struct Plan {
  std::vector<GroupShape> shapes;
  std::vector<int> order;
  std::vector<std::size_t> sequences;
  std::vector<int> accumulate;
  TinyOptions options;
  Head head = Head::own;
  double lr = 0.01;
};

/// The run on the ranks of the world, and on rank 0 the reference, step by step.
void expect_reference(const Plan& plan) {
  const LlamaConfig config = tiny_config(plan.head);
  const ProcessGrid grid = grid_of(plan.shapes, plan.order);
  TinyRun<double> run(grid, config, plan.options);
  const int groups = grid.number_of_groups();
  std::optional<FederatedReference> reference;
  if (grid.rank() == 0) reference.emplace(config, plan.options, groups);
  const std::size_t world = std::accumulate(plan.sequences.begin(), plan.sequences.end(), std::size_t{0});
  for (std::int64_t step = 1; step <= plan.options.steps; ++step) {
    std::size_t begin = static_cast<std::size_t>(step) * world;
    for (int g = 0; g < groups; ++g) {
      const auto index = static_cast<std::size_t>(g);
      const Range whole{begin, begin + plan.sequences[index]};
      begin = whole.end;
      if (reference) reference->step(g, whole, plan.lr);
      if (g != grid.group()) continue;
      const Range mine = share(whole, grid.shape().ranks(), grid.rank_in_group());
      std::vector<Batch> batches;
      for (int a = 0; a < plan.accumulate[index]; ++a)
        batches.push_back(run.batch(share(mine, plan.accumulate[index], a)));
      const StepResult result =
          training_step<double>(run.exec, run.model, run.optimizer, run.communicators.group, batches, plan.lr);
      run.federation.count_tokens(result.tokens);
    }
    run.aggregate_if_due(step);
    if (reference && run.federation.due(step)) reference->aggregate();
  }
  const FullUnits<double> masters = run.masters();
  if (reference) expect_close(config, masters, reference->model(0), 1e-12, "parameters");
  EXPECT_TRUE(same_on_all_ranks(run.communicators.world, masters));
  EXPECT_EQ(run.federation.round(),
            (plan.options.steps + plan.options.federation.every - 1) / plan.options.federation.every);
}

/// Draws from one sequence: the same on every rank.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : key_(random_key(seed, "grid")) {}
  int up_to(int most) { return static_cast<int>(random_bits(key_, next_++) % static_cast<std::uint64_t>(most + 1)); }
  int between(int least, int most) { return least + up_to(most - least); }

 private:
  std::uint64_t key_, next_ = 0;
};

Plan random_plan(std::uint64_t seed, int ranks) {
  Draw draw(seed);
  Plan plan;
  for (int left = ranks; left > 0;) {
    const int size = draw.between(1, left);
    std::vector<int> divisors;
    for (int s = 1; s <= size; ++s)
      if (size % s == 0) divisors.push_back(s);
    const int shards = divisors[static_cast<std::size_t>(draw.up_to(static_cast<int>(divisors.size()) - 1))];
    plan.shapes.push_back({size / shards, shards});
    plan.sequences.push_back(static_cast<std::size_t>(draw.between(1, 5)));
    plan.accumulate.push_back(draw.between(1, 3));
    left -= size;
  }
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  for (int i = ranks - 1; i > 1; --i)  // all but rank 0, which is the first always
    std::swap(plan.order[static_cast<std::size_t>(i)], plan.order[static_cast<std::size_t>(draw.between(1, i))]);
  plan.head = draw.up_to(1) == 0 ? Head::tied : Head::own;
  TinyOptions& options = plan.options;
  if (draw.up_to(3) == 0) options = with_sgd(0.5);
  options.seed = seed;
  options.steps = 5;
  FederationOptions& federation = options.federation;
  federation.every = draw.between(1, 4);
  constexpr Outer kinds[] = {Outer::fedavg, Outer::sgd, Outer::adam, Outer::yogi, Outer::adagrad};
  federation.outer = kinds[seed % 5];
  if (federation.outer != Outer::fedavg && (federation.outer != Outer::sgd || draw.up_to(1) == 0))
    federation.lr = 0.01 * draw.between(1, 50);
  // An outer step multiplies the rounding of the groups' models by up to lr / (sqrt(v) + tau): here by 1 at most, so
  // that the tolerance can be that of plain runs.
  if (federation.outer != Outer::fedavg && federation.outer != Outer::sgd) federation.tau = 0.25;
  if (federation.outer == Outer::sgd && draw.up_to(1) == 0) federation.momentum = 0.5, federation.nesterov = false;
  if (draw.up_to(2) == 0) federation.weights = FederationOptions::Weights::uniform;
  if (options.optimizer.kind == OptimizerOptions::Kind::adamw)
    federation.inner_state = static_cast<FederationOptions::InnerState>(draw.up_to(2));
  return plan;
}

TEST(RandomGrids, TenSeedsEqualTheSequentialReference) {
  int unequal = 0, several = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Plan plan = random_plan(seed, world_ranks());
    const ProcessGrid grid = grid_of(plan.shapes, plan.order);
    SCOPED_TRACE(fmt::format("seed {}: {}, every {}, outer {}", seed, grid.describe(), plan.options.federation.every,
                             name_of(plan.options.federation.outer)));
    unequal += grid.equal_groups() ? 0 : 1;
    several += grid.number_of_groups() > 1 ? 1 : 0;
    expect_reference(plan);
  }
  if (world_ranks() >= 4) {
    EXPECT_GE(several, 3);
    EXPECT_GE(unequal, 3);
  }
}

/// Two groups with different batches and micro-batches, AdamW, rounds of 2 steps.
Plan two_groups(GroupShape first, GroupShape second, std::vector<int> accumulate) {
  Plan plan;
  plan.shapes = {first, second};
  plan.sequences = {5, 7};
  plan.accumulate = std::move(accumulate);
  plan.options.steps = 4;
  plan.options.federation.every = 2;
  return plan;
}

TEST(UnequalGroups, OfThreeAndFiveRanks) {
  if (world_ranks() != 8) GTEST_SKIP() << "on 8 ranks";
  expect_reference(two_groups({1, 3}, {1, 5}, {1, 4}));
  expect_reference(two_groups({3, 1}, {1, 5}, {4, 1}));
}

TEST(UnequalGroups, OfTwoReplicasAndOne) {
  const int shards = world_ranks() / 3;
  if (world_ranks() % 3 != 0) GTEST_SKIP() << "on 3 or 6 ranks";
  expect_reference(two_groups({2, shards}, {1, shards}, {1, 4}));
  expect_reference(two_groups({1, shards}, {2, shards}, {4, 1}));
}

// What the seeds of few ranks may not draw.
TEST(UnequalGroups, OfAnyNumberOfRanks) {
  if (world_ranks() < 2) GTEST_SKIP() << "on 2 ranks or more";
  Plan plan = two_groups({1, world_ranks() - 1}, {1, 1}, {1, 3});
  plan.options.federation.inner_state = FederationOptions::InnerState::average;
  expect_reference(plan);
  plan.options.federation.inner_state = FederationOptions::InnerState::keep;
  plan.options.federation.outer = Outer::sgd;
  expect_reference(plan);
}

// A group whose batch has no target at all in a round, and more ranks than sequences.
TEST(UnequalGroups, OfWhichOneHasNothingToTrainOn) {
  if (world_ranks() < 3) GTEST_SKIP() << "on 3 ranks or more";
  Plan plan = two_groups({1, world_ranks() - 1}, {1, 1}, {1, 1});
  plan.sequences = {0, 3};
  expect_reference(plan);
}

}  // namespace
}  // namespace atl
