/// How a batch is cut into micro-batches and spread over ranks changes nothing. SPDX-License-Identifier: Apache-2.0
#include "model/training_step.hpp"

#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

/// Sequence `index`, of which only the first `targets` targets count.
Batch with_targets(std::size_t index, std::int64_t length, std::int64_t targets) {
  Batch batch;
  append_sequence(index, length, Targets::all, batch);
  std::fill(batch.targets.begin() + targets, batch.targets.end(), ignored_target);
  return batch;
}

Batch joined(const std::vector<Batch>& parts) {
  Batch whole;
  for (const Batch& part : parts) {
    whole.sequences += part.sequences;
    whole.length = part.length;
    whole.tokens.insert(whole.tokens.end(), part.tokens.begin(), part.tokens.end());
    whole.targets.insert(whole.targets.end(), part.targets.begin(), part.targets.end());
  }
  return whole;
}

/// Two steps on every grid of the world, with `mine` for this rank; and two steps of one rank with `all` in one batch.
void expect_equal(const std::vector<Batch>& mine, const Batch& all, TinyOptions options) {
  options.shape.micro_batch = all.sequences;
  options.shape.sequence_length = all.length;
  std::vector<ParallelOptions> grids{grid_of(Strategy::fsdp), grid_of(Strategy::ddp)};
  if (world_ranks() % 2 == 0) grids.push_back(grid_of(Strategy::hsdp, world_ranks() / 2));
  for (const Head head : {Head::tied, Head::own}) {
    const LlamaConfig config = tiny_config(head);
    TinyRun<double> one(MPI_COMM_SELF, config, grid_of(Strategy::fsdp), options);
    std::vector<StepResult> expected;
    for (int i = 0; i < 2; ++i)
      expected.push_back(
          training_step<double>(one.exec, one.model, one.optimizer, one.communicators.group, {all}, 0.01));
    for (const ParallelOptions& grid : grids) {
      TinyRun<double> run(MPI_COMM_WORLD, config, grid, options);
      SCOPED_TRACE(run.grid.describe());
      for (const StepResult& reference : expected) {
        const StepResult result =
            training_step<double>(run.exec, run.model, run.optimizer, run.communicators.group, mine, 0.01);
        EXPECT_EQ(result.tokens, reference.tokens);
        EXPECT_LE(relative_difference(result.loss, reference.loss), 1e-12);
        EXPECT_LE(relative_difference(result.gradient_norm, reference.gradient_norm), 1e-12);
      }
      expect_close(config, run.gradients(), one.gradients(), 1e-12, "gradient");
      expect_close(config, run.masters(), one.masters(), 1e-12, "parameters");
    }
  }
}

TEST(TrainingStep, FourMicroBatchesEqualOneBatch) {
  const std::size_t ranks = static_cast<std::size_t>(world_ranks());
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<Batch> mine;
  for (std::size_t m = 0; m < 4; ++m)
    mine.push_back(sequences({4 * static_cast<std::size_t>(rank) + m, 4 * static_cast<std::size_t>(rank) + m + 1}, 11,
                             Targets::some));
  const Batch all = sequences({0, 4 * ranks}, 11, Targets::some);
  expect_equal(mine, all, with_sgd());
  expect_equal(mine, all, TinyOptions());
  expect_equal({joined(mine)}, all, with_sgd());
}

// A mean of the micro-batches' means would count each of the 11 as much as nine of the 101.
TEST(TrainingStep, EveryTargetTokenCountsTheSame) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto micro_batches = [](int r) {
    std::vector<Batch> two;
    for (int m = 0; m < 2; ++m)
      two.push_back(with_targets(static_cast<std::size_t>(2 * r + m), 103, (r + m) % 2 == 0 ? 11 : 101));
    return two;
  };
  std::vector<Batch> all;
  for (int r = 0; r < world_ranks(); ++r)
    for (const Batch& batch : micro_batches(r)) all.push_back(batch);
  EXPECT_EQ(all[0].target_count(), 11);
  EXPECT_EQ(all[1].target_count(), 101);
  expect_equal(micro_batches(rank), joined(all), with_sgd());
}

// Of the mean loss, not of the sum: the same targets twice are the same mean.
TEST(TrainingStep, RepeatedMicroBatchesChangeNothing) {
  TinyRun<double> once(MPI_COMM_WORLD, tiny_config(Head::tied), grid_of(Strategy::fsdp), with_sgd());
  TinyRun<double> twice(MPI_COMM_WORLD, tiny_config(Head::tied), grid_of(Strategy::fsdp), with_sgd());
  const Batch batch = once.batch(once.my_sequences(1, 5));
  const auto step = [](TinyRun<double>& run, const std::vector<Batch>& batches) {
    return training_step<double>(run.exec, run.model, run.optimizer, run.communicators.group, batches, 0.01);
  };
  const StepResult a = step(once, {batch}), b = step(twice, {batch, batch});
  EXPECT_EQ(b.tokens, 2 * a.tokens);
  EXPECT_LE(relative_difference(b.loss, a.loss), 1e-12);
  EXPECT_LE(relative_difference(b.gradient_norm, a.gradient_norm), 1e-12);
  expect_close(tiny_config(Head::tied), twice.gradients(), once.gradients(), 1e-12, "gradient");
}

TEST(TrainingStep, AllRanksOfAGroupReportTheSameBits) {
  TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::tied), grid_of(Strategy::fsdp));
  const StepResult result = run.step(1, 5);
  const Communicator& world = run.communicators.world;
  for (const double value : world.all_gather({result.loss})) EXPECT_EQ(value, result.loss);
  for (const double value : world.all_gather({result.gradient_norm})) EXPECT_EQ(value, result.gradient_norm);
  for (const double value : world.all_gather({static_cast<double>(result.tokens)}))
    EXPECT_EQ(value, static_cast<double>(result.tokens));
}

// Of any rank, or of several: all ranks learn of the first one.
TEST(TrainingStep, AWishToStopTravelsWithTheLoss) {
  TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::tied), grid_of(Strategy::fsdp));
  const auto step = [&](const StopWish& mine) {
    int asked = 0;
    const StepResult result = training_step<float>(
        run.exec, run.model, run.optimizer, run.communicators.group,
        {run.batch({static_cast<std::size_t>(run.grid.rank()), static_cast<std::size_t>(run.grid.rank()) + 1})}, 0.0,
        [&] {
          ++asked;
          return mine;
        });
    EXPECT_EQ(asked, 1);
    return result;
  };
  const StepResult without = step({});
  EXPECT_FALSE(without.stop_wish);
  for (int first = 0; first < world_ranks(); ++first) {
    const int me = run.grid.rank();
    EXPECT_EQ(step(me == first ? StopWish{15, 100 + me} : StopWish()).stop_wish, (StopWish{15, 100 + first}));
    const StepResult several = step(me >= first ? StopWish{-1 - me, me} : StopWish());
    EXPECT_EQ(several.stop_wish, (StopWish{-1 - first, first}));
    EXPECT_EQ(several.loss, without.loss);  // lr is 0
  }
}

// NaN in what one rank adds to the gradient: all ranks stop alike, and name it; nothing has changed.
TEST(TrainingStep, NamesTheRankWhoseLossIsNotFinite) {
  for (int bad = 0; bad < world_ranks(); ++bad) {
    TinyRun<double> run(MPI_COMM_WORLD, tiny_config(Head::own), grid_of(Strategy::ddp));
    if (run.grid.rank() == bad)
      run.set(&ShardedUnit<double>::master, [](std::size_t, std::size_t) { return std::nan(""); });
    const FullUnits<double> before = run.masters();
    try {
      run.step(1, 2 * static_cast<std::size_t>(world_ranks()));
      ADD_FAILURE() << "no error";
    } catch (const GroupError& error) {
      EXPECT_NE(std::string(error.what()).find("the gradient of optimizer step 1 is not finite"), std::string::npos);
      const std::string where = "on rank " + std::to_string(bad) + " of the group's " + std::to_string(world_ranks());
      EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what();
      EXPECT_EQ(error.first(), run.grid.rank() == 0);
      EXPECT_EQ(error.ranks(), world_ranks());
    }
    EXPECT_TRUE(same_bits(run.masters(), before));
    run.communicators.world.barrier();
  }
}

TEST(TrainingStep, ABatchWithoutTargetsIsNoUpdate) {
  TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::own), grid_of(Strategy::fsdp), with_sgd());
  const FullUnits<float> before = run.masters();
  const StepResult result = training_step<float>(run.exec, run.model, run.optimizer, run.communicators.group,
                                                 {run.batch({0, 0}), run.batch({0, 0})}, 0.1);
  EXPECT_EQ(result.tokens, 0);
  EXPECT_EQ(result.loss, 0.0);
  EXPECT_EQ(result.gradient_norm, 0.0);
  EXPECT_TRUE(same_bits(run.masters(), before));
}

}  // namespace
}  // namespace atl
