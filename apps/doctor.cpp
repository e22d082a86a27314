/// `atoll doctor`: what this build runs on, how fast it is here, and what to mend. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/parallel_command.hpp"
#include "core/timer.hpp"
#include "io/config/system_profile.hpp"
#include "io/data/text_files.hpp"
#include "io/report/progress.hpp"
#include "io/version.hpp"
#include "parallel/network_probe.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <unistd.h>
#include <vector>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;

constexpr double seconds_of_a_test = 0.25;

/// Slowest, mean and fastest rank.
struct Spread {
  double least = 0, mean = 0, most = 0;
};

Spread over_ranks(const Communicator& world, double mine) {
  const std::vector<double> all = world.all_gather({mine});
  Spread spread{all[0], 0, all[0]};
  for (const double value : all) {
    spread.least = std::min(spread.least, value);
    spread.most = std::max(spread.most, value);
    spread.mean += value / static_cast<double>(all.size());
  }
  return spread;
}

/// Times per second that `work` runs while all ranks do the same. It runs once before.
template <class Work>
Spread rate(const Exec& exec, const Communicator& world, const Work& work) {
  work();
  exec.fence();
  world.barrier();
  const Stopwatch watch;
  int times = 0;
  do {
    work();
    exec.fence();
    ++times;
  } while (watch.seconds() < seconds_of_a_test);
  return over_ranks(world, times / watch.seconds());
}

struct GemmRate {
  Element element;
  std::size_t m, n, k;
  Spread gflops;
};

template <class T>
GemmRate measure_gemm(const Exec& exec, const Communicator& world, std::size_t m, std::size_t n, std::size_t k) {
  const auto a = allocate<T>("atoll::doctor_a", m, k), b = allocate<T>("atoll::doctor_b", n, k);
  const auto c = allocate<T>("atoll::doctor_c", m, n);
  // Ones: zeros and denormals may be quicker or slower than what training multiplies.
  fill(exec, flat(a), T(1));
  fill(exec, flat(b), T(1));
  // As in a linear layer: x W^T.
  Spread spread = rate(exec, world, [&] { gemm<T>(exec, Transpose::no, Transpose::yes, a, b, 0, c); });
  const double gflop = 2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return {element_of<T>(), m, n, k, {spread.least * gflop, spread.mean * gflop, spread.most * gflop}};
}

/// Bytes per second that a copy inside the kernels' memory reads and writes.
Spread measure_copy(const Exec& exec, const Communicator& world) {
  constexpr std::size_t n = std::size_t{1} << 23;  // 32 MiB: no cache
  const auto from = allocate<float>("atoll::doctor_from", n), to = allocate<float>("atoll::doctor_to", n);
  const Spread spread = rate(exec, world, [&] { Kokkos::deep_copy(exec, to, from); });
  constexpr double bytes = 2.0 * sizeof(float) * n;
  return {spread.least * bytes, spread.mean * bytes, spread.most * bytes};
}

struct Findings {
  CollectivesOptions communication;
  std::optional<NetworkLinks> links;
  int ranks = 1, nodes = 1;
  Spread ranks_of_node, cores_of_node, threads_of_rank;
  std::vector<GemmRate> gemm;
  Spread copy;
  std::optional<NetworkRates> network;
  std::vector<std::string> warnings, notes;
};

Findings measure(const Runtime& runtime, bool links) {
  const Exec exec;
  const Communicator world(runtime.world());
  Findings found;
  found.communication = choose_backend({.backend = Backend::automatic}, world);
  found.ranks = world.size();
  found.nodes = static_cast<int>(world.sum(std::int64_t{runtime.local_rank() == 0}));
  found.ranks_of_node = over_ranks(world, runtime.ranks_on_node());
  found.cores_of_node = over_ranks(world, runtime.cores_on_node());
  found.threads_of_rank = over_ranks(world, runtime.threads_per_rank());
  // A product of a large layer; and one of few tokens with a weight matrix, as in a small micro-batch.
  found.gemm.push_back(measure_gemm<float>(exec, world, 1024, 1024, 1024));
  found.gemm.push_back(measure_gemm<float>(exec, world, 32, 1024, 1024));
  found.gemm.push_back(measure_gemm<double>(exec, world, 1024, 1024, 1024));
  found.gemm.push_back(measure_gemm<double>(exec, world, 32, 1024, 1024));
  found.gemm.push_back(measure_gemm<bf16>(exec, world, 1024, 1024, 1024));
  found.gemm.push_back(measure_gemm<bf16>(exec, world, 32, 1024, 1024));
  found.copy = measure_copy(exec, world);
  if (world.size() > 1) {
    const auto collectives = make_collectives(world, found.communication);
    found.network = probe_network(exec, world, *collectives, 1.0);
    if (links) found.links = probe_links(world, std::size_t{1} << 22, 5.0);
  }
  return found;
}

/// Adds what should be mended, each with its fix, and what is good to know.
void judge(const Runtime& runtime, Findings& found) {
  const auto warn = [&](std::string text) {
    if (!text.empty()) found.warnings.push_back(std::move(text));
  };
  const int ranks = runtime.ranks_on_node(), cores = runtime.cores_on_node(), threads = runtime.threads_per_rank();
  const std::string mismatch = launcher_mismatch(runtime);
  warn(mismatch);
  if (mismatch.empty() && allocated_tasks() > found.ranks)
    warn(fmt::format("Slurm allocated {} tasks, but {} run; start the program by srun or mpiexec to use them all",
                     allocated_tasks(), found.ranks));
#ifndef __OPTIMIZE__
  warn("this build is not optimised, many times slower than it could be; configure with -DCMAKE_BUILD_TYPE=Release");
#endif
  for (const Element element : {Element::f32, Element::f64}) {
    const std::string text = gemm_warning(element);
    if (!text.empty()) warn(fmt::format("{} matrix products: {}", name_of(element), text));
  }
  if (gemm_warning(Element::f32).empty() && !gemm_warning(Element::bf16).empty())
    found.notes.push_back(gemm_warning(Element::bf16));
  if (!kernels_on_host) return;
  if (ranks > cores)
    warn(fmt::format("{} ranks share {} cores of a node, so that each waits for the others; start {} ranks a node",
                     ranks, cores, cores));
  else if (threads * ranks > cores)
    warn(fmt::format("{} ranks of {} threads share {} cores of a node; set OMP_NUM_THREADS={}", ranks, threads, cores,
                     std::max(1, cores / ranks)));
  const bool threaded = Exec().concurrency() > 1 || std::string(Exec::name()) != "Serial";
  if (!threaded) {
    found.notes.push_back(fmt::format(
        "Kokkos has no threads in this build, which is fine: start a rank for each core (mpiexec -n {})", cores));
    if (ranks < cores && found.nodes == 1 && ranks > 1)
      found.notes.push_back(fmt::format("{} of {} cores are used for kernels", ranks, cores));
  }
  // The reference BLAS reaches 2 to 5 GFLOP/s on a core, a tuned one 20 and more. A known one may be slow for a moment.
  for (const GemmRate& gemm : found.gemm) {
    const std::string library = gemm_library(gemm.element);
    const bool known = library.find("oneDNN") != std::string::npos || library.find("OpenBLAS") != std::string::npos;
    if (!known && ranks <= cores && gemm.m == 1024 && gemm.gflops.most < 6.0)
      warn(
          fmt::format("{} matrix products reach {:.1f} GFLOP/s only; is it the reference BLAS? Install a tuned one "
                      "(Debian: libopenblas-dev), or build with oneDNN",
                      name_of(gemm.element), gemm.gflops.most));
  }
}

/// What was measured, as `atoll plan` reads it.
SystemProfile profile_of(const Findings& found) {
  const NetworkLinks& links = *found.links;
  SystemProfile profile;
  profile.name = fmt::format("measured on {} node{}", found.nodes, found.nodes == 1 ? "" : "s");
  profile.ranks_per_node = links.ranks_per_node;
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)), page = static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (kernels_on_host) profile.memory = pages * page / static_cast<double>(links.ranks_per_node);
  profile.memory_bandwidth = found.copy.least;
  for (const GemmRate& gemm : found.gemm)
    if (gemm.m == 1024) {
      double& peak = gemm.element == Element::f32   ? profile.fp32
                     : gemm.element == Element::f64 ? profile.fp64
                                                    : profile.bf16;
      peak = gemm.gflops.least * 1e9;
    }
  profile.efficiency = 0.7;  // of a large product: attention, norms and small products take the rest
  // What is not there was not measured, and is not used either: no rank has a neighbour on its node, or there is one
  // node only.
  profile.intra = links.intra.bandwidth > 0 ? links.intra : links.inter;
  profile.inter = links.inter.bandwidth > 0 ? links.inter : links.intra;
  profile.cards = links.cards;
  return profile;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

std::string text_of(const Spread& spread, double unit = 1, int digits = 0) {
  const std::string least = fmt::format("{:.{}f}", spread.least / unit, digits);
  const std::string most = fmt::format("{:.{}f}", spread.most / unit, digits);
  return least == most ? least : least + " to " + most;
}

std::string waiting() {
  return wait_mode() == WaitMode::spin ? "spin (every thread has a core)" : "sleep (cores are shared)";
}

void print(const Runtime& runtime, const Findings& found) {
  const Json known = versions(runtime.mpi_version());
  const auto line = [](const char* what, const std::string& text) { fmt::print("{:<18}{}\n", what, text); };
  line("atoll", fmt::format("{}{}", version(), git_revision().empty() ? "" : ", git " + git_revision()));
  line("compiler", compiler());
  line("Kokkos",
       fmt::format("{} on {}, concurrency {}", known["kokkos"].get<std::string>(), Exec::name(), Exec().concurrency()));
  line("MPI", fmt::format("{}, {}", runtime.mpi_version(), runtime.thread_level()));
  line("HDF5", fmt::format("{}, {}", known["hdf5"].get<std::string>(), hdf5_is_parallel() ? "parallel" : "serial"));
  line("communication", describe(found.communication));
  line("ranks", fmt::format("{} on {} node{}, {} a node; {} cores a node", found.ranks, found.nodes,
                            found.nodes == 1 ? "" : "s", text_of(found.ranks_of_node), text_of(found.cores_of_node)));
  line("threads of a rank", text_of(found.threads_of_rank));
  line("waiting", waiting());
  line("fp32 products", known["gemm_fp32"].get<std::string>());
  line("fp64 products", known["gemm_fp64"].get<std::string>());
  line("bf16 products", known["gemm_bf16"].get<std::string>());
  fmt::print("\nmeasured, all ranks at once, each:\n");
  for (const GemmRate& gemm : found.gemm)
    line(fmt::format("  GEMM {}", name_of(gemm.element)).c_str(),
         fmt::format("{:>4} x {} x {}: {} GFLOP/s", gemm.m, gemm.n, gemm.k, text_of(gemm.gflops, 1, 1)));
  line("  memory copy", fmt::format("{} GB/s (read and written)", text_of(found.copy, 1e9, 1)));
  if (found.network)
    line("  all-reduce",
         fmt::format("{:.1f} us for one number; {}/s sent by each rank for {} MiB", found.network->latency * 1e6,
                     human_count(found.network->bandwidth, "B"), found.network->bytes >> 20));
  else
    line("  all-reduce", "not measured: one rank only");
  const auto link = [&](const char* what, const LinkRates& rates, const std::string& more) {
    if (rates.bandwidth > 0)
      line(what, fmt::format("{:.1f} us, {}/s{}", rates.latency * 1e6, human_count(rates.bandwidth, "B"), more));
  };
  if (found.links) {
    link("  inside a node", found.links->intra, " sent by each rank");
    link("  between nodes", found.links->inter, fmt::format(" x {}", found.links->cards));
  }
  fmt::print("\n");
  for (const std::string& note : found.notes) fmt::print("note: {}\n", note);
  for (const std::string& warning : found.warnings) fmt::print("warning: {}\n", warning);
  if (found.warnings.empty()) fmt::print("Nothing to mend.\n");
}

Json to_json(const Spread& spread) { return {{"min", spread.least}, {"mean", spread.mean}, {"max", spread.most}}; }

void print_json(const Runtime& runtime, const Findings& found) {
  Json out = versions(runtime.mpi_version());
  out["git_revision"] = git_revision();
  out["compiler"] = compiler();
  out["concurrency"] = Exec().concurrency();
  out["mpi_thread_level"] = runtime.thread_level();
  out["hdf5_parallel"] = hdf5_is_parallel();
  out["communication"] = describe(found.communication);
  out["ranks"] = found.ranks;
  out["nodes"] = found.nodes;
  out["ranks_per_node"] = to_json(found.ranks_of_node);
  out["cores_per_node"] = to_json(found.cores_of_node);
  out["threads_per_rank"] = to_json(found.threads_of_rank);
  out["waiting"] = wait_mode() == WaitMode::spin ? "spin" : "sleep";
  out["gemm_gflops"] = Json::array();
  for (const GemmRate& gemm : found.gemm) {
    Json entry{{"element", name_of(gemm.element)}, {"m", gemm.m}, {"n", gemm.n}, {"k", gemm.k}};
    entry.update(to_json(gemm.gflops));
    out["gemm_gflops"].push_back(std::move(entry));
  }
  out["copy_bytes_per_second"] = to_json(found.copy);
  if (found.network)
    out["all_reduce"] = {{"latency_seconds", found.network->latency},
                         {"bytes_per_second", found.network->bandwidth},
                         {"array_bytes", found.network->bytes}};
  if (found.links) {
    const auto link = [](const LinkRates& rates) {
      return Json{{"latency_seconds", rates.latency}, {"bytes_per_second", rates.bandwidth}};
    };
    out["links"] = {
        {"intra", link(found.links->intra)}, {"inter", link(found.links->inter)}, {"cards", found.links->cards}};
  }
  out["notes"] = found.notes;
  out["warnings"] = found.warnings;
  fmt::print("{}\n", out.dump(2));
}

}  // namespace

void add_doctor(CLI::App& program, Command& chosen) {
  struct Arguments {
    bool json = false;
    std::string network;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("doctor", "Check the installation: versions, speed, and what to mend");
  command->footer(
      "Run it as you would train, so that it sees the same: atoll doctor, mpiexec -n 4 atoll doctor, srun atoll "
      "doctor.\n"
      "Takes a few seconds.");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->add_option("--network", arguments->network,
                      "Also measure messages inside nodes and between them, and write all as a profile for atoll plan "
                      "--system FILE (two ranks at least, on two nodes or more to know both)");
  command->callback([arguments, &chosen] {
    chosen = [arguments] {
      return on_all_ranks(
          [&](const Runtime& runtime) {
            const bool links = !arguments->network.empty();
            // With a launcher that does not match, every process is a rank 0.
            const bool speaks = runtime.rank() == 0 && first_of_launcher();
            {
              const Communicator world(runtime.world());
              collectively(world, [&] {
                if (links && world.size() < 2)
                  throw ConfigError("--network: one rank has no network; start two or more, as in mpiexec -n 4");
                if (links && speaks) write_text_file(arguments->network, "");  // before the time is spent
              });
            }
            Findings found = measure(runtime, links);
            judge(runtime, found);
            if (speaks && links) {
              write_text_file(arguments->network, show(profile_of(found)));
              found.notes.push_back(fmt::format("profile written: atoll plan --system {}", arguments->network));
            }
            if (speaks) arguments->json ? print_json(runtime, found) : print(runtime, found);
            return static_cast<int>(ExitCode::done);
          },
          Launch::may_differ);
    };
  });
}

}  // namespace atl
