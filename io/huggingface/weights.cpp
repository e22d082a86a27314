/// SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/weights.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace atl {

namespace {

static_assert(std::endian::native == std::endian::little, "weights are little-endian in files");

float from_bf16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); }

float from_fp16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, magnitude = std::uint32_t{half & 0x7fffu} << 13;
  // The exponent's bias grows by 112; the product also makes normal numbers of subnormal ones.
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const bool finite = (half & 0x7c00u) != 0x7c00u;
  return std::bit_cast<float>(sign | (finite ? scaled : magnitude | 0x7f800000u));
}

/// The top bits of a NaN's payload stay; it must not become an infinity.
constexpr std::uint32_t infinity_bits = 0x7f800000u;

std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t top = bits >> 16, rounded = (bits + 0x7fffu + (top & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > infinity_bits;
  return static_cast<std::uint16_t>(nan ? ((top & 0x7fu) == 0 ? top | 0x40u : top) : rounded);
}

std::uint16_t to_fp16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > infinity_bits) {
    const std::uint32_t payload = (magnitude >> 13) & 0x3ffu;
    half = 0x7c00u | (payload == 0 ? 0x200u : payload);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and more
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: a sum with 1/2 rounds at the last bit of a subnormal
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

float to_float(float value) { return value; }
/// Rounds to odd: then a second rounding, to fewer bits, gives what one alone would have given.
float to_float(double value) {
  const float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || value != value) return near;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(near);
  if (std::abs(static_cast<double>(near)) > std::abs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

template <class Stored, class T, class Widen>
void widen_all(const char* bytes, std::size_t count, T* to, const Widen& one) {
  for (std::size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + i * sizeof stored, sizeof stored);
    to[i] = one(stored);
  }
}

template <class Stored, class T, class Narrow, class Widen>
Rounded narrow_all(const T* from, std::size_t count, char* bytes, const Narrow& one, const Widen& back) {
  constexpr T largest = std::numeric_limits<T>::max();
  std::uint64_t before = 0, after = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Stored stored = one(from[i]);
    std::memcpy(bytes + i * sizeof stored, &stored, sizeof stored);
    before += !(std::abs(from[i]) <= largest);
    after += !(std::abs(back(stored)) <= std::numeric_limits<float>::max());
  }
  Rounded rounded{before};
  for (std::size_t i = 0; after > before && rounded.too_large == nullptr; ++i)
    if (std::abs(from[i]) <= largest && !(std::abs(back(one(from[i]))) <= std::numeric_limits<float>::max()))
      rounded.too_large = from + i;
  return rounded;
}

}  // namespace

template <class T>
void widen(WeightType from, const char* bytes, std::size_t count, T* to) {
  if (from == WeightType::bf16)
    widen_all<std::uint16_t>(bytes, count, to, from_bf16);
  else if (from == WeightType::fp16)
    widen_all<std::uint16_t>(bytes, count, to, from_fp16);
  else
    widen_all<float>(bytes, count, to, [](float value) { return value; });
}

template <class T>
Rounded narrow(const T* from, std::size_t count, WeightType to, char* bytes) {
  if (to == WeightType::bf16)
    return narrow_all<std::uint16_t>(
        from, count, bytes, [](T value) { return to_bf16(to_float(value)); }, from_bf16);
  if (to == WeightType::fp16)
    return narrow_all<std::uint16_t>(
        from, count, bytes, [](T value) { return to_fp16(to_float(value)); }, from_fp16);
  return narrow_all<float>(
      from, count, bytes, [](T value) { return static_cast<float>(value); }, [](float value) { return value; });
}

template void widen<float>(WeightType, const char*, std::size_t, float*);
template void widen<double>(WeightType, const char*, std::size_t, double*);
template Rounded narrow<float>(const float*, std::size_t, WeightType, char*);
template Rounded narrow<double>(const double*, std::size_t, WeightType, char*);

}  // namespace atl
