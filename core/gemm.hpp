/// The one interface for matrix products. SPDX-License-Identifier: Apache-2.0
///
/// Behind it is one library for each element type and kind of memory: cuBLASLt on NVIDIA's devices; on the host oneDNN
/// for fp32 where it was found at build time, and for bf16 where the processor has instructions for it; Kokkos Kernels
/// (and the BLAS behind it) otherwise, which multiplies bf16 as blocks converted to fp32. Nothing else includes their
/// headers.
#pragma once

#include "core/array.hpp"

#include <string>

namespace atl {

enum class Transpose { no, yes };

/// c = op(a) op(b) + beta c, row-major. op(a): (M, K), op(b): (K, N), c: (M, N). beta = 0 overwrites c, whatever it
/// held. Empty products (K = 0) give beta c. C is T, or fp32 for products of bf16. Those are summed in fp32, beta c
/// included, and rounded once where c is bf16.
template <class T, class C>
void gemm(const Exec& exec, Transpose a_op, Transpose b_op, View2<const T> a, View2<const T> b, Accumulator<T> beta,
          View2<C> c);

/// For people: "oneDNN 2.6.3 (avx2)" or "Kokkos Kernels with OpenBLAS 0.3.21 (Zen)".
std::string gemm_library(Element element);

/// A warning with its fix where the library in use is known to be slow on this processor; empty otherwise.
std::string gemm_warning(Element element);

/// Bytes that products of this type allocate once, with the first of them.
std::size_t gemm_workspace_bytes(Element element);

/// Whether later products of fp32 may round their factors to TF32's 10 bits, on the tensor cores of NVIDIA's devices.
/// Throws ConfigError where the library has no TF32.
void set_gemm_tf32(bool on);

/// Threads of the library for calls from this process. Call once at start, before the first product.
void set_gemm_threads(int threads);

}  // namespace atl
