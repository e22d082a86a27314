/// Sums in fp64 with a fixed order. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"

namespace atl {

/// Bytes that a sum over n elements allocates while it runs: a partial sum for every block of elements.
std::size_t sum_workspace_bytes(std::size_t n);

/// sum_i x(i)^2, each square and every sum in fp64, in an order that depends on the length alone. Not finite where an
/// element is not.
template <class T>
double sum_of_squares(const Exec& exec, View1<const T> x);

/// sum_i (x(i) - y(i))^2.
template <class T>
double sum_of_squared_differences(const Exec& exec, View1<const T> x, View1<const T> y);

/// sum_i x(i).
template <class T>
double sum(const Exec& exec, View1<const T> x);

}  // namespace atl
