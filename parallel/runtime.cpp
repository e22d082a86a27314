/// Start and end of MPI and Kokkos. SPDX-License-Identifier: Apache-2.0
#include "parallel/runtime.hpp"

#include "core/kokkos_compat.hpp"
#include "parallel/communicator.hpp"
#include "parallel/mpi_error.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

namespace atl {

namespace {

std::string name_of_thread_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE:
      return "MPI_THREAD_MULTIPLE";
    default:
      return fmt::format("unknown ({})", level);
  }
}

/// Sets a variable that libraries read at their start, unless the user has.
void set_default(const char* name, const char* value) { setenv(name, value, 0); }

/// Threads that the user asked for in the environment.
std::optional<int> threads_from_environment() {
  for (const char* name : {"KOKKOS_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long threads = std::strtol(text, &end, 10);
    // OpenMP allows a list, one number a nesting level ("4,2"): the first counts here.
    if (end == text || (*end != '\0' && *end != ',') || threads < 1 || threads > 100000) {
      throw ConfigError(fmt::format(
          "environment variable {} = \"{}\" is not a number of threads; set 1 or more, or unset it", name, text));
    }
    return static_cast<int>(threads);
  }
  return std::nullopt;
}

}  // namespace

Runtime::Runtime(int& argc, char**& argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    // abort_job prints what is to be known; MPICH would add a line a rank.
    set_default("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1");
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &thread_level_) != MPI_SUCCESS) {
      throw Error(
          "MPI_Init_thread failed; is the program started by the mpiexec or srun of the MPI library it is linked to?");
    }
    owns_mpi_ = true;
  } else {
    MPI_Query_thread(&thread_level_);
  }
  try {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    ATOLL_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    ATOLL_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size_));
    place_ = find_node_place(MPI_COMM_WORLD);
    const Communicator world(MPI_COMM_WORLD);
    collectively(world, [&] {
      if (thread_level_ < MPI_THREAD_FUNNELED) {
        throw Error(
            fmt::format("MPI provides {} only, but atoll needs MPI_THREAD_FUNNELED; use an MPI library with thread "
                        "support, or start MPI with MPI_Init_thread ({})",
                        name_of_thread_level(thread_level_), mpi_version()));
      }
      threads_ = threads_from_environment().value_or(place_.cores_of_rank);
      start_kokkos();
    });
    decide_wait_mode(MPI_COMM_WORLD, place_, threads_);
  } catch (...) {  // the destructor will not run
    if (owns_kokkos_) Kokkos::finalize();
    if (owns_mpi_) MPI_Finalize();
    throw;
  }
}

void Runtime::start_kokkos() {
  if (Kokkos::is_initialized()) return;
  // Binding is left to the launcher, which alone knows the other ranks of the node. OpenMP libraries bind nothing by
  // default, and read OMP_PROC_BIND when they are loaded: setting it here would come too late.
  const int devices = number_of_devices();
  if (!kernels_on_host && devices < 1) {
    throw Error(fmt::format(
        "no device for Kokkos on the node of rank {}; ask the scheduler for one, or use a host build", rank_));
  }
  // A scheduler may show each rank its own device only, or all devices of the node to all ranks.
  initialize_kokkos(threads_, devices > 0 ? place_.local_rank % devices : -1);
  owns_kokkos_ = true;
}

Runtime::~Runtime() {
  if (owns_kokkos_) Kokkos::finalize();
  if (owns_mpi_) MPI_Finalize();
}

std::string Runtime::mpi_version() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string line;
  for (const char c : std::string(text, static_cast<std::size_t>(length))) {
    if (c == '\n' || c == '\0') break;  // MPICH goes on with its configuration, Open MPI counts the end of the text
    line += c == '\t' ? ' ' : c;
  }
  while (!line.empty() && (line.back() == ' ' || line.back() == ',')) line.pop_back();
  return line;
}

std::string Runtime::thread_level() const { return name_of_thread_level(thread_level_); }

void abort_job(const std::string& message, ExitCode code) {
  int initialized = 0, finalized = 0, rank = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  const bool in_mpi = initialized != 0 && finalized == 0;
  if (in_mpi) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fflush(stdout);
  // One write, so that lines of ranks that fail together do not mix.
  const std::string line = fmt::format("atoll: error on rank {}: {}\n", rank, message);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  if (in_mpi) {
    // The launcher stops forwarding output as soon as it hears of the end, so it gets the time to forward the line;
    // what the MPI library itself would add says nothing more.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    [[maybe_unused]] const std::FILE* const nowhere = std::freopen("/dev/null", "w", stderr);
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  }
  std::_Exit(static_cast<int>(code));
}

}  // namespace atl
