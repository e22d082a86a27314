/// Statistics of token data. SPDX-License-Identifier: Apache-2.0
#include "io/data/token_statistics.hpp"

#include "core/random.hpp"
#include "io/data/token_formats.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl {
namespace {

TEST(LengthHistogram, QuantilesAreExactBelow65536AndCloseAbove) {
  LengthHistogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0);
  std::vector<std::int64_t> lengths;
  for (std::uint64_t i = 0; i < 10000; ++i)  // from 1 to 2^40, evenly over the powers of two
    lengths.push_back(static_cast<std::int64_t>(random_bits(1, i) >> (24 + random_bits(2, i) % 40)));
  for (const auto length : lengths) histogram.add(length);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_EQ(histogram.count(), 10000);
  EXPECT_EQ(histogram.least(), lengths.front());
  EXPECT_EQ(histogram.most(), lengths.back());
  for (int percent = 1; percent <= 100; ++percent) {
    const std::int64_t exact = lengths[static_cast<std::size_t>(100 * percent - 1)];
    const std::int64_t found = histogram.quantile(percent / 100.);
    if (exact < 65536) {
      EXPECT_EQ(found, exact) << percent;
    } else {
      EXPECT_LE(found, exact) << percent;
      EXPECT_GT(static_cast<double>(found), static_cast<double>(exact) * (1 - 1. / 128)) << percent;
    }
  }
}

TEST(LengthHistogram, OfTheLongestThatCanBe) {
  LengthHistogram histogram;
  histogram.add(std::int64_t{1} << 62);
  EXPECT_EQ(histogram.quantile(0.5), std::int64_t{1} << 62);
}

TEST(TokenStatistics, OfMegatronsDocuments) {
  const auto source = open_tokens(ATOLL_SOURCE_DIR "/tests/fixtures/tokens/megatron_uint16", {});
  const TokenStatistics found = token_statistics(*source, 7);  // the format tells, the token does not count
  ASSERT_TRUE(found.documents);
  EXPECT_EQ(found.documents->count(), 5);
  EXPECT_EQ(found.documents->least(), 0);
  EXPECT_EQ(found.documents->quantile(0.5), 100);
  EXPECT_EQ(found.documents->most(), 250);
  EXPECT_DOUBLE_EQ(found.documents->mean(), 120);
  std::vector<std::int32_t> ids(600);
  source->read(0, ids);
  EXPECT_EQ(found.largest.id, *std::max_element(ids.begin(), ids.end()));
  EXPECT_EQ(found.smallest, *std::min_element(ids.begin(), ids.end()));
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(found.distinct, std::unique(ids.begin(), ids.end()) - ids.begin());
}

TEST(TokenStatistics, DocumentsByTheirLastToken) {
  const MemorySource source("x", 10, {1, 2, 9, 9, 3, 3, 3, 9, 4});
  const TokenStatistics found = token_statistics(source, 9);
  ASSERT_TRUE(found.documents);
  EXPECT_EQ(found.documents->count(), 4);  // of 3, 1, 4 and 1 tokens
  EXPECT_EQ(found.documents->most(), 4);
  EXPECT_TRUE(found.open_end);
  EXPECT_EQ(found.largest.position, 2);
  EXPECT_EQ(found.distinct, 5);
  EXPECT_FALSE(token_statistics(source, std::nullopt).documents);
  EXPECT_FALSE(token_statistics(MemorySource("y", 10, {1, 9}), 9).open_end);
}

}  // namespace
}  // namespace atl
