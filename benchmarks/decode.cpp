/// Speed of decoding on one rank: tokens/s and bytes of weights and caches, beside the bandwidth of a copy.
/// SPDX-License-Identifier: Apache-2.0
///
///   build/<preset>/bin/benchmark_decode --preset 125m --batch 1 2 4 8 16
///
/// GB/s counts every weight that a step reads once (of the embedding a row a sequence), and the keys and values so far.
/// A copy counts what it reads and what it writes.
#include "core/gemm.hpp"
#include "model/decoder.hpp"
#include "model/initialise.hpp"
#include "parallel/communicator.hpp"
#include "parallel/runtime.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace atl {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Best of several runs, GB/s.
double copy_rate() {
  const std::size_t n = std::size_t(1) << 26;
  const auto from = allocate<float>("atoll::benchmark", n), to = allocate<float>("atoll::benchmark", n);
  double best = 1e30;
  for (int i = 0; i < 7; ++i) {
    const double start = now();
    Kokkos::deep_copy(to, from);
    Kokkos::fence();
    best = std::min(best, now() - start);
  }
  return 2.0 * static_cast<double>(n) * sizeof(float) / best * 1e-9;
}

void decode(const LlamaConfig& config, ShardedParameters<float>& parameters, std::int64_t batch, std::int64_t prompt,
            std::int64_t steps, double copy) {
  const Exec exec;
  LlamaDecoder<float> decoder(config, batch, prompt + steps + 1, parameters);
  const std::vector<std::int32_t> text(static_cast<std::size_t>(prompt), 1);
  double start = now();
  decoder.prefill(exec, std::vector<std::vector<std::int32_t>>(static_cast<std::size_t>(batch), text));
  exec.fence();
  const double prefill = now() - start;
  std::vector<std::int32_t> slots, tokens(static_cast<std::size_t>(batch), 2);
  for (std::int64_t i = 0; i < batch; ++i) slots.push_back(static_cast<std::int32_t>(i));
  double best = 1e30;
  for (std::int64_t i = 0; i < steps; ++i) {
    start = now();
    decoder.step(exec, slots, tokens);
    exec.fence();
    best = std::min(best, now() - start);
  }
  const std::int64_t table = config.tie_word_embeddings ? 0 : config.vocab_size * config.hidden_size;
  const double weights = static_cast<double>(parameter_count(config) - table);
  const double caches =
      static_cast<double>(2 * batch * (prompt + steps) * config.key_value_size() * config.num_hidden_layers);
  const double rate = (weights + caches) * sizeof(float) / best * 1e-9;
  fmt::print("{:>5} {:>7} {:>14.0f} {:>10.2f} {:>10.1f} {:>8.1f} {:>9.0f} %\n", batch, prompt,
             static_cast<double>(batch * prompt) / prefill, best * 1e3, static_cast<double>(batch) / best, rate,
             100 * rate / copy);
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  using namespace atl;
  CLI::App program("Speed of decoding");
  std::string preset = "125m";
  std::vector<std::int64_t> batches{1, 2, 4, 8, 16};
  std::int64_t prompt = 64, steps = 20;
  program.add_option("--preset", preset)->capture_default_str();
  program.add_option("--batch", batches)->capture_default_str();
  program.add_option("--prompt", prompt)->capture_default_str();
  program.add_option("--steps", steps)->capture_default_str();
  CLI11_PARSE(program, argc, argv);
  Runtime runtime(argc, argv);
  set_gemm_threads(runtime.threads_per_rank());
  const ProcessGrid grid(ParallelOptions{}, runtime.size(), runtime.rank());
  const Communicators communicators(runtime.world(), grid);
  const auto shard = make_mpi_collectives(communicators.shard), replica = make_mpi_collectives(communicators.replica);
  LlamaConfig config = llama_preset(preset);
  complete_and_check(config);
  ShardedParameters<float> parameters(llama_units(config), *shard, *replica, AfterForward::reshard);
  initialise(Exec(), config, 1, parameters);
  const double copy = copy_rate();
  fmt::print("{} ({} parameters), fp32, {}; copy {:.1f} GB/s\n", preset, parameter_count(config), Exec::name(), copy);
  fmt::print("batch  prompt  prompt tok/s    ms/step   tokens/s     GB/s    of a copy\n");
  for (const std::int64_t batch : batches) decode(config, parameters, batch, prompt, steps, copy);
  return 0;
}
