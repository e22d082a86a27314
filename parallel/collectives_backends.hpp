/// What collectives.cpp chooses from, besides MPI. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"

#include <string>

namespace atl {

/// Collectives over NCCL; ranks of `comm` have a device each. Only in builds with NCCL. Collective over `comm`.
/// An error of NCCL, or an operation that takes longer than options.time_out, is thrown from a wait or from the next
/// call, as an Error that ends the job; where neither is possible, in a destructor, it ends the job at once.
std::unique_ptr<Collectives> make_nccl_collectives(const Communicator& comm, const CollectivesOptions& options);

std::string nccl_version();     ///< "2.28.9"
std::string device_identity();  ///< of the device of this process among those of its node

}  // namespace atl
