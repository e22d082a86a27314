/// Saving and loading against a bare write and read of the same bytes on the same disk, interleaved. SPDX-License-
/// Identifier: Apache-2.0
///
///   mpiexec -n 2 build/<preset>/bin/benchmark_checkpoint --folder /scratch/x --parameters 50000000 --repeats 10
///
/// Each repeat saves (without async) and writes and flushes as many bytes from as many ranks, a file each, in
/// alternating order; then it drops both from the page cache, restores, and reads the bare files. Prints bytes a second
/// of each, and the median of the ratios.
#include "core/timer.hpp"
#include "io/checkpoint/training_state.hpp"
#include "parallel/runtime.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <unistd.h>

namespace atl {

namespace {

struct Arguments {
  std::string folder = "benchmark_checkpoint";
  std::int64_t parameters = 50'000'000;
  int repeats = 6, groups = 1, writers = 0;
  bool warm = false;
};

/// Of two neighbours each, which were taken in opposite orders: the order alone can change a ratio by a factor of two.
std::vector<double> pair_means(const std::vector<double>& ratios) {
  std::vector<double> means;
  for (std::size_t i = 0; i + 1 < ratios.size(); i += 2) means.push_back(std::sqrt(ratios[i] * ratios[i + 1]));
  return means;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Out of the page cache, where the system can.
void drop(const std::string& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY);
    if (file < 0) continue;
    ::fsync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

int run(const Arguments& arguments, const Runtime& runtime) {
  const Exec exec;
  ParallelOptions parallel;
  if (arguments.groups > 1) parallel.strategy = Strategy::fl_fsdp, parallel.groups = arguments.groups;
  const ProcessGrid grid(parallel, runtime.size(), runtime.rank());
  const Communicators communicators(runtime.world(), grid);
  const Communicator& world = communicators.world;
  const auto shard = make_mpi_collectives(communicators.shard);
  const auto replica = make_mpi_collectives(communicators.replica);
  FederationLinks links(grid, communicators);
  std::vector<UnitSpec> units;
  for (int u = 0; u < 10; ++u)
    units.push_back({fmt::format("unit {}", u),
                     {{fmt::format("tensor {}", u), {static_cast<std::size_t>(arguments.parameters) / 10}}}});
  ShardedParameters<float> parameters(units, *shard, *replica, AfterForward::reshard);
  Optimizer<float> optimizer(OptimizerOptions{}, parameters, communicators.shard);
  Federation<float> federation(FederationOptions{}, 1, grid, communicators, links, *replica, parameters);
  for (std::size_t u = 0; u < units.size(); ++u) {
    auto& unit = parameters.unit(u);
    fill(exec, unit.master, 1.5f + static_cast<float>(u));
    fill(exec, unit.moment1, -0.25f);
    fill(exec, unit.moment2, 1e-3f);
  }
  exec.fence();
  const TrainingState<float> state{parameters, optimizer, federation};
  const CheckpointContents contents = checkpoint_contents(FederationOptions{}, OptimizerOptions::Kind::adamw,
                                                          grid.number_of_groups(), false, SavedMoments::all);
  CheckpointWriter writer({arguments.folder + "/checkpoints", arguments.writers, false, 1, 0}, grid, world);

  LlamaConfig model = llama_preset("tiny");
  const std::uint64_t mine = [&] {
    std::uint64_t bytes = 0;
    std::vector<std::size_t> sizes;
    for (std::size_t u = 0; u < units.size(); ++u) sizes.push_back(parameters.unit(u).layout.size());
    for (const auto& part : parts_of_rank(contents.arrays(), sizes, grid.groups(), grid.group(), grid.rank_in_group()))
      bytes += part.range.size() * sizeof(float);
    return bytes;
  }();
  const auto total = static_cast<double>(world.sum(static_cast<std::int64_t>(mine)));
  const std::string bare = arguments.folder + "/bare";
  if (world.rank() == 0) std::filesystem::create_directories(bare);
  // The same memory as the state's, so that pages are as warm.
  const std::vector<char> block(segment_bytes, 7);
  std::vector<char> target(mine, 1);  // as large as the state that is loaded
  // As checkpoints do, the new one is there before the old one goes: blocks that were just freed would be faster.
  const std::string bare_paths[] = {fmt::format("{}/{}a", bare, world.rank()),
                                    fmt::format("{}/{}b", bare, world.rank())};

  std::vector<double> saving, loading;
  for (int i = 0; i < arguments.repeats; ++i) {
    const std::string& bare_path = bare_paths[i % 2];
    std::optional<SaveReport> report;
    const auto save = [&] {
      CheckpointManifest head;
      head.configuration = {{"run", nlohmann::ordered_json::object()}, {"data", nlohmann::ordered_json::object()}};
      head.model = to_hugging_face_json(model);
      head.position.step = i + 1;
      save_state(exec, writer, state, head, {model, i + 1}, grid, communicators, contents);
      report = writer.finish();
      if (!report || !report->error.empty()) throw Error(report ? report->error : "no report");
      return report->seconds;  // until it is complete; then older ones are removed
    };
    const auto write = [&] {
      const Stopwatch watch;
      const int file = ::open(bare_path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
      for (std::uint64_t done = 0; done < mine;) {
        const ::ssize_t wrote = ::write(file, block.data(), std::min<std::uint64_t>(block.size(), mine - done));
        if (wrote <= 0) throw Error("the bare write failed");
        done += static_cast<std::uint64_t>(wrote);
      }
      if (::fsync(file) != 0) throw Error("the bare fsync failed");
      ::close(file);
      world.barrier();
      return watch.seconds();
    };
    // Neither is always the first after the other's removals, which the file system has done with before.
    double save_seconds = 0, write_seconds = 0;
    for (const bool saves : {i % 2 == 0, i % 2 != 0}) {
      if (world.rank() == 0) ::sync();
      world.barrier();
      (saves ? save_seconds : write_seconds) = saves ? save() : write();
    }
    std::filesystem::remove(bare_paths[(i + 1) % 2]);

    if (!arguments.warm && world.rank() == 0) drop(arguments.folder);
    world.barrier();
    Stopwatch watch;
    {
      CheckpointReader reader(report->path, world);
      restore_state(exec, reader, state, grid, communicators);
    }
    world.barrier();
    const double load_seconds = watch.seconds();
    watch = Stopwatch();
    const int file = ::open(bare_path.c_str(), O_RDONLY);
    for (std::uint64_t done = 0; done < mine;) {
      const ::ssize_t got = ::read(file, target.data() + done, std::min<std::uint64_t>(segment_bytes, mine - done));
      if (got <= 0) throw Error("the bare read failed");
      done += static_cast<std::uint64_t>(got);
    }
    ::close(file);
    world.barrier();
    const double read_seconds = watch.seconds();
    saving.push_back(write_seconds / save_seconds);
    loading.push_back(read_seconds / load_seconds);
    if (world.rank() == 0)
      fmt::print(
          "save {:7.1f} MB/s   bare write and fsync {:7.1f} MB/s   ratio {:.3f}   |   load {:7.1f} MB/s   bare "
          "read {:7.1f} MB/s   ratio {:.3f}\n",
          total / save_seconds / 1e6, total / write_seconds / 1e6, saving.back(), total / load_seconds / 1e6,
          total / read_seconds / 1e6, loading.back());
  }
  if (world.rank() == 0) {
    fmt::print("{:.1f} MB from {} ranks; medians: save {:.3f} of a bare write ({} pairs), load {:.3f} of a bare read\n",
               total / 1e6, world.size(), median(pair_means(saving)), saving.size() / 2, median(loading));
    std::filesystem::remove_all(arguments.folder);
  }
  return 0;
}

}  // namespace

}  // namespace atl

int main(int argc, char** argv) {
  atl::Arguments arguments;
  CLI::App program("Bandwidth of checkpoints against bare files");
  program.add_option("--folder", arguments.folder, "Made, and removed at the end");
  program.add_option("--parameters", arguments.parameters, "Of the model; 12 bytes each with AdamW's moments");
  program.add_option("--repeats", arguments.repeats, "An even number")->check(CLI::Range(2, 1000));
  program.add_option("--groups", arguments.groups, "Federation groups");
  program.add_option("--writers", arguments.writers, "Data files; 0: one a rank");
  program.add_flag("--warm", arguments.warm, "Leave files in the page cache before they are read");
  CLI11_PARSE(program, argc, argv);
  atl::Runtime runtime(argc, argv);
  try {
    return atl::run(arguments, runtime);
  } catch (const std::exception& error) {
    atl::abort_job(error.what(), atl::ExitCode::failure);
  }
}
