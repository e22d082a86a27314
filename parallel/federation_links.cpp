/// SPDX-License-Identifier: Apache-2.0
#include "parallel/federation_links.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace atl {

FederationLinks::FederationLinks(const ProcessGrid& grid, const Communicators& communicators, std::size_t most,
                                 const CollectivesOptions& options)
    : grid_(grid), communicators_(communicators), most_sets_(most), options_(options) {
  if (grid.equal_groups()) sets_[{}] = make_collectives(communicators.federation, options_);
}

std::vector<std::vector<FederationLinks::Piece>> FederationLinks::pieces(const std::vector<std::size_t>& sizes) {
  std::vector<std::vector<Piece>> result(sizes.size());
  if (grid_.equal_groups()) {
    for (std::size_t u = 0; u < sizes.size(); ++u) {
      const std::size_t shard = equal_part(sizes[u], static_cast<std::size_t>(grid_.shape().shards), 0).size();
      const Range slice = equal_part(shard, static_cast<std::size_t>(grid_.shape().replicas),
                                     static_cast<std::size_t>(grid_.replica()));
      result[u].push_back({{0, slice.size()}, sets_.begin()->second.get()});
    }
    return result;
  }
  std::vector<std::vector<SlicePiece>> cut;
  std::map<std::vector<int>, Collectives*> needed;
  const auto ranks_of = [&](const SlicePiece& piece) {
    std::vector<int> ranks;
    for (int g = 0; g < grid_.number_of_groups(); ++g)
      ranks.push_back(grid_.world_rank(g, piece.owners[static_cast<std::size_t>(g)]));
    return ranks;
  };
  for (const std::size_t size : sizes) {
    cut.push_back(pieces_of_slice(size, grid_.groups(), grid_.group(), grid_.rank_in_group()));
    for (const SlicePiece& piece : cut.back()) needed[ranks_of(piece)] = nullptr;
  }
  // Also the point where all are there: what follows waits for members only, and by spinning.
  collectively(communicators_.world, [&] {
    if (needed.size() <= most_sets_) return;
    throw ConfigError(fmt::format(
        "rank {} of {} (of a group with {} ranks) would average with {} different sets of ranks of the other groups, "
        "at most {} are possible: choose group sizes that differ less",
        grid_.rank(), grid_.world_size(), grid_.shape().ranks(), needed.size(), most_sets_));
  });
  // In the order of the map, the same on all ranks: among the sets that are not complete yet, all members of the first
  // one are at it, or on their way.
  for (auto& [ranks, collectives] : needed) {
    auto& made = sets_[ranks];
    if (!made) made = make_collectives(Communicator(communicators_.world, ranks), options_);
    collectives = made.get();
  }
  for (std::size_t u = 0; u < sizes.size(); ++u) {
    const std::size_t begin = cut[u].empty() ? 0 : cut[u].front().range.begin;
    for (const SlicePiece& piece : cut[u])
      result[u].push_back({{piece.range.begin - begin, piece.range.end - begin}, needed.at(ranks_of(piece))});
  }
  return result;
}

CommunicationStats FederationLinks::stats() const {
  CommunicationStats total;
  for (const auto& [ranks, collectives] : sets_) {
    total.bytes_sent += collectives->stats().bytes_sent;
    total.seconds_waited += collectives->stats().seconds_waited;
  }
  return total;
}

}  // namespace atl
