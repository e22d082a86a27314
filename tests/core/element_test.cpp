/// bf16 conversions, checked over all patterns. SPDX-License-Identifier: Apache-2.0
#include "core/element.hpp"

#include "tests/core/host_values.hpp"

#include <bit>

namespace atl::test {
namespace {

bf16 pattern(std::uint32_t bits) {
  bf16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

TEST(Bf16, AllPatternsComeBackFromFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = pattern(bits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    // A signalling NaN comes back quiet.
    const std::uint32_t expected = std::isnan(value) ? bits | 0x40u : bits;
    EXPECT_EQ(bf16(value).bits, expected);
  }
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  // Between every two neighbours of one sign: below the middle down, above it up, at it to the even one.
  for (std::uint32_t sign = 0; sign <= 0x8000; sign += 0x8000)
    for (std::uint32_t magnitude = 0; magnitude < 0x7f80; ++magnitude) {
      const std::uint32_t low = sign | magnitude, high = low + 1, middle = (low << 16) + 0x8000u;
      const std::uint32_t even = (low & 1u) == 0 ? low : high;
      EXPECT_EQ(bf16(std::bit_cast<float>(middle - 1)).bits, low);
      EXPECT_EQ(bf16(std::bit_cast<float>(middle)).bits, even);
      EXPECT_EQ(bf16(std::bit_cast<float>(middle + 1)).bits, high);
    }
}

TEST(Bf16, KeepsNanAndInfinity) {
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(nan<float>))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(-nan<float>))));
  // All of this NaN's payload is in the half that bf16 drops.
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(static_cast<float>(bf16(INFINITY)), INFINITY);
  EXPECT_EQ(static_cast<float>(bf16(-INFINITY)), -INFINITY);
  // The largest float is nearer to 2^128 than to the largest bf16.
  EXPECT_EQ(static_cast<float>(bf16(std::numeric_limits<float>::max())), INFINITY);
  EXPECT_TRUE(std::signbit(static_cast<float>(bf16(-0.0f))));
}

TEST(Element, NamesAndSizes) {
  EXPECT_EQ(size_of(element_of<double>()), sizeof(double));
  EXPECT_EQ(size_of(element_of<float>()), sizeof(float));
  EXPECT_EQ(size_of(element_of<bf16>()), sizeof(bf16));
  EXPECT_EQ(size_of(element_of<std::int32_t>()), sizeof(std::int32_t));
  EXPECT_EQ(size_of(element_of<std::uint16_t>()), sizeof(std::uint16_t));
  EXPECT_EQ(name_of(element_of<bf16>()), "bf16");
  EXPECT_EQ(name_of(element_of<float>()), "fp32");
  EXPECT_EQ(name_of(element_of<double>()), "fp64");
  static_assert(std::is_same_v<Accumulator<bf16>, float> && std::is_same_v<Accumulator<const bf16>, float>);
  static_assert(std::is_same_v<Accumulator<double>, double>);
}

}  // namespace
}  // namespace atl::test
