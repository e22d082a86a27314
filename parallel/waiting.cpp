/// Wait policy, and who shares which cores. SPDX-License-Identifier: Apache-2.0
#include "parallel/waiting.hpp"

#include "parallel/mpi_error.hpp"

#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <thread>

namespace atl {

namespace {

/// Affinities are exchanged as plain bits; 8192 is the most processors that Linux is built for.
constexpr std::size_t max_cores = 8192;
using CoreSet = std::bitset<max_cores>;
using CoreWords = std::array<std::uint64_t, max_cores / 64>;

/// The hardware threads this process may run on, or none where the system does not say.
CoreWords affinity() {
  CoreWords words{};
  static_assert(sizeof(unsigned long) == sizeof(std::uint64_t), "a cpu_set_t is an array of unsigned long");
  if (sched_getaffinity(0, sizeof(words), reinterpret_cast<cpu_set_t*>(words.data())) != 0) words.fill(0);
  return words;
}

CoreSet to_set(const std::uint64_t* words) {
  CoreSet set;
  for (std::size_t core = 0; core < max_cores; ++core) set[core] = ((words[core / 64] >> (core % 64)) & 1u) != 0;
  return set;
}

WaitMode mode = WaitMode::sleep;

}  // namespace

NodePlace find_node_place(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  ATOLL_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  NodePlace place;
  ATOLL_MPI(MPI_Comm_rank(node, &place.local_rank));
  ATOLL_MPI(MPI_Comm_size(node, &place.ranks_on_node));
  const CoreWords mine = affinity();
  constexpr std::size_t words = mine.size();
  std::vector<std::uint64_t> all(words * static_cast<std::size_t>(place.ranks_on_node));
  std::vector<MPI_Request> requests(1);
  ATOLL_MPI(MPI_Iallgather(mine.data(), static_cast<int>(words), MPI_UINT64_T, all.data(), static_cast<int>(words),
                           MPI_UINT64_T, node, requests.data()));
  wait_all(requests);
  ATOLL_MPI(MPI_Comm_free(&node));

  CoreSet any;
  const CoreSet own = to_set(mine.data());
  std::size_t sharing = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(place.ranks_on_node); ++r) {
    const CoreSet cores = to_set(all.data() + r * words);
    any |= cores;
    if ((cores & own).any()) ++sharing;
  }
  if (any.none()) {  // no affinities on this system
    place.cores_on_node = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    place.cores_of_rank = std::max(1, place.cores_on_node / place.ranks_on_node);
    return place;
  }
  // Ranks that a launcher bound to cores of their own share with nobody; unbound ranks share with all.
  place.cores_on_node = static_cast<int>(any.count());
  place.cores_of_rank = std::max(1, static_cast<int>(own.count() / std::max<std::size_t>(sharing, 1)));
  return place;
}

void decide_wait_mode(MPI_Comm comm, const NodePlace& place, int threads_of_rank) {
  MPI_Comm node = MPI_COMM_NULL;
  ATOLL_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  int threads = 0;
  std::vector<MPI_Request> requests(1);
  ATOLL_MPI(MPI_Iallreduce(&threads_of_rank, &threads, 1, MPI_INT, MPI_SUM, node, requests.data()));
  wait_all(requests);
  ATOLL_MPI(MPI_Comm_free(&node));
  mode = threads > place.cores_on_node ? WaitMode::sleep : WaitMode::spin;
}

WaitMode wait_mode() { return mode; }
void set_wait_mode(WaitMode new_mode) { mode = new_mode; }

void Pause::operator()() {
  // Small messages on a node arrive within a few tests: only longer waits are worth a system call.
  constexpr int tests_before_sleep = 4, tests_before_yield = 1000;
  ++tests_;
  if (mode == WaitMode::spin) {
    if (tests_ > tests_before_yield) std::this_thread::yield();
  } else if (tests_ <= tests_before_sleep) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

bool test_all(std::vector<MPI_Request>& requests) {
  int complete = 0;
  ATOLL_MPI(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, MPI_STATUSES_IGNORE));
  return complete != 0;
}

void wait_all(std::vector<MPI_Request>& requests) {
  wait_until([&] { return test_all(requests); });
}

}  // namespace atl
