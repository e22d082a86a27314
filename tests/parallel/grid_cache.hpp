/// Grids with their communicators and collectives, made once a test program. SPDX-License-Identifier: Apache-2.0
///
/// Splitting a communicator blocks inside MPI, which spins: on a machine with fewer cores than ranks that takes longer
/// than most tests.
#pragma once

#include "parallel/collectives.hpp"
#include "parallel/communicator.hpp"
#include "parallel/federation_links.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace atl {

struct GridWithCommunicators {
  GridWithCommunicators(MPI_Comm comm, const ProcessGrid& where)
      : grid(where),
        communicators(comm, grid),
        shard(make_mpi_collectives(communicators.shard)),
        replica(make_mpi_collectives(communicators.replica)),
        links(grid, communicators) {}

  ProcessGrid grid;
  Communicators communicators;
  std::unique_ptr<Collectives> shard, replica;
  FederationLinks links;
};

/// GoogleTest ends environments before main() finalises Kokkos and MPI.
class GridCache final : public ::testing::Environment {
 public:
  /// Collective over `comm` (MPI_COMM_WORLD or MPI_COMM_SELF).
  static GridWithCommunicators& get(MPI_Comm comm, const ParallelOptions& options) {
    const auto [size, rank] = place_in(comm);
    return get(comm, ProcessGrid(options, size, rank));
  }
  /// The same for a grid of its own, of this rank. Grids with the same ranks at the same places are one.
  static GridWithCommunicators& get(MPI_Comm comm, const ProcessGrid& grid) {
    Key key{comm == MPI_COMM_SELF, {}, {}};
    for (int g = 0; g < grid.number_of_groups(); ++g) {
      const GroupShape& shape = grid.groups()[static_cast<std::size_t>(g)];
      std::get<1>(key).emplace_back(shape.replicas, shape.shards);
      for (int r = 0; r < shape.ranks(); ++r) std::get<2>(key).push_back(grid.world_rank(g, r));
    }
    auto& entry = grids()[key];
    if (!entry) entry = std::make_unique<GridWithCommunicators>(comm, grid);
    return *entry;
  }
  static std::pair<int, int> place_in(MPI_Comm comm) {
    int size = 0, rank = 0;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    return {size, rank};
  }
  void TearDown() override { grids().clear(); }

 private:
  using Key = std::tuple<bool, std::vector<std::pair<int, int>>, std::vector<int>>;
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

/// Groups of any shapes for the ranks of the world.
inline ProcessGrid grid_of(std::vector<GroupShape> groups, std::vector<int> order = {}) {
  return ProcessGrid(std::move(groups), GridCache::place_in(MPI_COMM_WORLD).second, std::move(order));
}

}  // namespace atl
