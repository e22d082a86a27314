/// The evaluation is one number, whatever the grid. SPDX-License-Identifier: Apache-2.0
#include "model/evaluate.hpp"

#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

constexpr std::size_t all_sequences = 11, micro_batch = 2;

template <class T>
Evaluation evaluation(TinyRun<T>& run) {
  const int ranks = run.grid.world_size();
  const Range mine = share({0, all_sequences}, ranks, run.grid.rank());
  // As many micro-batches on every rank as the one with the largest share has.
  const std::size_t most = share({0, all_sequences}, ranks, 0).size();
  return evaluate<T>(run.exec, run.model, run.communicators.world,
                     static_cast<std::int64_t>((most + micro_batch - 1) / micro_batch), [&](std::int64_t i) {
                       const std::size_t begin =
                           std::min(mine.end, mine.begin + static_cast<std::size_t>(i) * micro_batch);
                       return run.batch({begin, std::min(mine.end, begin + micro_batch)});
                     });
}

template <class T>
void expect_the_same_everywhere(double tolerance) {
  std::vector<ParallelOptions> grids{grid_of(Strategy::fsdp), grid_of(Strategy::ddp)};
  if (world_ranks() % 2 == 0) {
    grids.push_back(grid_of(Strategy::hsdp, 2));
    grids.push_back(grid_of(Strategy::fl_fsdp, 0, 2));
  }
  for (const Head head : {Head::tied, Head::own}) {
    TinyRun<T> one(MPI_COMM_SELF, tiny_config(head), grid_of(Strategy::fsdp));
    // The reference takes another way: all sequences at once, and the mean by hand.
    const Batch batch = one.batch({0, all_sequences});
    const std::int64_t tokens = batch.target_count();
    const double loss = one.model.forward(one.exec, batch) / static_cast<double>(tokens);
    for (const ParallelOptions& grid : grids) {
      TinyRun<T> run(MPI_COMM_WORLD, tiny_config(head), grid);
      const FullUnits<T> before = run.masters();
      const Evaluation result = evaluation(run);
      EXPECT_EQ(result.tokens, tokens);
      EXPECT_LE(relative_difference(result.loss, loss), tolerance) << run.grid.describe();
      EXPECT_EQ(result.perplexity(), std::exp(result.loss));
      for (const double value : run.communicators.world.all_gather({result.loss})) EXPECT_EQ(value, result.loss);
      EXPECT_TRUE(same_bits(run.masters(), before));
    }
  }
}

TEST(Evaluate, NoGridChangesTheNumber) {
  expect_the_same_everywhere<double>(1e-12);
  expect_the_same_everywhere<float>(1e-6);
  expect_the_same_everywhere<bf16>(1e-6);  // a token's loss is the same bits wherever it is computed
}

// Not even where gathered units are kept for backward: they would be those of the model that was evaluated, as of the
// groups' mean, in the next step of another one.
TEST(Evaluate, KeepsNoGatheredUnit) {
  ParallelOptions keep = grid_of(Strategy::fsdp);
  keep.reshard_after_forward = false;
  for (const Head head : {Head::tied, Head::own}) {
    TinyOptions other;
    other.seed = 2;
    TinyRun<float> run(MPI_COMM_WORLD, tiny_config(head), keep), fresh(MPI_COMM_WORLD, tiny_config(head), keep, other);
    evaluation(run);
    initialise(run.exec, tiny_config(head), other.seed, run.parameters);
    EXPECT_EQ(evaluation(run).loss, evaluation(fresh).loss);
    EXPECT_EQ(run.step(1, 5).loss, fresh.step(1, 5).loss);
    EXPECT_TRUE(same_bits(run.masters(), fresh.masters()));
  }
}

TEST(Evaluate, OfNothingIsZero) {
  TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::tied), grid_of(Strategy::fsdp));
  const Evaluation result = evaluate<float>(run.exec, run.model, run.communicators.world, 2, [&](std::int64_t) {
    return run.batch({0, 0});
  });
  EXPECT_EQ(result.tokens, 0);
  EXPECT_EQ(result.loss, 0.0);
}

}  // namespace
}  // namespace atl
