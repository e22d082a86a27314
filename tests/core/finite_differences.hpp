/// Gradients against central differences, in fp64. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/core/host_values.hpp"

#include <numeric>

namespace atl::test {

/// Derivative of f at x along `direction`, from four values of f: the error is O(h^4), and rounding adds about 1e-13
/// |f|.
template <class F>
double central_difference(const F& f, const std::vector<double>& x, const std::vector<double>& direction) {
  constexpr double h = 1e-3;
  const auto at = [&](double step) {
    std::vector<double> moved(x);
    for (std::size_t i = 0; i < x.size(); ++i) moved[i] += step * direction[i];
    return f(moved);
  };
  return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
}

/// Compares `gradient` with differences of f along random directions, and element by element where there are few.
/// Errors are relative to the gradient's typical size, so that neither cancellation nor a small element hides a fault.
template <class F>
void expect_gradient(const F& f, const std::vector<double>& x, const std::vector<double>& gradient,
                     double tolerance = 1e-8) {
  ASSERT_EQ(gradient.size(), x.size());
  const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
  for (std::uint64_t key = 100; key < 103; ++key) {
    const auto direction = random_values<double>(key, x.size());
    const double exact = std::inner_product(gradient.begin(), gradient.end(), direction.begin(), 0.0);
    EXPECT_NEAR(central_difference(f, x, direction), exact, tolerance * norm) << "direction " << key;
  }
  if (x.size() > 400) return;
  const double typical = norm / std::sqrt(static_cast<double>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<double> direction(x.size(), 0.0);
    direction[i] = 1;
    EXPECT_NEAR(central_difference(f, x, direction), gradient[i], tolerance * typical) << "element " << i;
  }
}

template <class A>
double dot(const std::vector<A>& a, const std::vector<double>& b) {
  ATOLL_REQUIRE(a.size() == b.size());
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace atl::test
