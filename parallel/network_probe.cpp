/// SPDX-License-Identifier: Apache-2.0
#include "parallel/network_probe.hpp"

#include "core/array.hpp"
#include "core/timer.hpp"
#include "parallel/mpi_error.hpp"
#include "parallel/mpi_transfer.hpp"
#include "parallel/shard_layout.hpp"
#include "parallel/waiting.hpp"

#include <algorithm>
#include <cmath>

namespace atl {

namespace {

constexpr std::size_t large = std::size_t{1} << 22;  // fp32 elements: 16 MiB

/// Seconds of one call of `work`, after a first one that is not counted. The number of repetitions follows from the
/// second: all ranks know its largest time, so they all repeat equally often.
template <class Work>
double seconds_of(const Communicator& comm, double seconds, const Work& work) {
  const auto timed = [&](std::int64_t times) {
    comm.barrier();
    const Stopwatch watch;
    for (std::int64_t i = 0; i < times; ++i) work();
    return comm.max(watch.seconds());
  };
  timed(1);
  const double once = std::max(timed(1), 1e-7);
  const auto times = static_cast<std::int64_t>(std::clamp(seconds / once, 1.0, 10000.0));
  return timed(times) / static_cast<double>(times);
}

double seconds_of_all_reduce(const Exec& exec, const Communicator& comm, Collectives& collectives,
                             const View1<float>& data, double seconds) {
  return seconds_of(comm, seconds,
                    [&] { collectives.all_reduce(data.data(), data.extent(0), Element::f32, exec).wait(); });
}

/// The lowest world rank on this rank's node.
int first_on_node(const Communicator& world) {
  MPI_Comm node = MPI_COMM_NULL;
  ATOLL_MPI(MPI_Comm_split_type(world.get(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  int first = 0;
  const int mine = world.rank();
  std::vector<MPI_Request> requests(1);
  ATOLL_MPI(MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, node, requests.data()));
  wait_all(requests);
  ATOLL_MPI(MPI_Comm_free(&node));
  return first;
}

/// Sends to the next rank of a ring while the one before sends to this one. Large messages go in several pieces at
/// once: a library may carry two large messages of opposite directions one after the other (UCX over TCP does), and
/// what training sends are many.
void shift(const Communicator& ring, const std::vector<char>& from, std::vector<char>& to, std::size_t bytes) {
  const int next = (ring.rank() + 1) % ring.size(), before = (ring.rank() + ring.size() - 1) % ring.size();
  const std::size_t pieces = bytes < 4096 ? 1 : 8;
  std::vector<MPI_Request> requests;
  for (std::size_t i = 0; i < pieces; ++i) {
    const Range piece = equal_part(bytes, pieces, i);
    start_receive(to.data() + piece.begin, piece.size(), MPI_BYTE, before, 0, ring.get(), requests);
    start_send(from.data() + piece.begin, piece.size(), MPI_BYTE, next, 0, ring.get(), requests);
  }
  wait_all(requests);
}

}  // namespace

NetworkRates probe_network(const Exec& exec, const Communicator& comm, Collectives& collectives, double seconds) {
  ATOLL_REQUIRE(collectives.size() >= 2 && collectives.size() == comm.size());
  NetworkRates rates;
  const auto ranks = static_cast<std::size_t>(comm.size());
  rates.latency = seconds_of_all_reduce(exec, comm, collectives, allocate<float>("atoll::probe", ranks), seconds / 3);
  const auto data = allocate<float>("atoll::probe", large);
  rates.bytes = large * sizeof(float);
  const std::uint64_t before = collectives.stats().bytes_sent;
  collectives.all_reduce(data.data(), large, Element::f32, exec).wait();
  const std::uint64_t sent = collectives.stats().bytes_sent - before;
  rates.bandwidth = static_cast<double>(sent) / seconds_of_all_reduce(exec, comm, collectives, data, seconds * 2 / 3);
  return rates;
}

NetworkLinks probe_links(const Communicator& world, std::size_t bytes, double seconds) {
  const Communicator node(world, first_on_node(world), world.rank());
  const Communicator column(world, node.rank(), world.rank());  // the ranks of the same number on every node
  NetworkLinks links;
  links.nodes = world.sum(std::int64_t{node.rank() == 0});
  links.ranks_per_node = static_cast<std::int64_t>(-world.max(-static_cast<double>(node.size())));
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes);
  constexpr std::size_t small = 8;
  // A fifth of the time for each of the five measurements; all of the world takes part in the counting of each.
  const auto measure = [&](const Communicator& ring, bool takes_part, std::size_t size) {
    const bool moves = takes_part && ring.size() > 1;
    return seconds_of(world, seconds / 5, [&] {
      if (moves) shift(ring, from, to, size);
    });
  };
  const auto rate = [&](double time) { return static_cast<double>(bytes) / time; };
  if (links.ranks_per_node > 1) links.intra = {measure(node, true, small), rate(measure(node, true, bytes))};
  if (links.nodes > 1) {
    const bool first = node.rank() == 0, all = node.rank() < static_cast<int>(links.ranks_per_node);
    links.inter.latency = measure(column, first, small);
    const double one = rate(measure(column, first, bytes));
    const double together = rate(measure(column, all, bytes)) * static_cast<double>(links.ranks_per_node);
    links.cards = std::clamp<std::int64_t>(std::llround(together / one), 1, links.ranks_per_node);
    links.inter.bandwidth = std::max(one, together / static_cast<double>(links.cards));
  }
  return links;
}

}  // namespace atl
