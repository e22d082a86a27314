/// Every grid trains the same model as one rank does with all the data. SPDX-License-Identifier: Apache-2.0
///
/// One rank, the reference, runs in the same process on MPI_COMM_SELF with the whole batch at once. The batches have
/// 5 sequences: ranks hold different numbers of them, and on more than 5 ranks some hold none.
#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

constexpr std::size_t batch = 5;
constexpr std::int64_t steps = 5;

/// fsdp, ddp, and hsdp with every shard size between.
std::vector<ParallelOptions> grids() {
  std::vector<ParallelOptions> all{grid_of(Strategy::fsdp)};
  if (world_ranks() > 1) all.push_back(grid_of(Strategy::ddp));
  for (int s = 2; s < world_ranks(); ++s)
    if (world_ranks() % s == 0) all.push_back(grid_of(Strategy::hsdp, s));
  return all;
}

struct Tolerance {
  double loss, norm, gradient, parameters;
};

template <class T>
void expect_equal_to_one_rank(Head head, const TinyOptions& options, const Tolerance& tolerance) {
  const LlamaConfig config = tiny_config(head);
  TinyRun<T> one(MPI_COMM_SELF, config, grid_of(Strategy::fsdp), options);
  std::vector<StepResult> expected;
  FullUnits<T> first_gradients;
  for (std::int64_t i = 1; i <= steps; ++i) {
    expected.push_back(one.step(i, batch));
    if (i == 1) first_gradients = one.gradients();
  }
  for (const ParallelOptions& grid : grids()) {
    TinyRun<T> run(MPI_COMM_WORLD, config, grid, options);
    SCOPED_TRACE(run.grid.describe());
    for (std::int64_t i = 1; i <= steps; ++i) {
      const StepResult result = run.step(i, batch), &reference = expected[static_cast<std::size_t>(i - 1)];
      EXPECT_LE(relative_difference(result.loss, reference.loss), tolerance.loss) << "step " << i;
      EXPECT_LE(relative_difference(result.gradient_norm, reference.gradient_norm), tolerance.norm) << "step " << i;
      EXPECT_EQ(result.tokens, reference.tokens);
      if (i == 1) expect_close(config, run.gradients(), first_gradients, tolerance.gradient, "gradient");
    }
    expect_close(config, run.masters(), one.masters(), tolerance.parameters, "parameters");
    EXPECT_TRUE(same_on_all_ranks(run.communicators.world, run.masters()));
  }
}

constexpr Tolerance fp64{1e-12, 1e-12, 1e-12, 1e-12};

TEST(Equivalence, AdamwTiedHead) { expect_equal_to_one_rank<double>(Head::tied, TinyOptions(), fp64); }
TEST(Equivalence, AdamwOwnHead) { expect_equal_to_one_rank<double>(Head::own, TinyOptions(), fp64); }
TEST(Equivalence, SgdWithClipping) {
  expect_equal_to_one_rank<double>(Head::tied, with_sgd(0.5), fp64);
  expect_equal_to_one_rank<double>(Head::own, with_sgd(0.5), fp64);
}

// Sums of about a thousand terms differ by a few units in the last place. AdamW divides by sqrt(v): an element whose
// gradient is small against its neighbours' gets their rounding as a visible part of its update.
TEST(Equivalence, SinglePrecision) {
  expect_equal_to_one_rank<float>(Head::tied, with_sgd(), {1e-6, 1e-6, 2e-6, 1e-6});
  expect_equal_to_one_rank<float>(Head::own, TinyOptions(), {1e-6, 1e-6, 2e-6, 1e-5});
}

// A token's activations are the same bits on all grids; sums over tokens are fp32, as in single precision. What differs
// there by 1e-7 makes some elements of the parameters round to another neighbour in bf16, 2^-8 away: so later losses
// differ by more.
TEST(Equivalence, Bf16) {
  expect_equal_to_one_rank<bf16>(Head::tied, with_sgd(), {1e-4, 1e-3, 1e-5, 1e-4});
  expect_equal_to_one_rank<bf16>(Head::own, with_sgd(), {1e-4, 1e-3, 1e-5, 1e-4});
}

/// Parameters after a short run of `micro_batches` a step, whose losses are appended.
template <class T>
FullUnits<T> trained(Head head, const ParallelOptions& grid, std::vector<double>& losses, Wire wire = Wire::exact,
                     int micro_batches = 2) {
  TinyOptions options;
  options.wire = wire;
  options.optimizer.clip_norm = 0;  // a norm is a sum over shards, whose last bit depends on their number
  TinyRun<T> run(MPI_COMM_WORLD, tiny_config(head), grid, options);
  for (std::int64_t i = 1; i <= 2; ++i) {
    const Range mine = run.my_sequences(i, batch);
    std::vector<Batch> parts;
    for (int part = 0; part < micro_batches; ++part) parts.push_back(run.batch(share(mine, micro_batches, part)));
    const StepResult result =
        training_step<T>(run.exec, run.model, run.optimizer, run.communicators.group, parts, 0.01);
    losses.insert(losses.end(), {result.loss, result.gradient_norm});
  }
  return run.masters();
}

template <class T>
void expect_same_of(Head head, const ParallelOptions& a, const ParallelOptions& b, Wire wire) {
  std::vector<double> a_losses, b_losses;
  const FullUnits<T> a_masters = trained<T>(head, a, a_losses, wire), b_masters = trained<T>(head, b, b_losses, wire);
  EXPECT_EQ(a_losses, b_losses);
  EXPECT_TRUE(same_bits(a_masters, b_masters)) << name_of(a.strategy);
}
void expect_same(Head head, const ParallelOptions& a, const ParallelOptions& b) {
  expect_same_of<float>(head, a, b, Wire::exact);
  expect_same_of<bf16>(head, a, b, Wire::exact);
  if (head == Head::own) expect_same_of<bf16>(head, a, b, Wire::bf16);
}

ParallelOptions keeping(ParallelOptions options) {
  options.reshard_after_forward = false;
  return options;
}

TEST(Equivalence, KeepingGatheredUnitsChangesNoBit) {
  const ParallelOptions all = grid_of(Strategy::fsdp), some = grid_of(Strategy::hsdp, 2);
  expect_same(Head::tied, all, keeping(all));
  expect_same(Head::own, all, keeping(all));
  if (world_ranks() % 2 == 0) expect_same(Head::own, some, keeping(some));
}

ParallelOptions prefetching(ParallelOptions options, int prefetch) {
  options.prefetch = prefetch;
  return options;
}

TEST(Equivalence, OverlapChangesNoBit) {
  std::vector<ParallelOptions> all = grids();
  all.push_back(keeping(all.front()));
  for (const ParallelOptions& grid : all)
    for (const int prefetch : {1, 2, 3})
      for (const Head head : {Head::tied, Head::own})
        expect_same(head, prefetching(grid, 0), prefetching(grid, prefetch));
}

// With a micro-batch a step both add the ranks' gradients once, in rank order. (hsdp adds sums of sums.)
template <class T>
void expect_fsdp_is_ddp() {
  for (const Head head : {Head::tied, Head::own}) {
    std::vector<double> sharded_losses, replicated_losses;
    const FullUnits<T> sharded = trained<T>(head, grid_of(Strategy::fsdp), sharded_losses, Wire::exact, 1),
                       replicated = trained<T>(head, grid_of(Strategy::ddp), replicated_losses, Wire::exact, 1);
    EXPECT_TRUE(same_bits(sharded, replicated));
    for (std::size_t i = 0; i < sharded_losses.size(); i += 2) EXPECT_EQ(sharded_losses[i], replicated_losses[i]);
  }
}
TEST(Equivalence, FsdpIsDdpToTheBit) {
  expect_fsdp_is_ddp<float>();
  expect_fsdp_is_ddp<bf16>();
}

TEST(Equivalence, TwoRunsGiveTheSameBits) {
  const ParallelOptions all = grid_of(Strategy::fsdp), some = grid_of(Strategy::hsdp, 2);
  expect_same(Head::tied, all, all);
  if (world_ranks() % 2 == 0) expect_same(Head::tied, some, some);
}

}  // namespace
}  // namespace atl
