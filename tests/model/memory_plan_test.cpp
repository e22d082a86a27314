/// The plan against what a run really allocates, array by array. SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.hpp"

#include "model/initialise.hpp"
#include "model/parameters.hpp"
#include "model/training_step.hpp"
#include "parallel/federation.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>

namespace atl {
namespace {

struct Usage {
  std::uint64_t arrays = 0, bytes = 0;
};

/// atoll's live arrays, by label, and the most bytes there were at once.
struct Heard {
  std::map<std::string, Usage> live;
  std::uint64_t bytes = 0, peak = 0;
};
Heard& heard() {
  static Heard record;
  return record;
}

/// Kokkos reports an empty array with the size of the header that it puts before every array, 128 bytes. The only ones
/// here are the buffers for gathered units where nothing is gathered.
bool counts(const std::string& label, std::uint64_t bytes) {
  const bool empty = bytes == 0 || (label == "atoll::gathered" && bytes <= 128);
  return label.rfind("atoll::", 0) == 0 && !empty;
}
void on_allocation(Kokkos::Profiling::SpaceHandle, const char* label, const void*, std::uint64_t bytes) {
  if (!counts(label, bytes)) return;
  Usage& usage = heard().live[label];
  ++usage.arrays;
  usage.bytes += bytes;
  heard().bytes += bytes;
  heard().peak = std::max(heard().peak, heard().bytes);
}
void on_deallocation(Kokkos::Profiling::SpaceHandle, const char* label, const void*, std::uint64_t bytes) {
  if (!counts(label, bytes)) return;
  Usage& usage = heard().live[label];
  --usage.arrays;
  usage.bytes -= bytes;
  heard().bytes -= bytes;
  if (usage.arrays == 0) heard().live.erase(label);
}

class Listener {
 public:
  Listener() {
    heard() = {};
    Kokkos::Tools::Experimental::set_allocate_data_callback(on_allocation);
    Kokkos::Tools::Experimental::set_deallocate_data_callback(on_deallocation);
  }
  ~Listener() {
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    Kokkos::Tools::Experimental::set_deallocate_data_callback(nullptr);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
};

LlamaConfig small(bool tied) {
  LlamaConfig config;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.vocab_size = 61;
  config.tie_word_embeddings = tied;
  complete_and_check(config);
  return config;
}

/// Items of the plan by label: several collectives have a workspace of one name.
std::map<std::string, Usage> by_label(const MemoryPlan& plan) {
  std::map<std::string, Usage> labels;
  for (const auto& item : plan.items) {
    labels[item.label].arrays += item.arrays;
    labels[item.label].bytes += item.bytes;
  }
  return labels;
}

/// Kokkos rounds an array up to a multiple of 8 bytes.
void expect_equal(const Usage& real, const Usage& planned, const std::string& label) {
  EXPECT_EQ(real.arrays, planned.arrays) << label;
  EXPECT_GE(real.bytes, planned.bytes) << label;
  EXPECT_LT(real.bytes, planned.bytes + 8 * planned.arrays) << label;
}

template <class T>
void compare(const LlamaConfig& config, const ParallelOptions& parallel, Recompute recompute,
             OptimizerOptions::Kind kind, FederationOptions federated = {}, Wire wire = Wire::exact,
             Packing packing = Packing::concatenate) {
  const Communicator world(MPI_COMM_WORLD);
  const ProcessGrid grid(parallel, world.size(), world.rank());
  const Communicators communicators(MPI_COMM_WORLD, grid);
  MemoryOptions options;
  options.shape = {3, 17, recompute, 20, packing};
  options.group = grid.shape();
  options.groups = grid.number_of_groups();
  if (!grid.equal_groups()) options.unequal_groups = grid.groups();
  options.outer = outer_options(federated);
  options.after = parallel.reshard_after_forward ? AfterForward::reshard : AfterForward::keep;
  options.prefetch = parallel.prefetch;
  options.micro_batches = std::is_same_v<T, float> ? 1 : 2;
  options.precision = std::is_same_v<T, double>  ? Precision::fp64
                      : std::is_same_v<T, float> ? Precision::fp32
                                                 : Precision::bf16;
  options.wire = wire;
  options.optimizer = kind;
  options.nccl = false;
  options.staged = !kernels_on_host && mpi_access() == MpiAccess::staged;
  const MemoryPlan plan = plan_memory(config, options);
  SCOPED_TRACE(grid.describe());

  Batch batch;
  batch.sequences = options.shape.micro_batch;
  batch.length = options.shape.sequence_length;
  for (std::int64_t i = 0; i < batch.sequences * batch.length; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(7 * i % config.vocab_size));
    batch.targets.push_back(static_cast<std::int32_t>(11 * i % config.vocab_size));
    if (packing == Packing::documents) batch.document_starts.push_back(i % batch.length < 5 ? 0 : 5);
  }

  const Listener listener;
  const Exec exec;
  const auto shard = make_mpi_collectives(communicators.shard);
  const auto replica = make_mpi_collectives(communicators.replica);
  FederationLinks links(grid, communicators);
  ShardedParameters<T> parameters(llama_units(config), *shard, *replica, options.after, parallel.prefetch, wire);
  initialise(exec, config, 1, parameters);
  Llama<T> model(config, options.shape, parameters);
  OptimizerOptions update;
  update.kind = kind;
  Optimizer<T> optimizer(update, parameters, communicators.shard);
  Federation<T> federation(federated, 10, grid, communicators, links, *replica, parameters);
  const StepResult result =
      training_step<T>(exec, model, optimizer, communicators.group,
                       std::vector<Batch>(static_cast<std::size_t>(options.micro_batches), batch), 1e-3);
  federation.count_tokens(result.tokens);
  federation.aggregate(exec, parameters);
  {
    const TemporaryAverage<T> average(exec, federation, parameters);
    model.forward(exec, batch);
  }
  if (grid.group() == 0 && grid.replica() == 0)
    for (std::size_t u = 0; u < parameters.number_of_units(); ++u) parameters.gather_master(exec, u);

  // Rank 0 has the largest slices; the others may have less.
  const std::map<std::string, Usage> planned = by_label(plan);
  std::uint64_t arrays = 0;
  for (const auto& [label, real] : heard().live) {
    arrays += real.arrays;
    const auto found = planned.find(label);
    ASSERT_NE(found, planned.end()) << "the plan does not know " << label;
    if (world.rank() == 0)
      expect_equal(real, found->second, label);
    else
      EXPECT_LT(real.bytes, found->second.bytes + 8 * found->second.arrays) << label;
  }
  if (world.rank() != 0) return;
  for (const auto& [label, usage] : planned) EXPECT_TRUE(heard().live.count(label)) << label << " was never allocated";
  EXPECT_GE(heard().peak, plan.peak());
  EXPECT_LE(heard().peak, plan.peak() + 8 * (arrays + 8));
}

std::vector<ParallelOptions> grids(int ranks) {
  std::vector<ParallelOptions> all;
  const auto add = [&](Strategy strategy, int groups, int shard_size, bool reshard) {
    ParallelOptions options;
    options.strategy = strategy;
    options.groups = groups;
    options.shard_size = shard_size;
    options.reshard_after_forward = reshard;
    all.push_back(options);
  };
  add(Strategy::fsdp, 0, 0, true);
  for (const int prefetch : {0, 2, 3}) {
    all.push_back(all.front());
    all.back().prefetch = prefetch;
  }
  add(Strategy::fsdp, 0, 0, false);
  add(Strategy::ddp, 0, 0, true);
  if (ranks % 2 == 0) {
    add(Strategy::fl_fsdp, 2, 0, true);
    add(Strategy::hsdp, 0, ranks / 2, true);
  }
  if (ranks % 4 == 0) add(Strategy::fl_hsdp, 2, ranks / 4, false);
  return all;
}

TEST(MemoryPlan, IsWhatARunAllocates) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const ParallelOptions& grid : grids(ranks))
    for (const bool tied : {false, true}) {
      compare<float>(small(tied), grid, Recompute::none, OptimizerOptions::Kind::adamw);
      compare<double>(small(tied), grid, Recompute::block, OptimizerOptions::Kind::sgd);
      compare<bf16>(small(tied), grid, Recompute::none, OptimizerOptions::Kind::adamw, {},
                    tied ? Wire::exact : Wire::bf16);
    }
}

TEST(MemoryPlan, CountsDocumentStarts) {
  compare<float>(small(true), ParallelOptions{}, Recompute::block, OptimizerOptions::Kind::sgd, {}, Wire::exact,
                 Packing::documents);
}

// A block that is larger than the embedding: the federation's buffers grow on the way.
TEST(MemoryPlan, CountsBuffersThatGrow) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  LlamaConfig config = small(false);
  config.vocab_size = 5;
  for (const ParallelOptions& grid : grids(ranks))
    compare<float>(config, grid, Recompute::none, OptimizerOptions::Kind::adamw);
}

// What each outer optimizer keeps, also of one group alone; and the workspaces of unequal groups' pieces.
TEST(MemoryPlan, CountsOuterStateAndUnequalGroups) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  using Outer = FederationOptions::Outer;
  for (const Outer outer : {Outer::fedavg, Outer::sgd, Outer::adam, Outer::adagrad}) {
    FederationOptions options;
    options.outer = outer;
    if (outer == Outer::adam || outer == Outer::adagrad) options.lr = 0.1;
    ParallelOptions parallel;
    parallel.strategy = Strategy::fl_fsdp;
    parallel.groups = 1;
    compare<float>(small(true), parallel, Recompute::none, OptimizerOptions::Kind::sgd, options);
    if (ranks < 4) continue;
    parallel.groups = 0;
    parallel.group_sizes = {ranks - 1, 1};
    compare<float>(small(false), parallel, Recompute::none, OptimizerOptions::Kind::sgd, options);
    parallel.strategy = Strategy::fl_hsdp;
    parallel.shard_size = 1;
    parallel.group_sizes = {ranks - 2, 2};
    compare<double>(small(false), parallel, Recompute::none, OptimizerOptions::Kind::sgd, options);
  }
}

// Numbers that anyone can check by hand: Llama 3.1 8B on 64 ranks.
TEST(MemoryPlan, KnowsTheSizesOfLlama8B) {
  const LlamaConfig config = llama_preset("8b");
  MemoryOptions options;
  options.shape = {1, 8192, Recompute::block, 1024};
  options.group = {1, 64};
  const MemoryPlan plan = plan_memory(config, options);
  const std::uint64_t embedding = 128256ull * 4096, block = 218112000, head = embedding + 4096;
  EXPECT_EQ(embedding + 32 * block + head, 8030261248ull);
  EXPECT_EQ(plan.of(MemoryUse::master), 8030261248ull * 4 / 64);
  EXPECT_EQ(plan.of(MemoryUse::gradients), plan.of(MemoryUse::master));
  EXPECT_EQ(plan.of(MemoryUse::moments), 2 * plan.of(MemoryUse::master));
  EXPECT_EQ(plan.of(MemoryUse::gathered), 4 * (head + 2 * block));
  EXPECT_EQ(plan.of(MemoryUse::full_gradients), 4 * (head + 2 * block));
  EXPECT_EQ(plan.of(MemoryUse::receive), head / 64 * 63 * 4);
  EXPECT_EQ(plan.of(MemoryUse::logits), 1024ull * 128256 * 4);
  EXPECT_EQ(plan.of(MemoryUse::federation), 0u);
  EXPECT_EQ(plan.peak(), plan.total() + 4 * head);
  options.prefetch = 0;
  EXPECT_EQ(plan_memory(config, options).of(MemoryUse::gathered), 4 * (head + block));
  EXPECT_EQ(plan_memory(config, options).of(MemoryUse::full_gradients), 4 * (head + block));
  options.prefetch = 2;
  EXPECT_EQ(plan_memory(config, options).of(MemoryUse::gathered), 4 * (head + 3 * block));
}

// NCCL's buffers: 64 MiB for each other rank of a communicator, of up to 8; those of shards, replicas and groups.
TEST(MemoryPlan, EstimatesTheBuffersOfNccl) {
  const LlamaConfig config = llama_preset("tiny");
  MemoryOptions options;
  options.shape.sequence_length = 128;
  options.group = {2, 4};
  options.groups = 3;
  options.nccl = options.staged = false;
  const MemoryPlan without = plan_memory(config, options);
  EXPECT_EQ(without.of(MemoryUse::network), 0u);
  options.nccl = true;
  const MemoryPlan with = plan_memory(config, options);
  EXPECT_EQ(with.of(MemoryUse::network), (3u + 1 + 2) << 26);
  EXPECT_EQ(with.total(), without.total() + with.of(MemoryUse::network));
  options.group = {1, 1000};
  options.groups = 1;
  EXPECT_EQ(plan_memory(config, options).of(MemoryUse::network), 8u << 26);
  options.group = {1, 1};
  EXPECT_EQ(plan_memory(config, options).of(MemoryUse::network), 0u);
}

TEST(MemoryPlan, MomentsAndElementsFollowTheOptions) {
  const LlamaConfig config = llama_preset("tiny");
  MemoryOptions options;
  options.shape.sequence_length = 128;
  const MemoryPlan single = plan_memory(config, options);
  EXPECT_EQ(single.of(MemoryUse::gathered), 0u);        // one rank computes on its master weights
  EXPECT_EQ(single.of(MemoryUse::full_gradients), 0u);  // and its gradients are whole
  options.micro_batches = 2;
  EXPECT_GT(plan_memory(config, options).of(MemoryUse::full_gradients), 0u);
  options.micro_batches = 1;
  options.precision = Precision::fp64;
  EXPECT_EQ(plan_memory(config, options).of(MemoryUse::master), 2 * single.of(MemoryUse::master));
  options.precision = Precision::bf16;
  const MemoryPlan half = plan_memory(config, options);
  EXPECT_EQ(half.of(MemoryUse::master), single.of(MemoryUse::master));
  EXPECT_EQ(2 * half.of(MemoryUse::weights), half.of(MemoryUse::master));
  EXPECT_EQ(half.of(MemoryUse::gathered), 0u);  // one rank computes on its own weights
  // Logits of all 128 tokens in fp32, and their gradient in bf16; of more tokens fewer logits at once.
  EXPECT_EQ(2 * half.of(MemoryUse::logits), 3 * single.of(MemoryUse::logits));
  MemoryOptions longer = options;
  longer.shape.sequence_length = 1024;
  EXPECT_EQ(plan_memory(config, longer).of(MemoryUse::logits), 6 * single.of(MemoryUse::logits));
  options.optimizer = OptimizerOptions::Kind::sgd;
  EXPECT_EQ(plan_memory(config, options).of(MemoryUse::moments), 0u);
}

TEST(MemoryPlan, IsQuickOnAMillionRanks) {
  const auto start = std::chrono::steady_clock::now();
  ParallelOptions parallel;
  parallel.strategy = Strategy::fl_fsdp;
  parallel.group_size = 10;
  const ProcessGrid grid(parallel, 1000000, 0);
  MemoryOptions options;
  options.shape = {1, 8192, Recompute::block, 1024};
  options.group = grid.shape();
  options.groups = grid.number_of_groups();
  const LlamaConfig config = llama_preset("70b");
  EXPECT_GT(plan_memory(config, options).total(), 70553706496ull * 16 / 10);
  options.group = {1, 1000000};
  options.groups = 1;
  EXPECT_GT(plan_memory(config, options).total(), 0u);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 0.5);
}

}  // namespace
}  // namespace atl
