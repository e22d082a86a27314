/// Matrix products by Kokkos Kernels, which calls the BLAS, cuBLAS or rocBLAS it was built with.
/// SPDX-License-Identifier: Apache-2.0
#include "core/gemm_backends.hpp"

#include <KokkosBlas3_gemm.hpp>

#include <dlfcn.h>

namespace atl {

namespace {

template <class Function>
Function* loaded_symbol(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// OpenBLAS is reached through the BLAS interface, so its own functions are looked up where they are loaded, not linked.
std::string openblas_core() {
  if (auto* core = loaded_symbol<char*()>("openblas_get_corename")) return core();
  return "";
}

}  // namespace

template <class T>
void gemm_kokkos_kernels(const Exec&, const GemmCall<T>& call) {
  const bool ta = call.a_op == Transpose::yes, tb = call.b_op == Transpose::yes;
  const View2<const T> stored(call.a, ta ? call.k : call.m, call.a_row);
  const auto a = Kokkos::subview(stored, Kokkos::ALL, Kokkos::make_pair(std::size_t(0), ta ? call.m : call.k));
  const View2<const T> b(call.b, tb ? call.n : call.k, tb ? call.k : call.n);
  const View2<T> c(call.c, call.m, call.n);
  KokkosBlas::gemm(ta ? "T" : "N", tb ? "T" : "N", T(1), a, b, call.beta, c);
}

std::string gemm_kokkos_kernels_name() {
  std::string name = "Kokkos Kernels";
  if (!kernels_on_host) return name + " on " + Exec::name();
  const std::string core = openblas_core();
  if (core.empty()) return name + " with the BLAS it was built with";
  std::string version = "OpenBLAS";
  if (auto* config = loaded_symbol<char*()>("openblas_get_config")) {
    const std::string text = config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
    version = text.substr(0, text.find(' ', text.find(' ') + 1));
  }
  return name + " with " + version + " (" + core + " kernels)";
}

std::string gemm_kokkos_kernels_warning() {
  if (openblas_core() == "Prescott")
    return "OpenBLAS does not know this processor and uses its Prescott kernels, several times slower than it could "
           "be; "
           "set OPENBLAS_CORETYPE to the nearest processor it knows (Haswell, SkylakeX, Zen) or install a newer "
           "OpenBLAS";
  return "";
}

void gemm_kokkos_kernels_threads(int threads) {
  if (auto* set = loaded_symbol<void(int)>("openblas_set_num_threads")) set(threads);
}

template void gemm_kokkos_kernels<float>(const Exec&, const GemmCall<float>&);
template void gemm_kokkos_kernels<double>(const Exec&, const GemmCall<double>&);

}  // namespace atl
