/// Counter-based random numbers: a value is a pure function of (key, counter). SPDX-License-Identifier: Apache-2.0
///
/// The generator mixes key and counter with the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014,
/// doi:10.1145/2660193.2660195) applied three times; any element can be drawn on any rank, in any order.
#pragma once

#include "core/kokkos_compat.hpp"

#include <cstdint>
#include <string_view>

namespace atl {

KOKKOS_INLINE_FUNCTION std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// 64 random bits for (key, counter).
KOKKOS_INLINE_FUNCTION std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  return mix64(mix64(key ^ mix64(counter)) + key);
}

/// Uniform in [0, 1), 53 bits.
KOKKOS_INLINE_FUNCTION double random_uniform(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11) * 0x1.0p-53;
}

/// Standard normal, by Box and Muller from two counters of its own.
KOKKOS_INLINE_FUNCTION double random_normal(std::uint64_t key, std::uint64_t counter) {
  const double u = 1.0 - random_uniform(key, 2 * counter);  // (0, 1]
  const double v = random_uniform(key, 2 * counter + 1);
  return math::sqrt(-2.0 * math::log(u)) * math::cos(6.283185307179586476925 * v);
}

/// A key derived from a seed and a name (FNV-1a over its bytes, then mixed).
inline std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mix64(hash ^ mix64(seed));
}

}  // namespace atl
