/// What gemm.cpp chooses from. Included by the gemm*.cpp files only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/gemm.hpp"
#include "core/gemm_column_major.hpp"
#include "core/progress.hpp"

#include <algorithm>

namespace atl {

/// Arguments of one product, row-major. C: type of c. Rows of the stored a are `a_row` elements apart, so that it may
/// be a part of the columns of a larger matrix; b and c are packed.
template <class T, class C = T>
struct GemmCall {
  Transpose a_op, b_op;
  std::size_t m, n, k;
  const T* a;
  std::size_t a_row;
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

/// f(part of the call) for rows of c, a call of the library each, of some `multiplications` for each of its threads: on
/// the host that takes some 10 ms, so that transfers under way are looked at often enough to keep a network busy
/// (core/progress). A rule of sizes only, so that results do not depend on what is under way.
template <class T, class C, class F>
void in_rows(const GemmCall<T, C>& call, std::size_t multiplications, const F& f) {
  constexpr std::size_t least = 128;
  const std::size_t limit = multiplications * gemm_threads() / (call.n * call.k);
  const std::size_t rows = kernels_on_host ? std::max(least, limit / least * least) : call.m;
  for (std::size_t first = 0; first < call.m; first += rows) {
    GemmCall<T, C> part = call;
    part.m = std::min(rows, call.m - first);
    part.a += first * (call.a_op == Transpose::yes ? 1 : call.a_row);
    part.c += first * call.n;
    make_progress();
    f(part);
  }
}

#ifdef ATOLL_HAVE_CUBLASLT
/// c = op(a) op(b) + beta c; fp64, fp32, bf16, or bf16 into fp32. Starts on exec, does not wait.
void gemm_cublaslt(const Exec& exec, const RowMajorProduct& product, double beta);
std::string gemm_cublaslt_name(Element element);
void gemm_cublaslt_tf32(bool on);
std::size_t gemm_cublaslt_workspace_bytes();
#endif

#ifdef ATOLL_HAVE_ONEDNN
void gemm_onednn(const GemmCall<float>& call);
template <class C>
void gemm_onednn_bf16(const GemmCall<bf16, C>& call);
bool onednn_multiplies_bf16();  ///< with instructions made for it
std::string gemm_onednn_name();
void gemm_onednn_threads(int threads);
#endif

}  // namespace atl
