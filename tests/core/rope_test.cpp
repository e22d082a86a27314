/// SPDX-License-Identifier: Apache-2.0
#include "core/rope.hpp"

#include "tests/core/finite_differences.hpp"

namespace atl::test {
namespace {

struct Case {
  std::size_t sequences, length, heads, width, head_size;  // width: of a row, at least heads * head_size
};
constexpr Case cases[] = {{1, 1, 1, 2, 2}, {2, 7, 3, 60, 12}, {3, 23, 2, 48, 8}, {1, 130, 3, 320, 80}};

std::vector<double> frequencies(std::size_t head_size) {
  std::vector<double> f(head_size / 2);
  for (std::size_t d = 0; d < f.size(); ++d)
    f[d] = std::pow(10000.0, -2.0 * static_cast<double>(d) / static_cast<double>(head_size));
  return f;
}

template <class T>
std::vector<T> rotated(const Case& n, Rotation rotation, const std::vector<T>& x) {
  const auto view = device(x, n.sequences * n.length, n.width);
  rope<T>(Exec(), rotation, make_rope_table<T>(frequencies(n.head_size), n.length), n.heads, view);
  return host(view);
}

/// Pairs (d, d + D/2) as complex numbers times e^(i t f_d).
template <class T>
std::vector<double> naive(const Case& n, const std::vector<T>& x) {
  auto y = converted<double>(x);
  const auto f = frequencies(n.head_size);
  for (std::size_t row = 0; row < n.sequences * n.length; ++row)
    for (std::size_t head = 0; head < n.heads; ++head)
      for (std::size_t d = 0; d < f.size(); ++d) {
        const double angle = static_cast<double>(row % n.length) * f[d];
        const std::size_t low = row * n.width + head * n.head_size + d, high = low + f.size();
        const double a = y[low], b = y[high];
        y[low] = a * std::cos(angle) - b * std::sin(angle);
        y[high] = a * std::sin(angle) + b * std::cos(angle);
      }
  return y;
}

template <class T>
std::vector<T> values(const Case& n, std::uint64_t key) {
  return random_values<T>(key, n.sequences * n.length * n.width);
}

// fp32: sine and cosine rounded once, two products and a sum.
template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-12 : 3e-7;

template <class T>
class Rope : public ::testing::Test {};
TYPED_TEST_SUITE(Rope, Floats);

TYPED_TEST(Rope, MatchesNaive) {
  for (const Case& n : cases) {
    const auto x = values<TypeParam>(n, 1);
    EXPECT_LT(relative_error(rotated(n, Rotation::forward, x), naive(n, x)), tolerance<TypeParam>);
  }
}

TYPED_TEST(Rope, LeavesOtherHeadsAndPositionZeroAlone) {
  for (const Case& n : cases) {
    const auto x = values<TypeParam>(n, 1), y = rotated(n, Rotation::forward, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool still = i % n.width >= n.heads * n.head_size || i / n.width % n.length == 0;
      EXPECT_TRUE(!still || y[i] == x[i]) << i;
    }
  }
}

TYPED_TEST(Rope, InverseUndoesForward) {
  for (const Case& n : cases) {
    const auto x = values<TypeParam>(n, 1);
    EXPECT_LT(relative_error(rotated(n, Rotation::inverse, rotated(n, Rotation::forward, x)), x),
              2 * tolerance<TypeParam>);
  }
}

TEST(RopeGradient, IsTheInverseRotation) {
  for (const Case& n : cases) {
    const auto x = values<double>(n, 1), dy = values<double>(n, 2);
    expect_gradient([&](const std::vector<double>& moved) { return dot(rotated(n, Rotation::forward, moved), dy); }, x,
                    rotated(n, Rotation::inverse, dy));
  }
}

// What attention relies on: the product of two rotated vectors depends on their distance alone.
TEST(Rope, ProductsDependOnDistanceAlone) {
  const Case n{1, 40, 1, 12, 12};
  const auto one = random_values<double>(1, 12), other = random_values<double>(2, 12);
  std::vector<double> ones, others;
  for (std::size_t t = 0; t < n.length; ++t) {
    ones.insert(ones.end(), one.begin(), one.end());
    others.insert(others.end(), other.begin(), other.end());
  }
  const auto q = rotated(n, Rotation::forward, ones), k = rotated(n, Rotation::forward, others);
  const auto product = [&](std::size_t i, std::size_t j) {
    return std::inner_product(q.begin() + static_cast<std::ptrdiff_t>(i * 12),
                              q.begin() + static_cast<std::ptrdiff_t>(i * 12 + 12),
                              k.begin() + static_cast<std::ptrdiff_t>(j * 12), 0.0);
  };
  for (std::size_t i = 5; i < n.length; ++i) EXPECT_NEAR(product(i, i - 5), product(5, 0), 1e-12);
  EXPECT_GT(std::fabs(product(5, 0) - product(6, 0)), 1e-3);
}

TEST(RopeBf16, MatchesFp32OnRoundedInputs) {
  for (const Case& n : cases) {
    const auto x = rounded_to_bf16(values<float>(n, 1));
    EXPECT_LT(relative_error(converted<float>(rotated(n, Rotation::forward, converted<bf16>(x))),
                             rotated(n, Rotation::forward, x)),
              bf16_tolerance);
  }
}

TEST(Rope, RefusesMoreHeadsThanARowHolds) {
  EXPECT_THROW(rope<float>(Exec(), Rotation::forward, make_rope_table<float>(frequencies(8), 3), 3,
                           allocate<float>("atoll::test", 3, 16)),
               Error);
}

}  // namespace
}  // namespace atl::test
