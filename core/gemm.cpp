/// Which library multiplies what. SPDX-License-Identifier: Apache-2.0
#include "core/gemm.hpp"

#include "core/gemm_backends.hpp"
#include "core/launch.hpp"

#include <algorithm>

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

int threads_of_library = 1;

template <class T>
void multiply(const Exec& exec, const GemmCall<T>& call) {
  make_progress();
#ifdef ATOLL_HAVE_ONEDNN
  if constexpr (by_onednn<T>) {
    exec.fence();
    return gemm_onednn(call);
  }
#endif
  if constexpr (!by_onednn<T>) gemm_kokkos_kernels(exec, call);
}

/// Rows of c, or terms of its sums, that one call of the library computes. On the host a call is over in some 10 ms, so
/// that transfers under way are looked at often enough to keep a network busy (core/progress); on a device it is the
/// whole product. A rule of sizes only, so that results do not depend on what is under way.
std::size_t part_of(std::size_t whole, std::size_t other_extents) {
  if constexpr (!kernels_on_host) return whole;
  constexpr std::size_t multiplications = std::size_t(1) << 28, least = 128;
  const std::size_t limit = multiplications * static_cast<std::size_t>(threads_of_library);
  return std::max(least, limit / std::max<std::size_t>(other_extents, 1) / least * least);
}
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
  GemmCall<T> call{a_op, b_op, m, n, k, a.data(), b.data(), beta, c.data()};
  if (a_op == Transpose::no) {
    const std::size_t rows = part_of(m, n * k);
    for (std::size_t first = 0; first < m; first += rows) {
      call.m = std::min(rows, m - first);
      call.a = a.data() + first * k;
      call.c = c.data() + first * n;
      multiply(exec, call);
    }
  } else if (b_op == Transpose::no) {
    const std::size_t terms = part_of(k, m * n);
    for (std::size_t first = 0; first < k; first += terms) {
      call.k = std::min(terms, k - first);
      call.a = a.data() + first * m;
      call.b = b.data() + first * n;
      call.beta = first == 0 ? beta : T(1);
      multiply(exec, call);
    }
  } else {
    multiply(exec, call);
  }
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
  threads_of_library = std::max(threads, 1);
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
