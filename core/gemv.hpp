/// Products with few rows: one pass over a weight matrix, whose bytes are what takes the time. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "core/array.hpp"

namespace atl {

/// y = x w^T + beta y for few rows: x (N, K), w (M, K), y (N, M). beta = 0 overwrites y, whatever it held. Every
/// element's sum has an order of its own that depends on K alone: a row of y has the same bits whatever other rows
/// there are (gemm does not promise that). Each row of w is read from memory once for all rows of x. Y: T or its
/// accumulator.
template <class T, class Y = T>
void gemv(const Exec& exec, View2<const T> x, View2<const T> w, Accumulator<T> beta, View2<Y> y);

}  // namespace atl
