/// SPDX-License-Identifier: Apache-2.0
#include "parallel/cost_model.hpp"

#include "core/errors.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace atl {

namespace {

using Bytes = std::uint64_t;

Bytes parts(Bytes whole, std::int64_t number) {
  const auto n = static_cast<Bytes>(number);
  return (whole + n - 1) / n;
}
Bytes others(std::int64_t ranks) { return static_cast<Bytes>(ranks - 1); }

double latency(const Machine& machine, const Placement& comm) {
  return comm.spans_nodes() ? machine.inter.latency : machine.intra.latency;
}

/// Seconds per byte on the slowest link of a ring in the order of nodes: it leaves each node once, by one card, or by
/// as many as it has ranks there. All communicators of a node share its cards.
double ring_inverse_bandwidth(const Machine& machine, Transport transport, const Placement& comm) {
  const double inside = comm.per_node > 1 ? 1 / machine.intra.bandwidth : 0;
  if (!comm.spans_nodes()) return inside;
  const auto cards = static_cast<double>(machine.cards);
  const double most = transport == Transport::ring ? std::min(cards, static_cast<double>(comm.per_node)) : 1;
  const double own = std::min(most, cards / static_cast<double>(comm.sharing));
  return std::max(inside, 1 / (own * machine.inter.bandwidth));
}

double ring_seconds(const Machine& machine, Transport transport, const Placement& comm, double bytes) {
  const auto m = static_cast<double>(comm.ranks);
  return (m - 1) * latency(machine, comm) + bytes * ring_inverse_bandwidth(machine, transport, comm) * (m - 1) / m;
}

/// Every rank sends a part to every other one: those of other nodes leave by the cards, from all ranks of the node.
double pairwise_seconds(const Machine& machine, const Placement& comm, double bytes) {
  const auto m = static_cast<double>(comm.ranks), p = static_cast<double>(comm.per_node);
  const double inside = p > 1 ? (p - 1) / m * bytes / machine.intra.bandwidth : 0;
  double between = 0;
  if (comm.spans_nodes()) {
    const double senders = p * static_cast<double>(comm.sharing);
    const double rate = std::min(static_cast<double>(machine.cards), senders) * machine.inter.bandwidth;
    between = senders * (m - p) / m * bytes / rate;
  }
  return (m - 1) * latency(machine, comm) + std::max(inside, between);
}

/// An exchange of small values: its messages go in log2(m) rounds.
double small_seconds(const Machine& machine, const Placement& comm) {
  return latency(machine, comm) * static_cast<double>(std::bit_width(static_cast<Bytes>(comm.ranks - 1)));
}

/// The stages of a step, one after another, and the transfers beside them.
class Timeline {
 public:
  Timeline(const Machine& machine, Transport transport, const Workload& work, const GridShape& grid) : work_(work) {
    const Placement shard = place(machine, grid.shards, 1), replica = place(machine, grid.replicas, grid.shards);
    one_wire_ = shard.spans_nodes() || !replica.spans_nodes();
    for (const Stage& stage : work.stages) {
      const auto owned = static_cast<double>(parts(stage.elements, grid.shards));
      const double whole = owned * static_cast<double>(grid.shards);
      Timed timed;
      timed.gathers = stage.gathers;
      timed.reduces = stage.reduces;
      timed.compute = stage.flops > 0 ? stage.flops / machine.flops : 0;
      if (stage.gathers) timed.gather = all_gather_seconds(machine, transport, shard, whole * work.gathered_bytes);
      if (stage.reduces) {
        timed.reduce = reduce_scatter_seconds(machine, transport, shard, whole * work.gradient_bytes);
        timed.sum = all_reduce_seconds(machine, transport, replica, owned * work.gradient_bytes);
      }
      compute_ += timed.compute;
      pass_ += timed.gather + timed.reduce;
      sums_ += timed.sum;
      stages_.push_back(timed);
    }
  }

  double compute() const { return compute_ * static_cast<double>(work_.micro_batches); }
  double communication() const { return pass_ * static_cast<double>(work_.micro_batches) + sums_; }

  /// Of all micro-batches. Many are alike: after a few, each adds as much as the one before.
  double seconds() const {
    constexpr std::int64_t few = 4;
    if (work_.prefetch == 0) return compute() + communication();
    if (work_.micro_batches <= few) return run(work_.micro_batches);
    const double last = run(few);
    return last + (last - run(few - 1)) * static_cast<double>(work_.micro_batches - few);
  }

 private:
  struct Timed {
    bool gathers = false, reduces = false;
    double gather = 0, compute = 0, reduce = 0, sum = 0;
  };

  double run(std::int64_t micro_batches) const {
    std::vector<double> gathers;  // of a micro-batch, in order; and the first of the next one
    for (const Timed& stage : stages_)
      if (stage.gathers) gathers.push_back(stage.gather);
    const std::size_t number = gathers.size(), ahead = static_cast<std::size_t>(work_.prefetch);
    double wire = 0, sums = 0, processor = 0, reduced = 0, reduced_before = 0;
    std::vector<double> gathered(number + 1, 0.0);
    std::size_t started = 0;
    for (std::int64_t batch = 0; batch < micro_batches; ++batch) {
      const bool last = batch + 1 == micro_batches;
      const auto start_gathers = [&](std::size_t until, double now) {
        for (; started < std::min(until, number + (last ? 0 : 1)); ++started)
          gathered[started] = wire = std::max(wire, now) + gathers[started % number];
      };
      std::size_t gather = 0;
      for (const Timed& stage : stages_) {
        double start = processor;
        if (stage.gathers) {
          start_gathers(gather + 1, start);
          start = std::max(start, gathered[gather++]);
          start_gathers(gather + ahead, start);
        }
        if (stage.reduces) start = std::max(start, reduced_before);
        processor = start + stage.compute;
        if (!stage.reduces) continue;
        wire = std::max(wire, processor) + stage.reduce;
        reduced_before = reduced;
        reduced = wire;
        if (!last) continue;
        double& link = one_wire_ ? wire : sums;
        link = std::max(link, reduced) + stage.sum;
      }
      if (started > number) gathered[0] = gathered[number];
      started = started > number ? 1 : 0;
    }
    return std::max({processor, wire, sums});
  }

  const Workload& work_;
  std::vector<Timed> stages_;
  bool one_wire_ = true;
  double compute_ = 0, pass_ = 0, sums_ = 0;
};

}  // namespace

std::string_view name_of(Transport transport) { return transport == Transport::mpi ? "mpi" : "ring"; }

Placement place(const Machine& machine, std::int64_t ranks, std::int64_t stride) {
  ATOLL_REQUIRE(ranks >= 1 && stride >= 1 && machine.ranks_per_node >= 1);
  const std::int64_t node = machine.ranks_per_node;
  Placement comm{ranks, 1, node};
  if (ranks == 1) return comm;
  if (stride == 1)
    comm.per_node = ranks <= node ? (node % ranks == 0 ? ranks : std::gcd(ranks, node)) : std::gcd(ranks, node);
  else
    comm.per_node = std::clamp<std::int64_t>(node / stride, 1, ranks);
  comm.sharing = std::max<std::int64_t>(1, node / comm.per_node);
  return comm;
}

double all_gather_seconds(const Machine& machine, Transport transport, const Placement& comm, double bytes) {
  return comm.ranks == 1 ? 0 : ring_seconds(machine, transport, comm, bytes);
}

double reduce_scatter_seconds(const Machine& machine, Transport transport, const Placement& comm, double bytes) {
  if (comm.ranks == 1) return 0;
  return transport == Transport::mpi ? pairwise_seconds(machine, comm, bytes)
                                     : ring_seconds(machine, transport, comm, bytes);
}

double all_reduce_seconds(const Machine& machine, Transport transport, const Placement& comm, double bytes) {
  return 2 * reduce_scatter_seconds(machine, transport, comm, bytes);
}

TrafficBytes step_bytes(const Workload& work, const GridShape& grid) {
  TrafficBytes bytes;
  for (const Stage& stage : work.stages) {
    const Bytes shard = parts(stage.elements, grid.shards);
    const auto moved =
        static_cast<Bytes>((stage.gathers ? work.gathered_bytes : 0) + (stage.reduces ? work.gradient_bytes : 0));
    bytes.shard += others(grid.shards) * shard * moved * static_cast<Bytes>(work.micro_batches);
  }
  for (const Bytes unit : work.units)
    bytes.replica += 2 * others(grid.replicas) * parts(parts(unit, grid.shards), grid.replicas) *
                     static_cast<Bytes>(work.gradient_bytes);
  return bytes;
}

TrafficBytes aggregation_bytes(const Workload& work, const GridShape& grid) {
  TrafficBytes bytes;
  if (grid.groups == 1) return bytes;
  const auto size = static_cast<Bytes>(work.averaged_bytes);
  for (const Bytes unit : work.units) {
    const Bytes slice = parts(parts(unit, grid.shards), grid.replicas);
    bytes.federation += 2 * others(grid.groups) * parts(slice, grid.groups) * size;
    bytes.replica += others(grid.replicas) * slice * size;
  }
  return bytes;
}

Cost cost_of(const Machine& machine, Transport transport, const Workload& work, const GridShape& grid) {
  Cost cost;
  cost.step = step_bytes(work, grid);
  cost.aggregation = aggregation_bytes(work, grid);
  const Placement shard = place(machine, grid.shards, 1), group = place(machine, grid.group_ranks(), 1);
  const Placement replica = place(machine, grid.replicas, grid.shards);
  const Placement federation = place(machine, grid.groups, grid.group_ranks());

  const Timeline timeline(machine, transport, work, grid);
  double update = 0;
  for (const Bytes unit : work.units) {
    const auto owned = static_cast<double>(parts(unit, grid.shards));
    const auto slice = static_cast<double>(parts(parts(unit, grid.shards), grid.replicas));
    if (machine.memory_bandwidth > 0) update += owned * work.update_bytes / machine.memory_bandwidth;
    if (grid.groups == 1) continue;
    cost.aggregation_seconds += all_reduce_seconds(machine, transport, federation, slice * work.averaged_bytes) +
                                all_gather_seconds(machine, transport, replica, owned * work.averaged_bytes);
  }
  const double small = small_seconds(machine, shard) + 2 * small_seconds(machine, group);
  cost.compute_seconds = timeline.compute() + update;
  cost.communication_seconds = timeline.communication() + small;
  cost.step_seconds = timeline.seconds() + update + small;
  cost.exposed_seconds = cost.step_seconds - cost.compute_seconds;
  const std::int64_t every = grid.groups == 1 ? 1 : work.every;
  cost.round_seconds = static_cast<double>(every) * cost.step_seconds + cost.aggregation_seconds;
  cost.tokens_per_second =
      static_cast<double>(grid.ranks() * work.tokens * work.micro_batches * every) / cost.round_seconds;
  cost.exposed_share =
      (static_cast<double>(every) * cost.exposed_seconds + cost.aggregation_seconds) / cost.round_seconds;
  return cost;
}

}  // namespace atl
