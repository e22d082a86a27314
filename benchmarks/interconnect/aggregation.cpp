/// Federation::aggregate against a bare MPI_Allreduce of the same bytes. SPDX-License-Identifier: Apache-2.0
///
///     mpiexec -n 2 benchmark_aggregation result.json --megabytes 24 --shards 1 --repeats 7
///
/// Every S = --shards neighbouring ranks are a group with a model of that size, in units as a Llama has them. Both sum
/// P/S numbers of fp32 over the groups, in turns; the seconds are those of the slowest rank, medians of the repeats.
/// The aggregation also weighs, checks that all is finite, and measures the drift. MPI_Allreduce spins while it waits,
/// so give every rank a core.
#include "core/timer.hpp"
#include "io/data/text_files.hpp"
#include "model/initialise.hpp"
#include "model/parameters.hpp"
#include "parallel/federation.hpp"
#include "parallel/mpi_error.hpp"
#include "parallel/runtime.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace atl {
namespace {

struct Arguments {
  std::string output;
  std::int64_t megabytes = 24;
  int shards = 1, repeats = 7;
};

/// About `bytes` of fp32 in eight blocks.
LlamaConfig model_of(double bytes) {
  LlamaConfig config;
  config.num_hidden_layers = 8;
  config.num_attention_heads = config.num_key_value_heads = 8;
  config.vocab_size = 258;
  do {
    config.hidden_size += 64;
    config.intermediate_size = config.hidden_size * 8 / 3;
    config.head_dim = config.hidden_size / config.num_attention_heads;
  } while (4.0 * static_cast<double>(parameter_count(config)) < bytes);
  complete_and_check(config);
  return config;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// Of the slowest rank.
template <class Work>
double seconds_of(const Communicator& world, const Work& work) {
  world.barrier();
  const Stopwatch watch;
  work();
  return world.max(watch.seconds());
}

nlohmann::ordered_json rate(std::vector<double> seconds, double bytes) {
  const double middle = median(seconds);
  return {{"seconds", middle}, {"bytes_per_second", bytes / middle}, {"all_seconds", std::move(seconds)}};
}

void run(const Arguments& arguments, const Runtime& runtime) {
  const Exec exec;
  const Communicator world(runtime.world());
  ParallelOptions parallel;
  parallel.strategy = Strategy::fl_fsdp;
  parallel.shard_size = arguments.shards;
  const ProcessGrid grid(parallel, world.size(), world.rank());
  if (grid.number_of_groups() < 2)
    throw ConfigError(
        fmt::format("--shards {}: one group has nobody to average with; start at least {} ranks, or give "
                    "fewer shards",
                    arguments.shards, 2 * arguments.shards));
  const Communicators communicators(runtime.world(), grid);
  const auto shard = make_mpi_collectives(communicators.shard), replica = make_mpi_collectives(communicators.replica);
  FederationLinks links(grid, communicators);
  const LlamaConfig config = model_of(1e6 * static_cast<double>(arguments.megabytes));
  ShardedParameters<float> parameters(llama_units(config), *shard, *replica, AfterForward::reshard);
  initialise<float>(exec, config, 1, parameters);
  Federation<float> federation({}, std::numeric_limits<std::int64_t>::max(), grid, communicators, links, *replica,
                               parameters);
  std::size_t elements = 0;
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) elements += parameters.unit(u).layout.shard_size();
  if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw ConfigError(fmt::format("--megabytes {} are more than one MPI_Allreduce takes", arguments.megabytes));
  std::vector<float> values(elements, 0.5F);

  double sent = 0;
  const auto aggregate = [&] { sent = static_cast<double>(federation.aggregate(exec, parameters).bytes); };
  const auto all_reduce = [&] {
    ATOLL_MPI(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                            communicators.federation.get()));
  };
  std::vector<double> ours, bare;
  for (int i = 0; i <= arguments.repeats; ++i) {  // the first of each is not counted
    const double first = seconds_of(world, aggregate), second = seconds_of(world, all_reduce);
    if (i == 0) continue;
    ours.push_back(first);
    bare.push_back(second);
  }
  if (world.rank() != 0) return;
  nlohmann::ordered_json out;
  out["ranks"] = world.size();
  out["groups"] = grid.number_of_groups();
  out["shards"] = arguments.shards;
  out["megabytes_sent"] = sent / 1e6;  // by a rank, in either of them
  out["aggregation"] = rate(ours, sent);
  out["allreduce"] = rate(bare, sent);
  write_text_file(arguments.output, out.dump(2) + "\n");
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::Arguments arguments;
  CLI::App program("Federation::aggregate against a bare MPI_Allreduce of the same bytes");
  program.add_option("output", arguments.output, "Result, as JSON")->required();
  program.add_option("--megabytes", arguments.megabytes, "Of the model, in fp32")->check(CLI::Range(1, 1 << 20));
  program.add_option("--shards", arguments.shards, "Ranks of a group")->check(CLI::PositiveNumber);
  program.add_option("--repeats", arguments.repeats, "Measurements of each")->check(CLI::PositiveNumber);
  CLI11_PARSE(program, argc, argv);
  atl::Runtime runtime(argc, argv);
  try {
    atl::run(arguments, runtime);
  } catch (const atl::Error& error) {
    atl::abort_job(error.what(), error.code());
  }
  return 0;
}
