/// Which library communicates. SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives.hpp"

#include "core/random.hpp"
#include "parallel/collectives_backends.hpp"
#include "parallel/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unistd.h>

namespace atl {

namespace {

#ifdef ATOLL_HAVE_NCCL
constexpr bool have_nccl = true;
#else
constexpr bool have_nccl = false;
#endif

/// Pairs of ranks with one device: NCCL wants one each. Collective.
bool share_devices([[maybe_unused]] const Communicator& world) {
#ifdef ATOLL_HAVE_NCCL
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string device = std::string(host.data()) + " " + device_identity();
  // 53 bits, which a double holds.
  const double mine = static_cast<double>(random_key(device.size(), device) >> 11);
  std::vector<double> all = world.all_gather({mine});
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
#else
  return false;
#endif
}

}  // namespace

bool nccl_built_in() { return have_nccl; }

CollectivesOptions choose_backend(CollectivesOptions wanted, const Communicator& world) {
  if (wanted.backend == Backend::mpi) return wanted;
  std::string obstacle;
  if (kernels_on_host) {
    obstacle = "kernels of this build run on the host, and NCCL moves memory of devices only";
  } else if (!have_nccl) {
    obstacle = "this build has no NCCL";
  } else if (share_devices(world)) {
    obstacle = "several ranks share a device, and NCCL wants one each: start one rank a device";
  }
  if (!obstacle.empty() && wanted.backend == Backend::nccl)
    throw CollectiveError(fmt::format("parallel.backend = \"nccl\": {}; or give \"mpi\", or \"auto\"", obstacle),
                          ExitCode::usage);
  wanted.backend = obstacle.empty() ? Backend::nccl : Backend::mpi;
  return wanted;
}

std::unique_ptr<Collectives> make_collectives(const Communicator& comm, const CollectivesOptions& options) {
#ifdef ATOLL_HAVE_NCCL
  if (options.backend == Backend::nccl) return make_nccl_collectives(comm, options);
#endif
  ATOLL_REQUIRE(options.backend == Backend::mpi);
  return make_mpi_collectives(comm);
}

std::string describe(const CollectivesOptions& options) {
#ifdef ATOLL_HAVE_NCCL
  if (options.backend == Backend::nccl)
    return fmt::format("NCCL {}, sums in {}", nccl_version(),
                       options.sums == SumOrder::rank ? "rank order" : "the order of the library");
#endif
  ATOLL_REQUIRE(options.backend == Backend::mpi);
  if (kernels_on_host) return "MPI";
  return mpi_access() == MpiAccess::direct ? "MPI, which handles device memory" : "MPI, staged through host memory";
}

}  // namespace atl
