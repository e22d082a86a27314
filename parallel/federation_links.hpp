/// The collectives that join the owners of the same elements in all groups. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"
#include "parallel/communicator.hpp"
#include "parallel/federation_slices.hpp"

#include <map>
#include <memory>
#include <vector>

namespace atl {

/// Equal groups have one set of owners a rank, so one communicator. Unequal ones have a communicator for each set of
/// owners: a rank has as many as its slices meet slices of other groups, a few where the shapes are alike, and at most
/// `most_sets`, since MPI libraries have some thousands of communicators.
class FederationLinks {
 public:
  /// A part of this rank's slice of a unit.
  struct Piece {
    Range range;          ///< of the slice, from its begin
    Collectives* owners;  ///< the one owner in each group, in group order
  };

  static constexpr std::size_t most_sets = 512;

  /// Grid and communicators must outlive this. Collective over the world.
  FederationLinks(const ProcessGrid& grid, const Communicators& communicators, std::size_t most = most_sets,
                  const CollectivesOptions& options = {});

  /// The pieces of this rank's slice of units of these sizes. Makes the communicators that are not there yet, each
  /// collective over its members alone, on every rank in the same order of sets. Collective over the world; throws
  /// CollectiveError (ExitCode::usage) where a rank would have more than `most_sets`.
  /// Slices of equal groups are one piece with the padding of their shard, as all groups have the same.
  std::vector<std::vector<Piece>> pieces(const std::vector<std::size_t>& sizes);

  CommunicationStats stats() const;  ///< of all of them together

 private:
  const ProcessGrid& grid_;
  const Communicators& communicators_;
  std::size_t most_sets_;
  CollectivesOptions options_;
  std::map<std::vector<int>, std::unique_ptr<Collectives>> sets_;  ///< by world ranks in group order
};

}  // namespace atl
