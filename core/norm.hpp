/// Sums in fp64 with a fixed order. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"

namespace atl {

/// Partial sums of a sum: the size of its workspace `partial`, which is allocated for the call where none is given.
inline constexpr std::size_t sum_workspace = 1024;

/// sum_i x(i)^2, each square and every sum in fp64, in an order that depends on the length alone. Not finite where an
/// element is not.
template <class T>
double sum_of_squares(const Exec& exec, View1<const T> x, View1<double> partial = {});

/// sum_i (x(i) - y(i))^2.
template <class T>
double sum_of_squared_differences(const Exec& exec, View1<const T> x, View1<const T> y, View1<double> partial = {});

/// sum_i x(i).
template <class T>
double sum(const Exec& exec, View1<const T> x, View1<double> partial = {});

}  // namespace atl
