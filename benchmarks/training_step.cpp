/// Training steps of a Llama on random tokens: speed, share of the machine's GEMM peak, and where the time goes.
/// SPDX-License-Identifier: Apache-2.0
///
///     mpiexec -n 2 benchmark_training_step --model 20m --sequence 512 --micro-batch 4 --steps 7
///
/// The ranks are one fsdp group. Times are medians over the steps after the first two, on rank 0: wall-clock, and
/// processor time, which other programs on the same cores disturb less. The peak is the best of several large products,
/// measured before and after the steps. Kernels' shares come from Kokkos Tools callbacks, in processor time.
#include "model/training_step.hpp"

#include "benchmarks/common/gemm_peak.hpp"
#include "core/gemm.hpp"
#include "core/random.hpp"
#include "core/timer.hpp"
#include "model/initialise.hpp"
#include "model/step_work.hpp"
#include "parallel/runtime.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>

namespace atl {
namespace {

struct Arguments {
  std::string model = "20m";
  LlamaShape shape{4, 512, Recompute::none, 1024};
  int steps = 7;
  Precision precision = Precision::fp32;
  bool json = false;
};

LlamaConfig config_of(const std::string& name) {
  LlamaConfig config;
  if (name == "125m") return llama_preset(name);
  config.hidden_size = 512;
  config.intermediate_size = 1408;
  config.num_hidden_layers = 6;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  config.vocab_size = 4096;
  complete_and_check(config);
  return config;
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Processor time by label of kernel, copy or region; what runs inside another counts there.
struct Profile {
  std::map<std::string, double> seconds;
  std::string label;
  int depth = 0;
  double start = 0;
  std::size_t allocations = 0;
} profile;

void begin(const char* label) {
  if (profile.depth++ > 0) return;
  profile.label = label;
  profile.start = processor_seconds();
}
void end() {
  if (--profile.depth == 0) profile.seconds[profile.label] += processor_seconds() - profile.start;
}
void begin_kernel(const char* label, std::uint32_t, std::uint64_t* id) {
  *id = 0;
  begin(label);
}
void end_kernel(std::uint64_t) { end(); }
void begin_copy(Kokkos::Profiling::SpaceHandle, const char*, const void*, Kokkos::Profiling::SpaceHandle, const char*,
                const void*, std::uint64_t) {
  begin("copies");
}
void on_allocation(Kokkos::Profiling::SpaceHandle, const char*, const void*, std::uint64_t) { ++profile.allocations; }

void listen() {
  using namespace Kokkos::Tools::Experimental;
  set_begin_parallel_for_callback(begin_kernel);
  set_end_parallel_for_callback(end_kernel);
  set_begin_parallel_reduce_callback(begin_kernel);
  set_end_parallel_reduce_callback(end_kernel);
  set_begin_deep_copy_callback(begin_copy);
  set_end_deep_copy_callback(end);
  set_push_region_callback(begin);
  set_pop_region_callback(end);
  set_allocate_data_callback(on_allocation);
}

Batch random_batch(const LlamaConfig& config, const LlamaShape& shape, std::uint64_t step, int rank) {
  Batch batch;
  batch.sequences = shape.micro_batch;
  batch.length = shape.sequence_length;
  const std::uint64_t key = random_key(step, "benchmark") + static_cast<std::uint64_t>(rank);
  for (std::int64_t i = 0; i < batch.sequences * batch.length; ++i) {
    const std::uint64_t place = static_cast<std::uint64_t>(i), size = static_cast<std::uint64_t>(config.vocab_size);
    batch.tokens.push_back(static_cast<std::int32_t>(random_bits(key, place) % size));
    batch.targets.push_back(static_cast<std::int32_t>(random_bits(key, place + 1) % size));
  }
  return batch;
}

template <class T>
void run(const Arguments& arguments, const Runtime& runtime) {
  const Exec exec;
  const Communicator world(runtime.world());
  ParallelOptions parallel;
  parallel.strategy = Strategy::fsdp;
  const ProcessGrid grid(parallel, world.size(), world.rank());
  const Communicators communicators(runtime.world(), grid);
  const CollectivesOptions collectives = choose_backend(parallel.collectives, world);
  const auto shard = make_collectives(communicators.shard, collectives);
  const auto replica = make_collectives(communicators.replica, collectives);
  const LlamaConfig config = config_of(arguments.model);
  ShardedParameters<T> parameters(llama_units(config), *shard, *replica, AfterForward::reshard);
  initialise(exec, config, 1, parameters);
  Llama<T> model(config, arguments.shape, parameters);
  Optimizer<T> optimizer(OptimizerOptions(), parameters, communicators.shard);

  double peak = gemm_peak<T>(), loss = 0;
  std::vector<double> wall, processor;
  for (int step = 1; step <= arguments.steps; ++step) {
    const Batch batch = random_batch(config, arguments.shape, static_cast<std::uint64_t>(step), world.rank());
    if (step == 3) listen();
    const double before = processor_seconds();
    const Stopwatch watch;
    loss = training_step<T>(exec, model, optimizer, communicators.group, {batch}, 1e-4).loss;
    if (step < 3) continue;
    wall.push_back(watch.seconds());
    processor.push_back(processor_seconds() - before);
  }
  const Profile measured = profile;
  peak = std::max(peak, gemm_peak<T>());
  if (world.rank() != 0) return;

  StepWorkOptions options;
  options.shape = arguments.shape;
  double flops = 0;
  for (const Stage& stage : step_work(config, options).stages) flops += stage.flops;
  const double rate = flops * 1e-9 / median(processor), steps = static_cast<double>(wall.size());
  const double tokens = static_cast<double>(arguments.shape.micro_batch * arguments.shape.sequence_length);
  if (arguments.json) {
    nlohmann::ordered_json out{{"model", arguments.model},
                               {"precision", name_of(element_of<T>())},
                               {"parameters", parameter_count(config)},
                               {"sequence", arguments.shape.sequence_length},
                               {"ranks", world.size()},
                               {"loss", loss},
                               {"seconds", median(wall)},
                               {"processor_seconds", median(processor)},
                               {"tokens_per_second_of_rank", tokens / median(wall)},
                               {"gflops", rate},
                               {"gemm_peak_gflops", peak},
                               {"allocations_of_step", static_cast<double>(measured.allocations) / steps}};
    for (const auto& [label, seconds] : measured.seconds) out["kernels"][label] = seconds / steps;
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{} ({} parameters) in {}, {} x {} tokens a rank, {} ranks; products by {}\n", arguments.model,
             parameter_count(config), name_of(element_of<T>()), arguments.shape.micro_batch,
             arguments.shape.sequence_length, world.size(), gemm_library(element_of<T>()));
  fmt::print("step {:.3f} s, processor {:.3f} s; {:.0f} tokens/s of a rank; loss {:.5f}; {} allocations a step\n",
             median(wall), median(processor), tokens / median(wall), loss,
             static_cast<double>(measured.allocations) / steps);
  fmt::print("{:.1f} GFLOP/s of {:.1f} at best in a product: {:.0f} %\n", rate, peak, 100 * rate / peak);
  double total = 0, known = 0;
  for (const double seconds : processor) total += seconds;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [label, seconds] : measured.seconds) sorted.emplace_back(seconds, label), known += seconds;
  sorted.emplace_back(total - known, "everything else");
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto& [seconds, label] : sorted)
    fmt::print("{:>6.2f} % {:>9.2f} ms  {}\n", 100 * seconds / total, 1e3 * seconds / steps, label);
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::Arguments arguments;
  CLI::App app{"Training steps of a Llama: speed, share of the GEMM peak, and where the time goes"};
  app.add_option("--model", arguments.model, "Which")->check(CLI::IsMember({"20m", "125m"}))->capture_default_str();
  app.add_option("--sequence", arguments.shape.sequence_length, "Tokens of a sequence")->check(CLI::PositiveNumber);
  app.add_option("--micro-batch", arguments.shape.micro_batch, "Sequences a rank")->check(CLI::PositiveNumber);
  app.add_option("--steps", arguments.steps, "Two of them not counted")->check(CLI::Range(3, 1000000));
  app.add_option("--precision", arguments.precision, "fp32 or bf16")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, atl::Precision>{{"fp32", atl::Precision::fp32}, {"bf16", atl::Precision::bf16}}));
  app.add_flag("--json", arguments.json, "One object instead of a table");
  CLI11_PARSE(app, argc, argv);
  try {
    const atl::Runtime runtime(argc, argv);
    atl::set_gemm_threads(runtime.threads_per_rank());
    if (arguments.precision == atl::Precision::bf16)
      atl::run<atl::bf16>(arguments, runtime);
    else
      atl::run<float>(arguments, runtime);
  } catch (const std::exception& error) {
    atl::abort_job(error.what(), atl::ExitCode::failure);
  }
  return 0;
}
