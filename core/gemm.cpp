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

#ifdef ATOLL_HAVE_ONEDNN
constexpr bool onednn_found = true;
#else
constexpr bool onednn_found = false;
#endif

#ifdef ATOLL_HAVE_CUBLASLT
constexpr bool by_cublaslt = !kernels_on_host;
#else
constexpr bool by_cublaslt = false;
#endif

int threads_of_library = 1;

/// Products are no Kokkos kernels where a library computes them: as regions, profilers show them all the same.
class Region {
 public:
  Region(Transpose a_op, Transpose b_op) : open_(Kokkos::Profiling::profileLibraryLoaded()) {
    const auto letter = [](Transpose op) { return op == Transpose::yes ? "t" : "n"; };
    if (open_) Kokkos::Profiling::pushRegion(std::string("atoll::gemm ") + letter(a_op) + letter(b_op));
  }
  ~Region() {
    if (open_) Kokkos::Profiling::popRegion();
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  bool open_;
};

template <class T>
void multiply(const Exec& exec, const GemmCall<T>& call) {
#ifdef ATOLL_HAVE_ONEDNN
  if constexpr (by_onednn<T>) {
    exec.fence();
    return in_rows(call, std::size_t(1) << 30, [](const GemmCall<T>& part) { gemm_onednn(part); });
  }
#endif
  if constexpr (!by_onednn<T>)
    in_rows(call, std::size_t(1) << 28, [&](const GemmCall<T>& part) { gemm_kokkos_kernels(exec, part); });
}

template <class C, class R>
void scale(const Exec& exec, R beta, const View2<C>& c) {
  C* const data = c.data();
  for_each(
      "atoll::gemm_empty", exec, c.size(),
      KOKKOS_LAMBDA(const std::int64_t i) { data[i] = beta == R(0) ? C(R(0)) : C(beta * R(data[i])); });
}

}  // namespace

template <class T, class C>
void gemm(const Exec& exec, Transpose a_op, Transpose b_op, View2<const T> a, View2<const T> b, Accumulator<T> beta,
          View2<C> c) {
  const std::size_t m = c.extent(0), n = c.extent(1);
  const std::size_t k = a_op == Transpose::no ? a.extent(1) : a.extent(0);
  ATOLL_REQUIRE((a_op == Transpose::no ? a.extent(0) : a.extent(1)) == m);
  ATOLL_REQUIRE((b_op == Transpose::no ? b.extent(0) : b.extent(1)) == k);
  ATOLL_REQUIRE((b_op == Transpose::no ? b.extent(1) : b.extent(0)) == n);
  if (m == 0 || n == 0) return;
  const Region region(a_op, b_op);
  if (k == 0) return scale(exec, beta, c);
#ifdef ATOLL_HAVE_CUBLASLT
  if constexpr (by_cublaslt) {
    make_progress();
    return gemm_cublaslt(exec, {a_op, b_op, m, n, k, a.data(), b.data(), c.data(), element_of<T>(), element_of<C>()},
                         beta);
  }
#endif
  const GemmCall<T, C> call{a_op, b_op, m, n, k, a.data(), a.extent(1), b.data(), beta, c.data()};
  if constexpr (std::is_same_v<T, bf16>)
    gemm_bf16(exec, call);
  else
    multiply(exec, call);
}

std::string gemm_library(Element element) {
#ifdef ATOLL_HAVE_CUBLASLT
  if (by_cublaslt) return gemm_cublaslt_name(element);
#endif
#ifdef ATOLL_HAVE_ONEDNN
  if (by_onednn<float> && element == Element::f32) return gemm_onednn_name();
#endif
  if (element == Element::bf16 && gemm_bf16_converts())
    return "blocks converted to fp32, multiplied by " + gemm_library(Element::f32);
#ifdef ATOLL_HAVE_ONEDNN
  if (element == Element::bf16) return gemm_onednn_name();
#endif
  return gemm_kokkos_kernels_name();
}

std::string gemm_warning(Element element) {
  if (by_cublaslt) return "";
  if (element == Element::bf16) {
    if (!gemm_bf16_converts()) return "";
    const std::string fp32 = gemm_warning(Element::f32);
    return "bf16 products are computed in fp32: train.precision = \"bf16\" saves memory here, but no time, since "
           "oneDNN " +
           std::string(onednn_found ? "finds no bf16 instructions in this processor" : "is not in this build") +
           (fp32.empty() ? "" : "; " + fp32);
  }
  if (by_onednn<float> && element == Element::f32) return "";
  return gemm_kokkos_kernels_warning();
}

std::size_t gemm_workspace_bytes(Element element) {
#ifdef ATOLL_HAVE_CUBLASLT
  if (by_cublaslt) return gemm_cublaslt_workspace_bytes();
#endif
  return element == Element::bf16 ? gemm_bf16_workspace_bytes() : 0;
}

std::size_t gemm_threads() { return static_cast<std::size_t>(threads_of_library); }

void set_gemm_tf32(bool on) {
#ifdef ATOLL_HAVE_CUBLASLT
  gemm_cublaslt_tf32(on);
#else
  if (on)
    throw ConfigError("train.tf32 = true, but fp32 products of this build are by " + gemm_library(Element::f32) +
                      ", which has no TF32: it is a format of NVIDIA's devices; leave the key out");
#endif
}

void set_gemm_threads(int threads) {
  threads_of_library = std::max(threads, 1);
#ifdef ATOLL_HAVE_ONEDNN
  gemm_onednn_threads(threads);
#endif
  gemm_kokkos_kernels_threads(threads);
}

#define ATOLL_INSTANTIATE(T, C) \
  template void gemm<T, C>(const Exec&, Transpose, Transpose, View2<const T>, View2<const T>, Accumulator<T>, View2<C>);
ATOLL_INSTANTIATE(float, float)
ATOLL_INSTANTIATE(double, double)
ATOLL_INSTANTIATE(bf16, bf16)
ATOLL_INSTANTIATE(bf16, float)
#undef ATOLL_INSTANTIATE

}  // namespace atl
