/// The permutation: bijective for any n, another one each epoch, unbiased. SPDX-License-Identifier: Apache-2.0
#include "io/data/permutation.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace atl {
namespace {

std::vector<std::uint64_t> all_of(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<std::uint64_t> values(n);
  for (std::uint64_t i = 0; i < n; ++i) values[i] = permutation(i);
  return values;
}

TEST(Permutation, IsABijection) {
  std::vector<std::uint64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1u);
  for (const std::uint64_t n : {1023u, 1024u, 1025u, 65536u, 65537u, 100003u}) sizes.push_back(n);
  for (const std::uint64_t n : sizes) {
    std::vector<bool> hit(n);
    for (const auto value : all_of(n, 42, 3)) {
      ASSERT_LT(value, n);
      ASSERT_FALSE(hit[value]) << "n = " << n << ", twice " << value;
      hit[value] = true;
    }
  }
}

TEST(Permutation, OfHugeRangesIsInjectiveAndInside) {
  for (const int bits : {33, 48, 62}) {
    const std::uint64_t n = (std::uint64_t{1} << bits) - 12345;
    const Permutation permutation(n, 1, 2);
    std::set<std::uint64_t> values;
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const std::uint64_t value = permutation(n - 1 - i);
      ASSERT_LT(value, n);
      ASSERT_TRUE(values.insert(value).second);
    }
    EXPECT_GT(*values.rbegin(), n - n / 1000);  // spread over all of the range
    EXPECT_LT(*values.begin(), n / 1000);
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  const auto first = all_of(1000, 5, 0);
  EXPECT_EQ(first, all_of(1000, 5, 0));
  const auto agreements = [&](const std::vector<std::uint64_t>& other) {
    int n = 0;
    for (std::size_t i = 0; i < first.size(); ++i) n += first[i] == other[i];
    return n;
  };
  // Two random permutations agree at one place on average (Poisson); more than 10 has a chance of 1e-8.
  EXPECT_LE(agreements(all_of(1000, 5, 1)), 10);
  EXPECT_LE(agreements(all_of(1000, 6, 0)), 10);
}

// Five is where networks with halves of two bits are biased most plainly.
TEST(Permutation, EveryOrderOfFiveIsEquallyLikely) {
  constexpr int each = 500;
  std::map<std::vector<std::uint64_t>, int> count;
  for (std::uint64_t epoch = 0; epoch < 120 * each; ++epoch) ++count[all_of(5, 9, epoch)];
  EXPECT_EQ(count.size(), 120u);
  double chi_squared = 0;
  for (const auto& [order, n] : count) chi_squared += (n - each) * double(n - each) / each;
  EXPECT_LT(chi_squared, 190);  // 119 degrees of freedom: above 190 has a chance of 4e-5
}

}  // namespace
}  // namespace atl
