/// Runs a subcommand on all ranks of MPI. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/gemm.hpp"
#include "parallel/communicator.hpp"
#include "parallel/launcher.hpp"
#include "parallel/runtime.hpp"

#include <chrono>
#include <cstdio>
#include <functional>
#include <new>
#include <string>
#include <thread>

namespace atl {

/// What becomes of a launcher_mismatch: an error, or the business of the subcommand.
enum class Launch { must_match, may_differ };

/// Kokkos says which array did not fit; here is what to do about it.
inline std::string with_advice(const std::string& what) {
  if (what.find("failed to allocate memory") == std::string::npos && what != std::bad_alloc().what()) return what;
  return "not enough memory: smaller micro-batches (train.micro_batch, --micro-batch), shorter sequences, or more "
         "ranks "
         "need less; atoll inspect shows what takes it (" +
         what.substr(0, what.find('\n')) + ")";
}

/// Starts MPI and Kokkos, runs `work`, ends both. An error that all ranks share (CollectiveError, or GroupError of the
/// one group) is told by rank 0 and ends every rank in order with its exit code; any other ends the whole job at once,
/// that of a group among others by the group's first rank.
inline int on_all_ranks(const std::function<int(const Runtime&)>& work, Launch launch = Launch::must_match) {
  static char name[] = "atoll";
  static char* arguments[] = {name, nullptr};
  int argc = 1;
  char** argv = arguments;
  Runtime runtime(argc, argv);
  if (launch == Launch::must_match) {
    const std::string mismatch = launcher_mismatch(runtime);
    if (!mismatch.empty() && first_of_launcher()) std::fprintf(stderr, "atoll: error: %s\n", mismatch.c_str());
    if (!mismatch.empty()) return static_cast<int>(ExitCode::usage);
  }
  set_gemm_threads(runtime.threads_per_rank());
  const auto end_in_order = [&](const Error& error) {
    if (runtime.rank() == 0) std::fprintf(stderr, "atoll: error: %s\n", error.what());
    return static_cast<int>(error.code());
  };
  try {
    return work(runtime);
  } catch (const CollectiveError& error) {
    return end_in_order(error);
  } catch (const GroupError& error) {
    if (error.ranks() == runtime.size()) return end_in_order(error);
    // The first rank ends all of them; should it be gone, somebody must.
    if (!error.first()) std::this_thread::sleep_for(std::chrono::seconds(10));
    abort_job(error.what(), error.code());
  } catch (const Error& error) {
    abort_job(error.what(), error.code());
  } catch (const std::exception& error) {
    abort_job(with_advice(error.what()), ExitCode::failure);
  }
}

}  // namespace atl
