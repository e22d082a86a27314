/// Root-mean-square normalisation (arXiv:1910.07467, eq. 4). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"

namespace atl {

/// y(n,c) = w(c) x(n,c) r(n), r(n) = 1 / sqrt(mean_c x(n,c)^2 + eps). x, y: (N, C); w: (C). Overwrites y and the
/// reciprocals r: (N), which backward needs. `residual` (N, C), where one is given, becomes x in the same pass: what
/// products that follow add to.
template <class T>
void rms_norm(const Exec& exec, View2<const T> x, View1<const T> w, double eps, View2<T> y, View1<Accumulator<T>> r,
              View2<T> residual = {});

/// Adds to dx (N, C) the gradient through the norm, from dy (N, C); overwrites dw (C), summed over rows in a fixed
/// order, and dy with y as rms_norm made it, to the bit: so nobody keeps that for the gradient of the weights that it
/// was multiplied with. `partial` is workspace of at least rms_norm_workspace(C) elements.
template <class T>
void rms_norm_backward(const Exec& exec, View2<const T> x, View1<const T> w, View1<const Accumulator<T>> r, View2<T> dy,
                       View2<T> dx, View1<Accumulator<T>> dw, View1<Accumulator<T>> partial);

std::size_t rms_norm_workspace(std::size_t hidden_size);

}  // namespace atl
