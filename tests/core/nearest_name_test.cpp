/// SPDX-License-Identifier: Apache-2.0
#include "core/nearest_name.hpp"

#include <gtest/gtest.h>

namespace atl::test {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("shard_size", "shard_size"), 0u);
  EXPECT_EQ(edit_distance("shardsize", "shard_size"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 2u);
}

TEST(NearestName, FindsTheFirstOfTheNearest) {
  const std::vector<std::string> names{"batch", "micro_batch", "steps", "stops"};
  EXPECT_EQ(nearest_name("bach", names), "batch");
  EXPECT_EQ(nearest_name("micro_bacth", names), "micro_batch");
  EXPECT_EQ(nearest_name("stps", names), "steps");
  EXPECT_EQ(nearest_name("zzz", names), "batch") << "any distance, unless limited";
  EXPECT_EQ(nearest_name("zzz", names, 2), "");
  EXPECT_EQ(nearest_name("stpes", names, 2), "steps");
  EXPECT_EQ(nearest_name("x", std::vector<std::string>()), "");
}

}  // namespace
}  // namespace atl::test
