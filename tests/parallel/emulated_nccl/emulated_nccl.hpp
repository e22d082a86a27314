/// What tests do with the emulation of NCCL. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives_backends.hpp"
#include "parallel/communicator.hpp"

#include <functional>

namespace atl::emulation {

/// Collectives over the emulated NCCL.
std::unique_ptr<Collectives> make_collectives(const Communicator& comm, const CollectivesOptions& options = {});

/// What the emulation does wrong on this rank, and what it saw.
struct Events {
  int fail_transfer = 0;   ///< so many transfers from now one reports an error of another rank; 0: none
  int hang_transfer = 0;   ///< so many transfers from now one never ends; 0: none
  bool fail_init = false;  ///< ncclCommInitRankConfig fails later on
  int transfers = 0;       ///< groups that were run
  int together = 0;        ///< times that one began while one of another communicator was under way
  int aborted = 0;         ///< communicators
  int destroyed = 0;       ///< in order
};
Events& events();

}  // namespace atl::emulation
