/// The one way to wait: test, make progress, sleep when cores are shared. SPDX-License-Identifier: Apache-2.0
///
/// MPI libraries spin inside blocking calls. With more ranks than cores a waiting rank then takes time from those that
/// compute, so blocking calls are not used: everything is started, and tested by the loop below.
#pragma once

#include "core/progress.hpp"

#include <mpi.h>

#include <vector>

namespace atl {

/// Where this rank runs.
struct NodePlace {
  int local_rank = 0;     ///< among the ranks of this node
  int ranks_on_node = 1;  ///< of the communicator that was asked
  int cores_on_node = 1;  ///< hardware threads that any of these ranks may use (union of their affinities)
  int cores_of_rank =
      1;  ///< this rank's share: those it is bound to, divided among the ranks that share them; at least 1
};

/// Finds the place of this rank on its node. Collective over `comm`.
NodePlace find_node_place(MPI_Comm comm);

enum class WaitMode {
  sleep,  ///< cores are shared: leave them to ranks that compute
  spin    ///< every rank has its cores: lowest latency
};

/// Decides for all waits that follow; the same on all ranks of a node: sleep when they run more threads than there are
/// cores. Before it is called, waits sleep, which is right everywhere, though slower. Collective over `comm`; Runtime
/// calls it.
void decide_wait_mode(MPI_Comm comm, const NodePlace& place, int threads_of_rank);

WaitMode wait_mode();
void set_wait_mode(WaitMode mode);

/// What a rank does between two tests of one wait: nothing at first, later yield or sleep about 50 microseconds.
class Pause {
 public:
  void operator()();

 private:
  int tests_ = 0;
};

/// Returns when `done()`, which tests and makes progress, is true. Whatever else is under way goes on meanwhile.
template <class Test>
void wait_until(Test&& done) {
  Pause pause;
  while (!done()) {
    make_progress();
    pause();
  }
}

/// Completes all requests (they become MPI_REQUEST_NULL). Throws Error if one failed.
void wait_all(std::vector<MPI_Request>& requests);

/// True when all requests are complete; makes progress.
bool test_all(std::vector<MPI_Request>& requests);

}  // namespace atl
