/// A random permutation that needs no memory: position to index, a pure function. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/errors.hpp"
#include "core/random.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace atl {

/// A bijection of [0, n), another one for each (seed, epoch), for any n from 1 to 2^62.
///
/// A balanced Feistel network permutes [0, 2^(2b)), the smallest such range that holds n; a value outside [0, n) is
/// permuted again until it falls inside (cycle walking: Black and Rogaway, CT-RSA 2002, doi:10.1007/3-540-45760-7_9).
/// The range is below 4 n, except for small n, so that takes less than four turns on average.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) : n_(n) {
    ATOLL_REQUIRE(n >= 1 && n <= (std::uint64_t{1} << 62));
    while (half_bits_ < 31 && (std::uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
    const std::uint64_t key = random_bits(random_key(seed, "permutation"), epoch);
    for (std::size_t round = 0; round < keys_.size(); ++round) keys_[round] = random_bits(key, round);
  }

  /// Where `position` < n goes.
  std::uint64_t operator()(std::uint64_t position) const {
    ATOLL_REQUIRE(position < n_);
    if (n_ == 1) return 0;
    do {
      position = network(position);
    } while (position >= n_);
    return position;
  }

 private:
  std::uint64_t network(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t mixed = left ^ (random_bits(key, right) & mask);
      left = right;
      right = mixed;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t n_;
  // Halves of two bits and less have so few round functions that permutations of a handful of sequences would be
  // biased.
  int half_bits_ = 4;
  std::array<std::uint64_t, 8> keys_{};
};

}  // namespace atl
