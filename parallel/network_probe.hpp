/// Measures the network between the ranks, by the collectives that training uses. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cost_model.hpp"

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

/// Messages inside nodes and between them, as the cost model counts them (parallel/cost_model.hpp). A rate is 0 where
/// it was not measured: intra where no node has two ranks, inter on a single node.
struct NetworkLinks {
  std::int64_t nodes = 1, ranks_per_node = 1;  ///< the smallest node's ranks
  LinkRates intra;                             ///< each rank sends, all at once, to its neighbour on the node
  LinkRates inter;                             ///< of a card: what a node sends with all of its ranks, over `cards`
  std::int64_t cards = 1;  ///< how often what one rank sends fits into what all ranks of a node send together
};

/// Neighbours in a ring exchange messages of 8 bytes, and of `bytes`. Takes about `seconds` (more where a single
/// message takes longer). Host memory on both sides. Collective; the same result on all ranks.
NetworkLinks probe_links(const Communicator& world, std::size_t bytes, double seconds);

}  // namespace atl
