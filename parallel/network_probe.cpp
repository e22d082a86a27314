/// SPDX-License-Identifier: Apache-2.0
#include "parallel/network_probe.hpp"

#include "core/array.hpp"
#include "core/timer.hpp"

#include <algorithm>
#include <cmath>

namespace atl {

namespace {

constexpr std::size_t large = std::size_t{1} << 22;  // fp32 elements: 16 MiB

/// Seconds of one all-reduce, after a first one that is not counted. The number of repetitions follows from the second:
/// all ranks know its largest time, so they all repeat equally often.
double seconds_of_all_reduce(const Exec& exec, const Communicator& comm, Collectives& collectives,
                             const View1<float>& data, double seconds) {
  const auto timed = [&](std::int64_t times) {
    comm.barrier();
    const Stopwatch watch;
    for (std::int64_t i = 0; i < times; ++i)
      collectives.all_reduce(data.data(), data.extent(0), Element::f32, exec).wait();
    return comm.max(watch.seconds());
  };
  timed(1);
  const double once = std::max(timed(1), 1e-7);
  const auto times = static_cast<std::int64_t>(std::clamp(seconds / once, 1.0, 10000.0));
  return timed(times) / static_cast<double>(times);
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

}  // namespace atl
