/// Exponential and team reductions that vectorise on the host. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"

#include <cstdint>
#include <cstring>

namespace atl {

/// e^x for x <= 88 (clamped above; 0 below -87), at most 2 ulp off in fp32. On the host a polynomial that loops over it
/// vectorise, after Cody and Waite's range reduction with a Taylor-like minimax polynomial; elsewhere the device's own.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
  if constexpr (vector_kernels) {
    constexpr float log2_e = 1.44269504088896341f, round_bias = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integer
    constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
    const float biased = clamped * log2_e + round_bias;
    const float n = biased - round_bias;
    const float r = (clamped - n * ln2_high) - n * ln2_low;
    // Taylor coefficients suffice: |r| <= ln(2) / 2, and the first term left out is below 2^-26 relative.
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    union {
      float f;
      std::int32_t i;
    } biased_bits{biased}, power;
    power.i = ((biased_bits.i - 0x4b400000) + 127) << 23;  // 0x4b400000: bits of round_bias
    const float value = p * power.f;
    return x < -87.0f ? 0.0f : value;
  } else {
    return x < -87.0f ? 0.0f : math::exp(x > 88.0f ? 88.0f : x);
  }
}
KOKKOS_INLINE_FUNCTION double fast_exp(double x) { return math::exp(x); }

namespace detail {
// Partial sums that a host loop keeps, so that it vectorises without reassociation. More than the 16 up to which GCC
// unrolls a loop completely, and then no longer vectorises it.
inline constexpr int lanes = 32;
}  // namespace detail

/// Sum of f(0) + ... + f(n-1) over a team, the same bits on every run: on the host in 32 interleaved partial sums.
template <class R, class Member, class F>
KOKKOS_INLINE_FUNCTION R team_sum(const Member& member, int n, const F& f) {
  R total = 0;
  if constexpr (vector_kernels) {
    R partial[detail::lanes] = {};
    int i = 0;
    for (; i + detail::lanes <= n; i += detail::lanes)
      for (int l = 0; l < detail::lanes; ++l) partial[l] += f(i + l);
    for (; i < n; ++i) partial[i % detail::lanes] += f(i);
    for (int width = detail::lanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) partial[l] += partial[l + width];
    total = partial[0];
  } else {
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(member, n), [&](const int i, R& sum) { sum += f(i); }, total);
  }
  return total;
}

/// Largest of f(0), ..., f(n-1) over a team; n >= 1.
template <class R, class Member, class F>
KOKKOS_INLINE_FUNCTION R team_max(const Member& member, int n, const F& f) {
  R largest = f(0);
  if constexpr (vector_kernels) {
    R partial[detail::lanes];
    for (int l = 0; l < detail::lanes; ++l) partial[l] = largest;
    int i = 0;
    for (; i + detail::lanes <= n; i += detail::lanes)
      for (int l = 0; l < detail::lanes; ++l) {
        const R value = f(i + l);
        partial[l] = value > partial[l] ? value : partial[l];
      }
    for (; i < n; ++i) {
      const R value = f(i);
      partial[0] = value > partial[0] ? value : partial[0];
    }
    for (int l = 0; l < detail::lanes; ++l) largest = partial[l] > largest ? partial[l] : largest;
  } else {
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(member, n),
        [&](const int i, R& running) {
          const R value = f(i);
          if (value > running) running = value;
        },
        Kokkos::Max<R>(largest));
  }
  return largest;
}

/// f(i) for i in [0, n) over a team, in any order: on the host as vectors, whatever the compiler knows of pointers.
template <class Member, class F>
KOKKOS_INLINE_FUNCTION void team_for(const Member& member, int n, const F& f) {
  if constexpr (vector_kernels) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
    for (int i = 0; i < n; ++i) f(i);
  } else {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(member, n), f);
  }
}

}  // namespace atl
