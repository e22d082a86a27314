/// SPDX-License-Identifier: Apache-2.0
#include "core/swiglu.hpp"

#include "tests/core/finite_differences.hpp"

#include <cstring>

namespace atl::test {
namespace {

struct Size {
  std::size_t rows, columns;
};
constexpr Size sizes[] = {{1, 1}, {3, 7}, {5, 65}, {23, 130}};

// fp32: e^x within 2 ulp, then an addition, a division and a product.
template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-12 : 5e-7;

template <class T>
std::vector<T> forward(Size n, const std::vector<T>& gate_up) {
  const auto y = device(std::vector<T>(n.rows * n.columns, T(nan<float>)), n.rows, n.columns);
  swiglu<T>(Exec(), device(gate_up, n.rows, 2 * n.columns), y);
  return host(y);
}

template <class T>
std::vector<T> backward(Size n, const std::vector<T>& gate_up, const std::vector<T>& dy) {
  const auto gradient = device(gate_up, n.rows, 2 * n.columns);
  const auto made = device(dy, n.rows, n.columns);
  swiglu_backward<T>(Exec(), made, gradient);
  EXPECT_EQ(std::memcmp(host(made).data(), forward(n, gate_up).data(), dy.size() * sizeof(T)), 0)
      << "y is not made again";
  return host(gradient);
}

template <class T>
std::vector<double> naive(Size n, const std::vector<T>& gate_up) {
  std::vector<double> y(n.rows * n.columns);
  for (std::size_t row = 0; row < n.rows; ++row)
    for (std::size_t f = 0; f < n.columns; ++f) {
      const double g = static_cast<double>(gate_up[row * 2 * n.columns + f]);
      const double u = static_cast<double>(gate_up[row * 2 * n.columns + n.columns + f]);
      y[row * n.columns + f] = g / (1 + std::exp(-g)) * u;
    }
  return y;
}

template <class T>
class Swiglu : public ::testing::Test {};
TYPED_TEST_SUITE(Swiglu, Floats);

TYPED_TEST(Swiglu, ForwardMatchesNaive) {
  using T = TypeParam;
  for (const Size n : sizes) {
    const auto gate_up = random_values<T>(1, 2 * n.rows * n.columns, 4);
    EXPECT_LT(elementwise_error(forward(n, gate_up), naive(n, gate_up)), tolerance<T>);
  }
}

TYPED_TEST(Swiglu, LargeGatesStayFinite) {
  using T = TypeParam;
  const std::vector<T> gate_up = {T(-1e4), T(-100), T(100), T(1e4), T(1), T(2), T(3), T(4)};
  const auto y = forward({1, 4}, gate_up);
  EXPECT_NEAR(static_cast<double>(y[0]), 0, 1e-30);
  EXPECT_NEAR(static_cast<double>(y[1]), 0, 1e-30);
  EXPECT_EQ(y[2], T(300));
  EXPECT_EQ(y[3], T(40000));
  const auto gradient = backward<T>({1, 4}, gate_up, {T(1), T(1), T(1), T(1)});
  const std::vector<double> expected = {0, 0, 3, 4, 0, 0, 100, 1e4};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(static_cast<double>(gradient[i]), expected[i], 1e-30) << i;
}

TEST(SwigluGradient, MatchesFiniteDifferences) {
  for (const Size n : sizes) {
    const auto gate_up = random_values<double>(1, 2 * n.rows * n.columns, 2),
               dy = random_values<double>(2, n.rows * n.columns);
    expect_gradient([&](const std::vector<double>& moved) { return dot(forward(n, moved), dy); }, gate_up,
                    backward(n, gate_up, dy));
  }
}

TEST(SwigluFp32, BackwardMatchesFp64) {
  const Size n{23, 130};
  const auto gate_up = random_values<float>(1, 2 * n.rows * n.columns, 4),
             dy = random_values<float>(2, n.rows * n.columns);
  const auto exact = backward(n, converted<double>(gate_up), converted<double>(dy));
  EXPECT_LT(relative_error(backward(n, gate_up, dy), exact), tolerance<float>);
}

TEST(SwigluBf16, MatchesFp32OnRoundedInputs) {
  const Size n{23, 130};
  const auto gate_up = rounded_to_bf16(random_values<float>(1, 2 * n.rows * n.columns, 4));
  const auto dy = rounded_to_bf16(random_values<float>(2, n.rows * n.columns));
  EXPECT_LT(elementwise_error(converted<float>(forward(n, converted<bf16>(gate_up))), forward(n, gate_up)),
            bf16_tolerance);
  EXPECT_LT(elementwise_error(converted<float>(backward(n, converted<bf16>(gate_up), converted<bf16>(dy))),
                              backward(n, gate_up, dy)),
            bf16_tolerance);
}

}  // namespace
}  // namespace atl::test
