/// fp32 matrix products on the host by oneDNN. SPDX-License-Identifier: Apache-2.0
#include "core/gemm_backends.hpp"

#include <dnnl.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstdlib>

namespace atl {

void gemm_onednn(const GemmCall<float>& call) {
  const bool ta = call.a_op == Transpose::yes, tb = call.b_op == Transpose::yes;
  const auto size = [](std::size_t n) { return static_cast<dnnl_dim_t>(n); };
  const dnnl_status_t status =
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', size(call.m), size(call.n), size(call.k), 1.0f, call.a,
                 size(call.a_row), call.b, size(tb ? call.k : call.n), call.beta, call.c, size(call.n));
  if (status != dnnl_success)
    throw Error("dnnl_sgemm failed with status " + std::to_string(static_cast<int>(status)) + " for a product of " +
                std::to_string(call.m) + " x " + std::to_string(call.k) + " x " + std::to_string(call.n));
}

std::string gemm_onednn_name() {
  const dnnl_version_t* version = dnnl_version();
  const char* isa = "generic";
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      isa = "sse41";
      break;
    case dnnl_cpu_isa_avx:
      isa = "avx";
      break;
    case dnnl_cpu_isa_avx2:
      isa = "avx2";
      break;
    case dnnl_cpu_isa_avx512_core:
      isa = "avx512";
      break;
    case dnnl_cpu_isa_avx512_core_vnni:
      isa = "avx512_vnni";
      break;
    case dnnl_cpu_isa_avx512_core_bf16:
      isa = "avx512_bf16";
      break;
    default:
      isa = "newer than avx512_bf16";
      break;
  }
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " (" + isa + " kernels)";
}

void gemm_onednn_threads(int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#else
  (void)threads;
#endif
}

}  // namespace atl
