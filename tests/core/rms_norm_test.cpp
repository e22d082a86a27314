/// SPDX-License-Identifier: Apache-2.0
#include "core/rms_norm.hpp"

#include "tests/core/finite_differences.hpp"

#include <cstring>

namespace atl::test {
namespace {

// Large, so that a forgotten eps shows.
constexpr double eps = 0.1;
// fp32: C/16 additions in a row, a square root, a division and three products, each off by half an ulp (6e-8).
template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-12 : 2e-6;

struct Size {
  std::size_t rows, columns;
};
// More and fewer rows than backward sums in parallel (32), columns around the 16 lanes of a sum.
constexpr Size sizes[] = {{1, 1}, {3, 7}, {33, 16}, {2, 65}, {70, 130}};

struct Normed {
  std::vector<double> y, r;
};
template <class T>
Normed naive(Size n, const std::vector<T>& x, const std::vector<T>& w) {
  Normed out{std::vector<double>(x.size()), std::vector<double>(n.rows)};
  for (std::size_t row = 0; row < n.rows; ++row) {
    double squares = 0;
    for (std::size_t c = 0; c < n.columns; ++c) squares += std::pow(static_cast<double>(x[row * n.columns + c]), 2);
    out.r[row] = 1 / std::sqrt(squares / static_cast<double>(n.columns) + eps);
    for (std::size_t c = 0; c < n.columns; ++c)
      out.y[row * n.columns + c] = static_cast<double>(w[c]) * static_cast<double>(x[row * n.columns + c]) * out.r[row];
  }
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
struct Forward {
  std::vector<T> y;
  std::vector<Accumulator<T>> r;
};
template <class T>
Forward<T> forward(Size n, const std::vector<T>& x, const std::vector<T>& w) {
  // NaN where nothing may be read.
  const auto y = device(std::vector<T>(x.size(), T(nan<float>)), n.rows, n.columns);
  const auto r = device(std::vector<Accumulator<T>>(n.rows, nan<float>));
  rms_norm<T>(Exec(), device(x, n.rows, n.columns), device(w), eps, y, r);
  const auto again = device(std::vector<T>(x.size(), T(nan<float>)), n.rows, n.columns);
  const auto residual = device(std::vector<T>(x.size(), T(nan<float>)), n.rows, n.columns);
  rms_norm<T>(Exec(), device(x, n.rows, n.columns), device(w), eps, again, r, residual);
  EXPECT_TRUE(same_bits(host(residual), x)) << "the residual is not x";
  EXPECT_TRUE(same_bits(host(again), host(y))) << "with a residual, y is another";
  return {host(y), host(r)};
}

template <class T>
struct Backward {
  std::vector<T> dx;
  std::vector<Accumulator<T>> dw;
};
template <class T>
Backward<T> backward(Size n, const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& dy,
                     const std::vector<T>& dx_before) {
  using R = Accumulator<T>;
  const auto made = forward(n, x, w);
  const auto r = device(made.r);
  const auto dx = device(dx_before, n.rows, n.columns);
  const auto dw = device(std::vector<R>(n.columns, nan<R>));
  const auto workspace = device(std::vector<R>(rms_norm_workspace(n.columns), nan<R>));
  const auto gradient = device(dy, n.rows, n.columns);
  rms_norm_backward<T>(Exec(), device(x, n.rows, n.columns), device(w), r, gradient, dx, dw, workspace);
  EXPECT_TRUE(same_bits(host(gradient), made.y)) << "y is not made again";
  return {host(dx), host(dw)};
}

template <class T>
class RmsNorm : public ::testing::Test {};
TYPED_TEST_SUITE(RmsNorm, Floats);

TYPED_TEST(RmsNorm, ForwardMatchesNaive) {
  using T = TypeParam;
  for (const Size n : sizes) {
    const auto x = random_values<T>(1, n.rows * n.columns), w = random_values<T>(2, n.columns);
    const auto expected = naive(n, x, w);
    const auto out = forward(n, x, w);
    EXPECT_LT(elementwise_error(out.y, expected.y), tolerance<T>) << n.rows << " x " << n.columns;
    EXPECT_LT(elementwise_error(out.r, expected.r), tolerance<T>);
  }
}

TYPED_TEST(RmsNorm, RowOfZerosIsFinite) {
  using T = TypeParam;
  const Size n{2, 9};
  const std::vector<T> x(18, T(0)), w(9, T(1));
  const auto out = forward(n, x, w);
  EXPECT_EQ(out.y, x);
  EXPECT_LT(elementwise_error(out.r, std::vector<double>(2, 1 / std::sqrt(eps))), tolerance<T>);
}

TEST(RmsNormGradient, MatchesFiniteDifferences) {
  for (const Size n : sizes) {
    const auto x = random_values<double>(1, n.rows * n.columns), w = random_values<double>(2, n.columns);
    const auto dy = random_values<double>(3, x.size());
    const auto out = backward(n, x, w, dy, std::vector<double>(x.size(), 0));
    expect_gradient([&](const std::vector<double>& moved) { return dot(forward(n, moved, w).y, dy); }, x, out.dx);
    expect_gradient([&](const std::vector<double>& moved) { return dot(forward(n, x, moved).y, dy); }, w, out.dw);
  }
}

TYPED_TEST(RmsNorm, BackwardAddsToDxAndOverwritesDw) {
  using T = TypeParam;
  for (const Size n : sizes) {
    const auto x = random_values<T>(1, n.rows * n.columns), w = random_values<T>(2, n.columns);
    const auto dy = random_values<T>(3, x.size()), before = random_values<T>(4, x.size(), 3);
    const auto from_zero = backward(n, x, w, dy, std::vector<T>(x.size(), T(0)));
    const auto added = backward(n, x, w, dy, before);  // dw starts as NaN there
    std::vector<double> expected(converted<double>(before));
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(from_zero.dx[i]);
    EXPECT_LT(relative_error(added.dx, expected), tolerance<T>);
    EXPECT_EQ(added.dw, from_zero.dw);
    EXPECT_TRUE(std::isfinite(relative_error(added.dw, added.dw)));
  }
}

TEST(RmsNormFp32, BackwardMatchesFp64AndRepeats) {
  const Size n{70, 130};
  const auto x = random_values<float>(1, n.rows * n.columns), w = random_values<float>(2, n.columns);
  const auto dy = random_values<float>(3, x.size()), zero = std::vector<float>(x.size(), 0);
  const auto exact =
      backward(n, converted<double>(x), converted<double>(w), converted<double>(dy), converted<double>(zero));
  const auto out = backward(n, x, w, dy, zero), again = backward(n, x, w, dy, zero);
  EXPECT_LT(relative_error(out.dx, exact.dx), tolerance<float>);
  EXPECT_LT(relative_error(out.dw, exact.dw), tolerance<float>);
  EXPECT_EQ(out.dx, again.dx);
  EXPECT_EQ(out.dw, again.dw);
}

TEST(RmsNormBf16, MatchesFp32OnRoundedInputs) {
  const Size n{70, 130};
  const auto x = rounded_to_bf16(random_values<float>(1, n.rows * n.columns));
  const auto w = rounded_to_bf16(random_values<float>(2, n.columns)),
             dy = rounded_to_bf16(random_values<float>(3, x.size()));
  const auto exact = forward(n, x, w);
  const auto out = forward(n, converted<bf16>(x), converted<bf16>(w));
  EXPECT_LT(elementwise_error(converted<float>(out.y), exact.y), bf16_tolerance);
  EXPECT_EQ(out.r, exact.r) << "kept in fp32";

  const std::vector<float> zero(x.size(), 0);
  const auto exact_gradient = backward(n, x, w, dy, zero);
  const auto gradient = backward(n, converted<bf16>(x), converted<bf16>(w), converted<bf16>(dy), converted<bf16>(zero));
  EXPECT_LT(relative_error(converted<float>(gradient.dx), exact_gradient.dx), bf16_tolerance);
  EXPECT_LT(relative_error(gradient.dw, exact_gradient.dw), 1e-6) << "summed in fp32";
}

}  // namespace
}  // namespace atl::test
