/// MPI and Kokkos for the life of a program. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/errors.hpp"
#include "parallel/waiting.hpp"

#include <mpi.h>

#include <string>

namespace atl {

/// Starts MPI (one thread of a rank calls it: MPI_THREAD_FUNNELED) and Kokkos, and decides how ranks wait; the
/// destructor ends both, Kokkos first. What is already started by a program that embeds atoll is left to that program.
/// Everything that holds views or communicators must be destroyed before. An error that only some ranks met must not
/// unwind past this object, as MPI_Finalize would wait for the others: catch it inside and call abort_job.
class Runtime {
 public:
  /// Collective. Throws Error, on all ranks, if MPI lacks thread support or Kokkos does not start anywhere.
  Runtime(int& argc, char**& argv);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  MPI_Comm world() const { return MPI_COMM_WORLD; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return place_.local_rank; }        ///< among the ranks of this node
  int ranks_on_node() const { return place_.ranks_on_node; }  ///< ranks of the job on this node
  int cores_on_node() const { return place_.cores_on_node; }  ///< hardware threads that ranks of this node may use
  /// Threads that this rank may use in host kernels and in a GEMM library: KOKKOS_NUM_THREADS or OMP_NUM_THREADS if
  /// set, else the cores that the launcher bound to it, else an equal share of the node's; at least 1.
  int threads_per_rank() const { return threads_; }
  std::string mpi_version() const;   ///< name and version of the library, one line
  std::string thread_level() const;  ///< what MPI provides: "MPI_THREAD_FUNNELED"

 private:
  void start_kokkos();

  bool owns_mpi_ = false, owns_kokkos_ = false;
  int rank_ = 0, size_ = 1, threads_ = 1, thread_level_ = 0;
  NodePlace place_;
};

/// For an error in the middle, which other ranks do not know of: prints the message with this rank to stderr and ends
/// the whole job at once with that exit code. Where all ranks throw the same (CollectiveError), end in order instead.
[[noreturn]] void abort_job(const std::string& message, ExitCode code);

}  // namespace atl
