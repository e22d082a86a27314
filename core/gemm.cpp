/// Which library multiplies what. SPDX-License-Identifier: Apache-2.0
#include "core/gemm.hpp"

#include "core/gemm_backends.hpp"
#include "core/launch.hpp"

namespace atl {

namespace {
// By rule, not by timing: oneDNN multiplies fp32 on host memory, since it knows every x86 processor from SSE 4.1 to AMX
// without being told, where a distribution's BLAS may not.
#ifdef ATOLL_HAVE_ONEDNN
template <class T>
constexpr bool by_onednn = kernels_on_host&& std::is_same_v<T, float>;
#else
template <class T>
constexpr bool by_onednn = false;
#endif
}  // namespace

template <class T>
void gemm(const Exec& exec, Transpose a_op, Transpose b_op, View2<const T> a, View2<const T> b, Accumulator<T> beta,
          View2<T> c) {
  const std::size_t m = c.extent(0), n = c.extent(1);
  const std::size_t k = a_op == Transpose::no ? a.extent(1) : a.extent(0);
  ATOLL_REQUIRE((a_op == Transpose::no ? a.extent(0) : a.extent(1)) == m);
  ATOLL_REQUIRE((b_op == Transpose::no ? b.extent(0) : b.extent(1)) == k);
  ATOLL_REQUIRE((b_op == Transpose::no ? b.extent(1) : b.extent(0)) == n);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    T* const data = c.data();
    for_each(
        "atoll::gemm_empty", exec, c.size(),
        KOKKOS_LAMBDA(const std::int64_t i) { data[i] = beta == T(0) ? T(0) : beta * data[i]; });
    return;
  }
  const GemmCall<T> call{a_op, b_op, m, n, k, a.data(), b.data(), beta, c.data()};
#ifdef ATOLL_HAVE_ONEDNN
  if constexpr (by_onednn<T>) {
    exec.fence();
    return gemm_onednn(call);
  }
#endif
  if constexpr (!by_onednn<T>) gemm_kokkos_kernels(exec, call);
}

std::string gemm_library(Element element) {
#ifdef ATOLL_HAVE_ONEDNN
  if (by_onednn<float> && element == Element::f32) return gemm_onednn_name();
#endif
  (void)element;
  return gemm_kokkos_kernels_name();
}

std::string gemm_warning(Element element) {
  if (by_onednn<float> && element == Element::f32) return "";
  return gemm_kokkos_kernels_warning();
}

void set_gemm_threads(int threads) {
#ifdef ATOLL_HAVE_ONEDNN
  gemm_onednn_threads(threads);
#endif
  gemm_kokkos_kernels_threads(threads);
}

template void gemm<float>(const Exec&, Transpose, Transpose, View2<const float>, View2<const float>, float,
                          View2<float>);
template void gemm<double>(const Exec&, Transpose, Transpose, View2<const double>, View2<const double>, double,
                           View2<double>);

}  // namespace atl
