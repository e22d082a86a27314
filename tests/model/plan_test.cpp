/// Tests of model/plan.hpp and model/step_work.hpp. SPDX-License-Identifier: Apache-2.0
#include "model/plan.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>

namespace atl {
namespace {

PlanOptions options_of(const std::string& model, std::int64_t ranks) {
  PlanOptions options;
  options.model = llama_preset(model);
  options.machine.ranks_per_node = 4;
  options.machine.intra = {2e-6, 200e9};
  options.machine.inter = {5e-6, 12.5e9};
  options.machine.cards = 4;
  options.machine.flops = 100e12;
  options.machine.memory_bandwidth = 1.5e12;
  options.transport = Transport::ring;
  options.ranks = ranks;
  options.memory = 64e9;
  options.work.shape = {2, 2048, Recompute::block, 1024};
  options.work.precision = Precision::bf16;
  options.work.every = 8;
  options.work.prefetch = 1;
  return options;
}

double flops_of(const Workload& work) {
  double sum = 0;
  for (const Stage& stage : work.stages) sum += stage.flops;
  return sum;
}

TEST(StepWork, CountsTheOperationsOfLlama8B) {
  const LlamaConfig config = llama_preset("8b");
  StepWorkOptions options;
  options.shape = {2, 2048, Recompute::none, 1024};
  const double n = 2 * 2048, layers = 32, c = 4096, v = 128256;
  const double norms = (2 * layers + 1) * c;
  const double matrices = 8030261248.0 - v * c - norms;
  const double attention = layers * 2 * 4096 * 2048;
  const double forward = n * (2 * matrices + attention);
  EXPECT_NEAR(flops_of(step_work(config, options)) / (3 * forward), 1, 1e-12);
  // Recomputed blocks: all but the head once more.
  options.shape.recompute = Recompute::block;
  EXPECT_NEAR(flops_of(step_work(config, options)) / (4 * forward - n * 2 * v * c), 1, 1e-12);
}

TEST(StepWork, FollowsTheTrainingStep) {
  const LlamaConfig tied = llama_preset("1b"), untied = llama_preset("8b");
  StepWorkOptions options;
  options.shape = {1, 128, Recompute::none, 1024};
  const auto gathered = [](const Workload& work) {
    std::uint64_t n = 0;
    for (const Stage& stage : work.stages) n += stage.gathers ? stage.elements : 0;
    return n;
  };
  const auto reduced = [](const Workload& work) {
    std::uint64_t n = 0;
    for (const Stage& stage : work.stages) n += stage.reduces ? stage.elements : 0;
    return n;
  };
  for (const LlamaConfig& config : {tied, untied}) {
    const auto total = static_cast<std::uint64_t>(parameter_count(config));
    const std::uint64_t table = step_work(config, options).units.front();
    const std::uint64_t head = config.tie_word_embeddings ? 0 : step_work(config, options).units.back();
    const std::uint64_t blocks = total - table - head;
    options.after = AfterForward::reshard;
    EXPECT_EQ(gathered(step_work(config, options)), (head == 0 ? 2 * table : table + head) + 2 * blocks);
    EXPECT_EQ(reduced(step_work(config, options)), total);
    options.after = AfterForward::keep;
    EXPECT_EQ(gathered(step_work(config, options)), (head == 0 ? 2 * table : table + head) + blocks);
    EXPECT_EQ(reduced(step_work(config, options)), total);
  }
  options.precision = Precision::bf16;
  const Workload half = step_work(untied, options);
  EXPECT_EQ(half.gathered_bytes, 2);
  EXPECT_EQ(half.gradient_bytes, 4);
  EXPECT_EQ(half.averaged_bytes, 4);
}

TEST(StepWork, TakesMeasuredSeconds) {
  Machine machine;
  machine.flops = 3e9;
  StepWorkOptions options;
  options.shape = {1, 128, Recompute::none, 1024};
  Workload work = step_work(llama_preset("tiny"), options);
  set_compute_seconds(work, machine, 0.25);
  EXPECT_NEAR(flops_of(work) / machine.flops, 0.25, 1e-12);
}

TEST(Plan, SizesFitNodes) {
  EXPECT_EQ(sensible_sizes(1, 4), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(sensible_sizes(16, 4), (std::vector<std::int64_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(sensible_sizes(24, 4),
            (std::vector<std::int64_t>{1, 2, 4, 8, 24}));  // 12 is less than twice 8, 3 no part of a node
  EXPECT_EQ(sensible_sizes(7, 1), (std::vector<std::int64_t>{1, 7}));
  EXPECT_LE(sensible_sizes(720720, 8).size(), 22u);
}

TEST(Plan, BestFirstAndAllThatIsKnown) {
  const PlanOptions options = options_of("8b", 64);
  const std::vector<PlanRow> rows = plan(options);
  bool fits = true;
  double rate = INFINITY;
  std::set<Strategy> seen;
  for (const PlanRow& row : rows) {
    EXPECT_EQ(row.grid.ranks(), 64);
    if (row.fits != fits) {
      EXPECT_TRUE(fits);  // those that do not fit come last
      fits = false;
      rate = INFINITY;
    }
    EXPECT_LE(row.cost.tokens_per_second, rate);
    rate = row.cost.tokens_per_second;
    EXPECT_EQ(row.fits, static_cast<double>(row.memory_bytes) <= options.memory);
    EXPECT_EQ(row.group_batch, 2 * row.grid.group_ranks());
    EXPECT_GT(row.versus_fsdp, 0);
    seen.insert(row.strategy);
  }
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_FALSE(fits);  // ddp holds 16 bytes for each of 8e9 parameters
}

TEST(Plan, ComparesWithTheSameShards) {
  PlanOptions options = options_of("8b", 64);
  options.machine.inter.bandwidth = 1e9;  // slow: nothing but averages should cross it
  const std::vector<PlanRow> rows = plan(options);
  const auto find = [&](Strategy strategy, const GridShape& grid) {
    for (const PlanRow& row : rows)
      if (row.strategy == strategy && row.grid == grid && row.after == AfterForward::reshard) return row;
    ADD_FAILURE();
    return PlanRow();
  };
  const PlanRow fsdp = find(Strategy::fsdp, {1, 1, 64}), hsdp = find(Strategy::hsdp, {1, 16, 4});
  const PlanRow fl = find(Strategy::fl_fsdp, {16, 1, 4}), both = find(Strategy::fl_hsdp, {4, 4, 4});
  EXPECT_EQ(fsdp.versus_fsdp, 1);
  EXPECT_EQ(hsdp.versus_hsdp, 1);
  EXPECT_DOUBLE_EQ(fl.versus_fsdp, fl.cost.tokens_per_second / fsdp.cost.tokens_per_second);
  EXPECT_DOUBLE_EQ(both.versus_hsdp, both.cost.tokens_per_second / hsdp.cost.tokens_per_second);
  EXPECT_GT(fl.versus_fsdp, 1);
  EXPECT_GT(both.versus_hsdp, 1);
}

TEST(Plan, OneRankComputesAlone) {
  const std::vector<PlanRow> rows = plan(options_of("tiny", 1));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].strategy, Strategy::fsdp);
  EXPECT_EQ(rows[0].cost.exposed_seconds, 0);
  EXPECT_EQ(rows[0].cost.step, TrafficBytes());
}

TEST(Plan, BatchesAndMeasuredSecondsFollowTheGroup) {
  PlanOptions options = options_of("tiny", 8);
  options.compute_seconds = 0.5;  // of a micro-batch of 2
  options.share = [](std::int64_t ranks) -> std::optional<PlanOptions::Share> {
    if (ranks > 4) return std::nullopt;
    return PlanOptions::Share{8 / ranks, 3, ranks == 2 ? 24 : 12};
  };
  const PlanRow row = plan_row(options, Strategy::fl_fsdp, {4, 1, 2}, AfterForward::reshard).value();
  EXPECT_EQ(row.micro_batch, 4);
  EXPECT_EQ(row.micro_batches, 3);
  EXPECT_EQ(row.group_batch, 4 * 3 * 2);
  EXPECT_NEAR(row.cost.compute_seconds, 3 * 1.0, 1e-3);  // and the update, a few microseconds
  EXPECT_DOUBLE_EQ(row.cost.tokens_per_second, 8 * 24 * 4 * 2048 / row.cost.round_seconds);
  // Half of the slots are empty: half the tokens in the same time.
  const PlanRow half = plan_row(options, Strategy::fl_fsdp, {2, 1, 4}, AfterForward::reshard).value();
  EXPECT_EQ(half.group_batch, 12);
  EXPECT_DOUBLE_EQ(half.cost.tokens_per_second, 8 * 12 * 2 * 2048 / half.cost.round_seconds);
  EXPECT_FALSE(plan_row(options, Strategy::fsdp, {1, 1, 8}, AfterForward::reshard));
  for (const PlanRow& each : plan(options)) EXPECT_LE(each.grid.group_ranks(), 4);
}

TEST(Plan, AMillionRanksTakeLessThanASecond) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<PlanRow> rows = plan(options_of("70b", 1000000));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_GT(rows.size(), 20u);
  EXPECT_LT(seconds.count(), 1);
}

}  // namespace
}  // namespace atl
