/// Slices and their common refinement, element by element. SPDX-License-Identifier: Apache-2.0
#include "parallel/federation_slices.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl {
namespace {

using Shapes = std::vector<GroupShape>;

const Shapes worlds[] = {{{1, 1}},
                         {{1, 4}, {1, 2}, {1, 1}},  // other shards
                         {{2, 2}, {1, 2}, {4, 2}},  // other replicas
                         {{3, 1}, {5, 1}},
                         {{1, 3}, {1, 5}},
                         {{2, 3}, {3, 2}, {1, 4}, {7, 1}},
                         {{2, 2}, {2, 2}}};
const std::size_t sizes[] = {0, 1, 2, 3, 5, 7, 12, 23, 24, 60, 61, 359};

/// The place in its group of the rank that averages each element; checks that there is one, inside its shard.
std::vector<int> owners(std::size_t size, const GroupShape& shape) {
  std::vector<int> owner(size, -1);
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const Range slice = slice_of(size, shape, rank);
    const ShardLayout layout({"unit", {{"tensor", {size}}}}, shape.shards);
    EXPECT_EQ(intersect(slice, layout.owned(rank % shape.shards)).size(), slice.size());
    for (std::size_t i = slice.begin; i < slice.end; ++i) {
      EXPECT_EQ(owner[i], -1) << "element " << i << " has two owners";
      owner[i] = rank;
    }
  }
  EXPECT_EQ(std::count(owner.begin(), owner.end(), -1), 0);
  return owner;
}

TEST(FederationSlices, OfAGroupAreTheUnit) {
  for (const Shapes& world : worlds)
    for (const GroupShape& shape : world)
      for (const std::size_t size : sizes) owners(size, shape);
}

TEST(FederationSlices, PiecesHaveOneOwnerInEachGroup) {
  for (const Shapes& world : worlds)
    for (const std::size_t size : sizes) {
      std::vector<std::vector<int>> expected;
      for (const GroupShape& shape : world) expected.push_back(owners(size, shape));
      std::size_t slices = 0;
      for (const GroupShape& shape : world) slices += static_cast<std::size_t>(shape.ranks());
      for (std::size_t g = 0; g < world.size(); ++g) {
        std::size_t pieces = 0, covered = 0;
        for (int rank = 0; rank < world[g].ranks(); ++rank) {
          std::size_t next = slice_of(size, world[g], rank).begin;
          for (const SlicePiece& piece : pieces_of_slice(size, world, static_cast<int>(g), rank)) {
            ++pieces;
            EXPECT_FALSE(piece.range.empty());
            EXPECT_EQ(piece.range.begin, next);  // in order, without gaps
            next = piece.range.end;
            ASSERT_EQ(piece.owners.size(), world.size());
            EXPECT_EQ(piece.owners[g], rank);
            for (std::size_t other = 0; other < world.size(); ++other)
              for (std::size_t i = piece.range.begin; i < piece.range.end; ++i)
                EXPECT_EQ(piece.owners[other], expected[other][i]);
          }
          EXPECT_EQ(next, slice_of(size, world[g], rank).end);
          covered += slice_of(size, world[g], rank).size();
        }
        EXPECT_EQ(covered, size);
        EXPECT_LE(pieces, slices);
      }
    }
}

// All owners of a piece must see the same piece: else they would wait for messages of other lengths.
TEST(FederationSlices, EveryGroupSeesTheSamePieces) {
  for (const Shapes& world : worlds)
    for (const std::size_t size : sizes) {
      const auto pieces_of = [&](std::size_t g) {
        std::vector<std::pair<std::size_t, std::vector<int>>> all;
        for (int rank = 0; rank < world[g].ranks(); ++rank)
          for (const SlicePiece& piece : pieces_of_slice(size, world, static_cast<int>(g), rank))
            all.emplace_back(piece.range.begin, piece.owners);
        std::sort(all.begin(), all.end());
        return all;
      };
      for (std::size_t g = 1; g < world.size(); ++g) EXPECT_EQ(pieces_of(g), pieces_of(0));
    }
}

TEST(FederationSlices, OfEqualGroupsAreOnePiece) {
  for (const std::size_t size : sizes)
    for (int rank = 0; rank < 4; ++rank) EXPECT_LE(pieces_of_slice(size, {{2, 2}, {2, 2}, {2, 2}}, 1, rank).size(), 1u);
}

}  // namespace
}  // namespace atl
