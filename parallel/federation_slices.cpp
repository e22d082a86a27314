/// SPDX-License-Identifier: Apache-2.0
#include "parallel/federation_slices.hpp"

#include "core/errors.hpp"

#include <algorithm>
#include <utility>

namespace atl {

namespace {

std::size_t divided_up(std::size_t n, int parts) {
  return (n + static_cast<std::size_t>(parts) - 1) / static_cast<std::size_t>(parts);
}

/// The rank whose slice holds an element.
int owner_of(std::size_t element, std::size_t size, const GroupShape& shape) {
  const std::size_t shard = divided_up(size, shape.shards), slice = divided_up(shard, shape.replicas);
  return static_cast<int>(element % shard / slice) * shape.shards + static_cast<int>(element / shard);
}

}  // namespace

Range slice_of(std::size_t size, const GroupShape& shape, int rank_in_group) {
  ATOLL_REQUIRE(rank_in_group >= 0 && rank_in_group < shape.ranks());
  const std::size_t shard = divided_up(size, shape.shards), slice = divided_up(shard, shape.replicas);
  const auto s = static_cast<std::size_t>(rank_in_group % shape.shards);
  const auto r = static_cast<std::size_t>(rank_in_group / shape.shards);
  const std::size_t begin = s * shard + std::min(shard, r * slice), end = s * shard + std::min(shard, (r + 1) * slice);
  return {std::min(size, begin), std::min(size, end)};
}

std::vector<SlicePiece> pieces_of_slice(std::size_t size, const std::vector<GroupShape>& groups, int group,
                                        int rank_in_group) {
  const Range mine = slice_of(size, groups[static_cast<std::size_t>(group)], rank_in_group);
  std::vector<SlicePiece> pieces;
  for (std::size_t begin = mine.begin; begin < mine.end;) {
    SlicePiece piece{{begin, mine.end}, {}};
    for (const GroupShape& shape : groups) {
      piece.owners.push_back(owner_of(begin, size, shape));
      piece.range.end = std::min(piece.range.end, slice_of(size, shape, piece.owners.back()).end);
    }
    begin = piece.range.end;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace atl
