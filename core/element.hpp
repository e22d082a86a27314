/// Element types: fp64 (tests), fp32, and bf16 storage with fp32 arithmetic. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace atl {

/// bfloat16: the upper 16 bits of an fp32 number. Storage only; arithmetic happens in float.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN.
  KOKKOS_INLINE_FUNCTION bf16(float value) {
    union {
      float f;
      std::uint32_t u;
    } pun{value};
    const bool nan = (pun.u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? static_cast<std::uint16_t>((pun.u >> 16) | 0x40u)
               : static_cast<std::uint16_t>((pun.u + 0x7fffu + ((pun.u >> 16) & 1u)) >> 16);
  }
  KOKKOS_INLINE_FUNCTION operator float() const {
    union {
      std::uint32_t u;
      float f;
    } pun{static_cast<std::uint32_t>(bits) << 16};
    return pun.f;
  }
};

namespace detail {
template <class T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<bf16> {
  using type = float;
};
}  // namespace detail

/// The type arithmetic on T is done in, and of T's master weights, gradients and moments: fp32 for bf16, else T.
template <class T>
using Accumulator = typename detail::AccumulatorOf<std::remove_const_t<T>>::type;

enum class Element { f64, f32, bf16, i32, u16 };

template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, double>) return Element::f64;
  if constexpr (std::is_same_v<T, float>) return Element::f32;
  if constexpr (std::is_same_v<T, bf16>) return Element::bf16;
  if constexpr (std::is_same_v<T, std::int32_t>) return Element::i32;
  if constexpr (std::is_same_v<T, std::uint16_t>) return Element::u16;
}

constexpr std::size_t size_of(Element element) {
  switch (element) {
    case Element::f64:
      return 8;
    case Element::f32:
      return 4;
    case Element::i32:
      return 4;
    case Element::bf16:
      return 2;
    case Element::u16:
      return 2;
  }
  return 0;
}

constexpr std::string_view name_of(Element element) {
  switch (element) {
    case Element::f64:
      return "fp64";
    case Element::f32:
      return "fp32";
    case Element::i32:
      return "int32";
    case Element::bf16:
      return "bf16";
    case Element::u16:
      return "uint16";
  }
  return "?";
}

}  // namespace atl
