/// Measures the network between the ranks, by the collectives that training uses. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"
#include "parallel/communicator.hpp"

#include <cstddef>

namespace atl {

struct NetworkRates {
  double latency = 0;     ///< seconds of an all-reduce of one fp32 number a rank
  double bandwidth = 0;   ///< bytes that each rank sends per second in large all-reduces
  std::size_t bytes = 0;  ///< size of the array that was reduced for `bandwidth`
};

/// Takes about `seconds`, and more on a network so slow that a single large all-reduce lasts longer. Collective;
/// `collectives` are those of `comm`, of two ranks at least. The same result on all ranks: that of the slowest.
NetworkRates probe_network(const Exec& exec, const Communicator& comm, Collectives& collectives, double seconds);

}  // namespace atl
