/// Numbers of weights as files have them, to fp32 or fp64 and back. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/huggingface/safetensors.hpp"

#include <cstddef>
#include <cstdint>

namespace atl {

/// bytes: count little-endian numbers of type `from`; exact. T: float or double.
template <class T>
void widen(WeightType from, const char* bytes, std::size_t count, T* to);

/// What rounding met.
struct Rounded {
  std::uint64_t not_finite = 0;  ///< numbers that were infinite or NaN before; they stay so
  const void* too_large =
      nullptr;  ///< points at the first finite number that the type cannot hold; bytes are void then
};

/// Rounds once, to nearest, ties to even; what widen() gave becomes the same bits again, NaNs too.
template <class T>
Rounded narrow(const T* from, std::size_t count, WeightType to, char* bytes);

}  // namespace atl
