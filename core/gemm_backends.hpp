/// What gemm.cpp chooses from. Included by the gemm*.cpp files only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/gemm.hpp"

namespace atl {

/// Arguments of one product, row-major, leading dimensions in elements.
template <class T>
struct GemmCall {
  Transpose a_op, b_op;
  std::size_t m, n, k;
  const T* a;
  const T* b;
  T beta;
  T* c;
};

template <class T>
void gemm_kokkos_kernels(const Exec& exec, const GemmCall<T>& call);
std::string gemm_kokkos_kernels_name();
std::string gemm_kokkos_kernels_warning();
void gemm_kokkos_kernels_threads(int threads);

#ifdef ATOLL_HAVE_ONEDNN
void gemm_onednn(const GemmCall<float>& call);
std::string gemm_onednn_name();
void gemm_onednn_threads(int threads);
#endif

}  // namespace atl
