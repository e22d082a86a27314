/// Flat index of a unit, and its shards. SPDX-License-Identifier: Apache-2.0
#include "parallel/shard_layout.hpp"

#include "core/errors.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

UnitSpec unit_of(std::vector<std::vector<std::size_t>> shapes) {
  UnitSpec unit{"unit", {}};
  for (auto& shape : shapes) unit.tensors.push_back({"tensor" + std::to_string(unit.tensors.size()), std::move(shape)});
  return unit;
}

TEST(ShardLayout, TensorsFollowEachOtherWithoutGaps) {
  const ShardLayout layout(unit_of({{257, 3}, {5}, {1, 2}}), 4);
  EXPECT_EQ(layout.tensor(0), (Range{0, 771}));
  EXPECT_EQ(layout.tensor(1), (Range{771, 776}));
  EXPECT_EQ(layout.tensor(2), (Range{776, 778}));
  EXPECT_EQ(layout.size(), 778u);
  EXPECT_EQ(layout.shard_size(), 195u);  // ceil(778 / 4)
  EXPECT_EQ(layout.padded_size(), 780u);
  EXPECT_EQ(layout.shards(), 4);
  EXPECT_EQ(layout.unit().tensors[1].name, "tensor1");
}

TEST(ShardLayout, ShardsCoverTheUnpaddedIndexOnce) {
  for (const std::size_t size : {0u, 1u, 3u, 7u, 8u, 9u, 257u, 1000u}) {
    for (int shards = 1; shards <= 9; ++shards) {
      SCOPED_TRACE(std::to_string(size) + " elements, " + std::to_string(shards) + " shards");
      const ShardLayout layout(unit_of({{size}}), shards);
      std::size_t next = 0;
      for (int s = 0; s < shards; ++s) {
        const Range owned = layout.owned(s);
        EXPECT_EQ(owned.begin, next);
        EXPECT_LE(owned.size(), layout.shard_size());
        // Element i of shard s lies at s * shard_size + i of the padded buffer: only a tail is padding.
        if (!owned.empty()) {
          EXPECT_EQ(owned.begin, static_cast<std::size_t>(s) * layout.shard_size());
        }
        next = owned.end;
      }
      EXPECT_EQ(next, size);
      EXPECT_GE(layout.padded_size(), size);
      EXPECT_LT(layout.padded_size(), size + static_cast<std::size_t>(shards));
    }
  }
}

TEST(ShardLayout, ThreeElementsOnEightShards) {
  const ShardLayout layout(unit_of({{3}}), 8);
  EXPECT_EQ(layout.shard_size(), 1u);
  EXPECT_EQ(layout.padded_size(), 8u);
  EXPECT_EQ(layout.owned(2), (Range{2, 3}));
  for (int s = 3; s < 8; ++s) EXPECT_TRUE(layout.owned(s).empty());
}

TEST(ShardLayout, NeedsAShard) { EXPECT_THROW(ShardLayout(unit_of({{3}}), 0), Error); }

TEST(Range, Intersects) {
  EXPECT_EQ(intersect({0, 5}, {3, 9}), (Range{3, 5}));
  EXPECT_EQ(intersect({3, 9}, {0, 5}), (Range{3, 5}));
  EXPECT_EQ(intersect({2, 4}, {0, 9}), (Range{2, 4}));
  EXPECT_TRUE(intersect({0, 3}, {3, 5}).empty());
  EXPECT_TRUE(intersect({0, 3}, {4, 5}).empty());
}

TEST(Range, EqualPartsOfASlice) {
  EXPECT_EQ(equal_part(10, 4, 0), (Range{0, 3}));
  EXPECT_EQ(equal_part(10, 4, 3), (Range{9, 10}));
  EXPECT_EQ(equal_part(5, 4, 2), (Range{4, 5}));
  EXPECT_EQ(equal_part(5, 4, 3), (Range{5, 5}));
  EXPECT_EQ(equal_part(0, 3, 1), (Range{0, 0}));
}

}  // namespace
}  // namespace atl
