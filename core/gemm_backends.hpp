/// What gemm.cpp chooses from. Included by the gemm*.cpp files only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/gemm.hpp"
#include "core/gemm_column_major.hpp"

namespace atl {

/// Arguments of one product, row-major. C: type of c.
template <class T, class C = T>
struct GemmCall {
  Transpose a_op, b_op;
  std::size_t m, n, k;
  const T* a;
  const T* b;
  Accumulator<T> beta;
  C* c;
};

template <class T>
void gemm_kokkos_kernels(const Exec& exec, const GemmCall<T>& call);
std::string gemm_kokkos_kernels_name();
std::string gemm_kokkos_kernels_warning();
void gemm_kokkos_kernels_threads(int threads);

/// Products of bf16 (gemm_bf16.cpp): by oneDNN, or by blocks that are converted to fp32.
template <class C>
void gemm_bf16(const Exec& exec, const GemmCall<bf16, C>& call);
bool gemm_bf16_converts();  ///< by blocks
std::size_t gemm_bf16_workspace_bytes();
std::size_t gemm_threads();  ///< of set_gemm_threads

#ifdef ATOLL_HAVE_CUBLASLT
/// c = op(a) op(b) + beta c; fp64, fp32, bf16, or bf16 into fp32. Starts on exec, does not wait.
void gemm_cublaslt(const Exec& exec, const RowMajorProduct& product, double beta);
std::string gemm_cublaslt_name(Element element);
void gemm_cublaslt_tf32(bool on);
std::size_t gemm_cublaslt_workspace_bytes();
#endif

#ifdef ATOLL_HAVE_ONEDNN
void gemm_onednn(const GemmCall<float>& call);
/// Rows of the stored a are `a_row` elements apart: a part of the columns of a larger matrix, if need be.
template <class C>
void gemm_onednn_bf16(const GemmCall<bf16, C>& call, std::size_t a_row);
bool onednn_multiplies_bf16();  ///< with instructions made for it
std::string gemm_onednn_name();
void gemm_onednn_threads(int threads);
#endif

}  // namespace atl
