/// Host vectors in and out of kernels, and how far they are apart. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"
#include "core/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace atl::test {

using Floats = ::testing::Types<float, double>;

template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();

/// Standard normal values times `scale`, the same on every run.
template <class T>
std::vector<T> random_values(std::uint64_t key, std::size_t n, double scale = 1) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(scale * random_normal(key, i));
  return values;
}

/// Whole numbers in [-4, 4], whose products and sums are exact in every type for short sums.
template <class T>
std::vector<T> random_integers(std::uint64_t key, std::size_t n) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(static_cast<int>(random_bits(key, i) % 9) - 4);
  return values;
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& from) {
  std::vector<To> to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<To>(from[i]);
  return to;
}
/// What bf16 keeps of each value.
inline std::vector<float> rounded_to_bf16(const std::vector<float>& values) {
  return converted<float>(converted<bf16>(values));
}

template <class T>
View1<T> device(const std::vector<T>& values) {
  return to_device("atoll::test", values);
}
template <class T>
View2<T> device(const std::vector<T>& values, std::size_t rows, std::size_t columns) {
  ATOLL_REQUIRE(values.size() == rows * columns);
  const View2<T> view(Kokkos::view_alloc("atoll::test", Kokkos::WithoutInitializing), rows, columns);
  copy_to_device(values, flat(view));
  return view;
}
template <class T>
std::vector<std::remove_const_t<T>> host(const View1<T>& view) {
  Exec().fence();
  return to_host(view);
}
template <class T>
std::vector<std::remove_const_t<T>> host(const View2<T>& view) {
  return host(flat(view));
}

/// Largest |a - b| over the largest |b|; infinite where either is not finite or the lengths differ.
template <class A, class B>
double relative_error(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, largest = std::numeric_limits<double>::min();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return INFINITY;
    difference = std::max(difference, std::fabs(x - y));
    largest = std::max(largest, std::fabs(y));
  }
  return difference / largest;
}

/// Largest |a - b| / |b| of any element.
template <class A, class B>
double elementwise_error(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return INFINITY;
    if (x != y) worst = std::max(worst, std::fabs(x - y) / std::fabs(y));
  }
  return worst;
}

/// Rounding to bf16 changes a number by at most half of 2^-7; twice that leaves room for the fp32 arithmetic before it.
inline constexpr double bf16_tolerance = 0x1p-8 + 0x1p-14;

}  // namespace atl::test
