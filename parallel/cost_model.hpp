/// What a strategy costs on a machine, before anything runs: bytes, seconds, tokens per second.
/// SPDX-License-Identifier: Apache-2.0
///
/// Formulas for one rank, of those that have most to do; all ranks are alike and nobody waits for a slower one. What is
/// assumed beyond that stands beside each function. Bytes are exact: they are what CommunicationStats count.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace atl {

/// Startup time (seconds) and rate (bytes per second, each direction) of a message.
struct LinkRates {
  double latency = 0;
  double bandwidth = 0;
};

struct Machine {
  std::int64_t ranks_per_node = 1;
  LinkRates intra;              ///< what each rank sends inside its node while all others do the same
  LinkRates inter;              ///< what one network card sends
  std::int64_t cards = 1;       ///< network cards of a node; ranks are spread over them evenly
  double flops = 0;             ///< floating-point operations per second that a rank reaches in training
  double memory_bandwidth = 0;  ///< bytes per second of a rank's memory, read and written; 0: updates take no time
};

/// How collectives reach the network.
///   mpi : all-gather as a ring; reduce-scatter and both halves of an all-reduce as pairwise exchanges, whose parts
///         cross node boundaries from every rank of a node (parallel/collectives_mpi.cpp: sums in rank order). A ring
///         uses one card.
///   ring: rings for all, and as many of them in parallel as its ranks on a node have cards (NCCL, RCCL).
enum class Transport { mpi, ring };
std::string_view name_of(Transport transport);

/// G groups of R replicas of S shards; rank order is shard, then replica, then group.
struct GridShape {
  std::int64_t groups = 1, replicas = 1, shards = 1;
  std::int64_t group_ranks() const { return replicas * shards; }
  std::int64_t ranks() const { return groups * group_ranks(); }
  bool operator==(const GridShape&) const = default;
};

/// How one kind of communicator lies on the nodes. Its ranks are `stride` apart in the order of ranks.
struct Placement {
  std::int64_t ranks = 1;     ///< m
  std::int64_t per_node = 1;  ///< of its ranks on one node
  std::int64_t sharing = 1;   ///< communicators of this kind on one node, all at work at once
  bool spans_nodes() const { return ranks > per_node; }
};
/// Where the stride does not fit the nodes, the fewest ranks that any node has of a communicator: then most is sent
/// between nodes.
Placement place(const Machine& machine, std::int64_t ranks, std::int64_t stride);

/// Seconds of one collective over `bytes` in all (the gathered whole, the array that is reduced), latency included:
/// a ring takes (m-1) a + bytes t (m-1)/m, an all-reduce twice that. t is that of the slowest link on the way, a that
/// of a message between nodes where there are some.
double all_gather_seconds(const Machine& machine, Transport transport, const Placement& comm, double bytes);
double reduce_scatter_seconds(const Machine& machine, Transport transport, const Placement& comm, double bytes);
double all_reduce_seconds(const Machine& machine, Transport transport, const Placement& comm, double bytes);

/// One stage of a micro-batch: a unit is gathered (unless it is still there), computed with, and its gradient reduced.
struct Stage {
  std::uint64_t elements = 0;  ///< of the unit, without padding
  bool gathers = true, reduces = false;
  double flops = 0;  ///< of one rank
};

/// What a rank of any grid does.
struct Workload {
  std::vector<std::uint64_t> units;  ///< elements of each unit, without padding
  std::vector<Stage> stages;         ///< of one micro-batch, in the order they run
  std::int64_t micro_batches = 1;    ///< A, of a step
  std::int64_t tokens = 0;           ///< of one micro-batch of one rank
  std::int64_t every = 1;            ///< H
  int gathered_bytes = 4;            ///< b_p of an element
  int gradient_bytes = 4;            ///< b_g
  int averaged_bytes = 4;            ///< b_a
  int update_bytes = 32;             ///< read and written of a parameter by norm and optimizer (AdamW in fp32: 32)
  int prefetch = 0;                  ///< units gathered ahead of the one that computes; 0: nothing overlaps
};

/// Sent by one rank, by kind of communicator.
struct TrafficBytes {
  std::uint64_t shard = 0, replica = 0, federation = 0;
  std::uint64_t total() const { return shard + replica + federation; }
  bool operator==(const TrafficBytes&) const = default;
};
TrafficBytes step_bytes(const Workload& work, const GridShape& grid);         ///< of a local step
TrafficBytes aggregation_bytes(const Workload& work, const GridShape& grid);  ///< nothing for one group

struct Cost {
  TrafficBytes step, aggregation;
  double compute_seconds = 0;        ///< of a step: forward, backward, update
  double communication_seconds = 0;  ///< of a step, as if nothing were hidden
  double exposed_seconds = 0;        ///< of a step: what is not hidden behind the computation
  double step_seconds = 0;           ///< compute + exposed
  double aggregation_seconds = 0;    ///< never hidden
  double round_seconds = 0;          ///< H steps and an aggregation
  double tokens_per_second = 0;      ///< of all ranks
  double exposed_share = 0;          ///< of a round's time: exposed communication and aggregation
};

/// With prefetch d, a stage that gathers starts the next d gathers too, up to the first one of the next micro-batch,
/// and its reduction when it ends; in the last micro-batch the sum over the replicas follows it. Transfers run one
/// after another beside the computation, which slows neither; sums between nodes run beside those inside one. A stage
/// waits for its gather, and for the reduction before the last one, whose buffer it takes. Aggregations are never
/// hidden. Beside the arrays a step exchanges three small values (norm, loss, tokens), each in log2(m) messages.
Cost cost_of(const Machine& machine, Transport transport, const Workload& work, const GridShape& grid);

}  // namespace atl
