/// SPDX-License-Identifier: Apache-2.0
#include "io/data/mixture.hpp"

#include "core/errors.hpp"
#include "core/random.hpp"
#include "io/data/permutation.hpp"

#include <cmath>

namespace atl {

namespace {

__extension__ typedef unsigned __int128 Wide;

/// floor(q f + 1/2) without rounding; f in [0, 1].
std::int64_t rounded_share(std::int64_t q, double f) {
  const auto numerator = static_cast<std::uint64_t>(std::ldexp(f, 62));
  return static_cast<std::int64_t>((static_cast<Wide>(q) * numerator + (Wide{1} << 61)) >> 62);
}

}  // namespace

MixtureOrder::MixtureOrder(const std::vector<double>& weights, std::uint64_t seed)
    : before_{0}, seed_(random_key(seed, "mixture")) {
  ATOLL_REQUIRE(!weights.empty());
  for (const double weight : weights) {
    ATOLL_REQUIRE(weight > 0);
    before_.push_back(before_.back() + weight);
  }
}

MixtureOrder::Place MixtureOrder::operator()(std::int64_t position) const {
  std::size_t first = 0, end = before_.size() - 1;
  if (end == 1) return {0, position};
  const Permutation shuffle(block, seed_, static_cast<std::uint64_t>(position / block));
  std::int64_t q =
      position - position % block + static_cast<std::int64_t>(shuffle(static_cast<std::uint64_t>(position % block)));
  while (end - first > 1) {
    const std::size_t middle = first + (end - first) / 2;
    const double left = before_[middle] - before_[first], right = before_[end] - before_[middle];
    const double f = left / (left + right);
    const std::int64_t went_left = rounded_share(q, f);
    if (rounded_share(q + 1, f) > went_left) {
      end = middle;
      q = went_left;
    } else {
      first = middle;
      q -= went_left;
    }
  }
  return {first, q};
}

}  // namespace atl
