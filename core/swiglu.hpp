/// SwiGLU (arXiv:2002.05202): silu(gate) * up. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"

namespace atl {

/// y(n,f) = silu(g) u with g = gate_up(n,f), u = gate_up(n,F+f), silu(g) = g / (1 + e^-g). gate_up: (N, 2F); y: (N, F).
template <class T>
void swiglu(const Exec& exec, View2<const T> gate_up, View2<T> y);

/// Overwrites gate_up (N, 2F) with the gradient of the gate and of up, and their gradient dy (N, F) with what swiglu
/// made of them, to the bit: so nobody keeps it for the gradient of the weights that it was multiplied with.
template <class T>
void swiglu_backward(const Exec& exec, View2<T> dy, View2<T> gate_up);

}  // namespace atl
