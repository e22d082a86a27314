/// Grids with their communicators and collectives, made once a test program. SPDX-License-Identifier: Apache-2.0
///
/// Splitting a communicator blocks inside MPI, which spins: on a machine with fewer cores than ranks that takes longer
/// than most tests.
#pragma once

#include "parallel/collectives.hpp"
#include "parallel/communicator.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <tuple>

namespace atl {

struct GridWithCommunicators {
  GridWithCommunicators(MPI_Comm comm, const ProcessGrid& where)
      : grid(where),
        communicators(comm, grid),
        shard(make_mpi_collectives(communicators.shard)),
        replica(make_mpi_collectives(communicators.replica)),
        federation(make_mpi_collectives(communicators.federation)) {}

  ProcessGrid grid;
  Communicators communicators;
  std::unique_ptr<Collectives> shard, replica, federation;
};

/// GoogleTest ends environments before main() finalises Kokkos and MPI.
class GridCache final : public ::testing::Environment {
 public:
  /// Collective over `comm` (MPI_COMM_WORLD or MPI_COMM_SELF).
  static GridWithCommunicators& get(MPI_Comm comm, const ParallelOptions& options) {
    auto& entry =
        grids()[{comm == MPI_COMM_SELF, options.strategy, options.shard_size, options.group_size, options.groups}];
    if (!entry) {
      int size = 0, rank = 0;
      MPI_Comm_size(comm, &size);
      MPI_Comm_rank(comm, &rank);
      entry = std::make_unique<GridWithCommunicators>(comm, ProcessGrid(options, size, rank));
    }
    return *entry;
  }
  void TearDown() override { grids().clear(); }

 private:
  using Key = std::tuple<bool, Strategy, int, int, int>;
  static std::map<Key, std::unique_ptr<GridWithCommunicators>>& grids() {
    static std::map<Key, std::unique_ptr<GridWithCommunicators>> cache;
    return cache;
  }
};
inline ::testing::Environment* const grid_cache = ::testing::AddGlobalTestEnvironment(new GridCache);

inline int world_ranks() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

inline ParallelOptions grid_of(Strategy strategy, int shard_size = 0, int groups = 0) {
  ParallelOptions options;
  options.strategy = strategy;
  options.shard_size = shard_size;
  options.groups = groups;
  return options;
}

}  // namespace atl
