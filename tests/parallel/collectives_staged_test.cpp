/// Collectives over MPI by copies in host memory, as where MPI cannot reach a device's. SPDX-License-Identifier:
/// Apache-2.0
#include "tests/parallel/collectives_suite.hpp"

namespace atl {

std::unique_ptr<Collectives> make_under_test(const Communicator& comm) {
  return make_mpi_collectives(comm, MpiAccess::staged);
}

}  // namespace atl
