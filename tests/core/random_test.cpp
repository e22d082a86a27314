/// Random numbers: pinned, so that initialisation and data order never change unnoticed. SPDX-License-Identifier:
/// Apache-2.0
#include "core/random.hpp"

#include "tests/core/host_values.hpp"

#include <set>

namespace atl::test {
namespace {

constexpr std::uint64_t all_ones = ~std::uint64_t(0);

// The pinned values come from a separate program in Python, with whole numbers of any size.
TEST(Random, BitsArePinned) {
  EXPECT_EQ(random_bits(0, 0), 0x238275bc38fcbe91u);
  EXPECT_EQ(random_bits(0, 1), 0xb18a02f46d8d86c3u);
  EXPECT_EQ(random_bits(1, 0), 0x465391958fc61f13u);
  EXPECT_EQ(random_bits(123456789, 987654321), 0xd0cb002e664092d6u);
  EXPECT_EQ(random_bits(all_ones, all_ones), 0x55e2c9ae3b41d287u);
}

// The first outputs of SplitMix64 with seed 0, as its authors' program prints them.
TEST(Random, MixIsSplitMix64) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}

TEST(Random, UniformAndNormalArePinned) {
  EXPECT_EQ(random_uniform(0, 0), 0x1.1c13ade1c7e5cp-3);
  EXPECT_EQ(random_uniform(123456789, 987654321), 0x1.a196005ccc812p-1);
  // Logarithm and cosine may differ in the last place between C libraries.
  EXPECT_DOUBLE_EQ(random_normal(0, 0), -0.18991407750671588);
  EXPECT_DOUBLE_EQ(random_normal(1, 0), -0.7448005287627025);
  EXPECT_DOUBLE_EQ(random_normal(all_ones, all_ones), -0.5075396152871785);
}

TEST(Random, KeysArePinnedAndDependOnSeedAndName) {
  EXPECT_EQ(random_key(0, ""), 0x5b21f68ffa77f14cu);
  EXPECT_EQ(random_key(1234, "model.layers.0.self_attn.q_proj.weight"), 0x7a7adfeff9b8b888u);
  EXPECT_EQ(random_key(1235, "model.layers.0.self_attn.q_proj.weight"), 0x3c7ff46b5c21e1c5u);
  const std::uint64_t key = random_key(1234, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_DOUBLE_EQ(random_normal(key, 0), 2.242507981125492);
  EXPECT_DOUBLE_EQ(random_normal(key, 3), 1.979161542162673);
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (const char* name : {"a", "b", "ab", "ba", "a.weight", "b.weight"}) keys.insert(random_key(seed, name));
  EXPECT_EQ(keys.size(), 600u);
}

TEST(Random, UniformFillsTheUnitInterval) {
  constexpr int n = 200000, bins = 20;
  double sum = 0, squares = 0;
  std::vector<int> count(bins, 0);
  for (int i = 0; i < n; ++i) {
    const double u = random_uniform(42, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    ++count[static_cast<std::size_t>(u * bins)];
  }
  // Five standard deviations of each estimate.
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
  for (const int c : count) EXPECT_NEAR(c, n / bins, 5 * std::sqrt(static_cast<double>(n) / bins));
}

TEST(Random, NormalMoments) {
  constexpr int n = 200000;
  double moments[5] = {};
  double lag = 0, previous = 0;
  for (int i = 0; i < n; ++i) {
    const double z = random_normal(7, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(z));
    double power = 1;
    for (double& moment : moments) moment += power / n, power *= z;
    lag += z * previous / n;
    previous = z;
  }
  EXPECT_NEAR(moments[1], 0, 5 / std::sqrt(n));
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(lag, 0, 5 / std::sqrt(n)) << "neighbours are not related";
}

TEST(Random, KeysOfNeighboursAreNotRelated) {
  // Each bit of the result flips for half of the changes of one bit of key or counter.
  int flips = 0;
  constexpr int n = 2000;
  for (std::uint64_t i = 0; i < n; ++i) {
    flips += __builtin_popcountll(random_bits(i, 0) ^ random_bits(i + 1, 0));
    flips += __builtin_popcountll(random_bits(0, i) ^ random_bits(0, i + 1));
  }
  EXPECT_NEAR(flips / (2.0 * n), 32.0, 5 * 4 / std::sqrt(2.0 * n));
}

}  // namespace
}  // namespace atl::test
