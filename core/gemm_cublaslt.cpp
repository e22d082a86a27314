/// Matrix products on NVIDIA's devices by cuBLASLt. SPDX-License-Identifier: Apache-2.0
///
/// fp64; fp32, or with tf32 products of numbers rounded to 10 bits; bf16 into bf16 or fp32. All but fp64 are summed in
/// fp32, also where a sum is cut in parts. cuBLASLt's heuristic chooses the algorithm, once for each shape, from types,
/// sizes and alignments alone; so equal devices and libraries give the same bits, run after run.
#include "core/gemm_backends.hpp"

#include <cublasLt.h>
#include <map>
#include <memory>
#include <tuple>

namespace atl {

namespace {

void require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(std::string("cuBLASLt failed: ") + call + ": " + cublasLtGetStatusString(status));
}
#define ATOLL_CUBLASLT(call) require((call), #call)

/// What NVIDIA recommends for its newest devices; parts of sums lie there.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

bool tf32 = false;

cudaDataType_t type_of(Element element) {
  switch (element) {
    case Element::f64:
      return CUDA_R_64F;
    case Element::f32:
      return CUDA_R_32F;
    case Element::bf16:
      return CUDA_R_16BF;
    default:
      contract_violated("products are of fp64, fp32 or bf16", __FILE__, __LINE__);
  }
}

cublasComputeType_t compute_type(Element element) {
  if (element == Element::f64) return CUBLAS_COMPUTE_64F;
  return element == Element::f32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// All that the choice of an algorithm depends on.
using Key = std::tuple<Transpose, Transpose, std::size_t, std::size_t, std::size_t, Element, Element, std::uint32_t,
                       std::uint32_t, std::uint32_t, bool>;

Key key_of(const RowMajorProduct& p) {
  return {p.a_op, p.b_op, p.m, p.n, p.k, p.in, p.out, alignment_of(p.a), alignment_of(p.b), alignment_of(p.c), tf32};
}

struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  Layout(Element element, const ColumnMajorMatrix& m) {
    ATOLL_CUBLASLT(
        cublasLtMatrixLayoutCreate(&handle, type_of(element), m.rows, m.columns, static_cast<std::int64_t>(m.rows)));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

struct Operation {
  cublasLtMatmulDesc_t handle = nullptr;
  Operation(Element element, const ColumnMajorProduct& p) {
    ATOLL_CUBLASLT(
        cublasLtMatmulDescCreate(&handle, compute_type(element), element == Element::f64 ? CUDA_R_64F : CUDA_R_32F));
    const auto op = [](Transpose transpose) { return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const cublasOperation_t first = op(p.first_op), second = op(p.second_op);
    ATOLL_CUBLASLT(cublasLtMatmulDescSetAttribute(handle, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
    ATOLL_CUBLASLT(cublasLtMatmulDescSetAttribute(handle, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)));
  }
  ~Operation() { cublasLtMatmulDescDestroy(handle); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
};

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  explicit Preference(const ColumnMajorProduct& p, const void* c) {
    ATOLL_CUBLASLT(cublasLtMatmulPreferenceCreate(&handle));
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
    // Never added up in c, which may be bf16.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    // Arrays are parts of larger ones, so less aligned than cuBLASLt takes for granted.
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.first));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.second));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(c));
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

 private:
  template <class V>
  void set(cublasLtMatmulPreferenceAttributes_t what, V value) {
    ATOLL_CUBLASLT(cublasLtMatmulPreferenceSetAttribute(handle, what, &value, sizeof(value)));
  }
};

/// A product of one shape, ready to run.
struct Plan {
  Operation operation;
  Layout first, second, c;
  cublasLtMatmulAlgo_t algorithm{};

  Plan(cublasLtHandle_t library, const RowMajorProduct& row, const ColumnMajorProduct& p)
      : operation(row.in, p), first(row.in, p.first_shape), second(row.in, p.second_shape), c(row.out, p.c_shape) {
    const Preference preference(p, row.c);
    cublasLtMatmulHeuristicResult_t found{};
    int number = 0;
    ATOLL_CUBLASLT(cublasLtMatmulAlgoGetHeuristic(library, operation.handle, first.handle, second.handle, c.handle,
                                                  c.handle, preference.handle, 1, &found, &number));
    if (number == 0)
      throw Error("cuBLASLt has no algorithm for a product of " + std::to_string(row.m) + " x " +
                  std::to_string(row.k) + " x " + std::to_string(row.n) + " in " + std::string(name_of(row.in)));
    algorithm = found.algo;
  }
};

struct Library {
  cublasLtHandle_t handle = nullptr;
  Kokkos::View<unsigned char*, Memory> workspace{
      Kokkos::view_alloc(std::string("atoll::gemm_workspace"), Kokkos::WithoutInitializing), workspace_bytes};
  std::map<Key, std::unique_ptr<Plan>> plans;
  Library() { ATOLL_CUBLASLT(cublasLtCreate(&handle)); }
  ~Library() {
    plans.clear();
    cublasLtDestroy(handle);
  }
};

/// Made with the first product, freed with Kokkos. Products run one after another on one stream, so that they share
/// the workspace.
Library& library() {
  static std::unique_ptr<Library> made;
  if (!made) {
    made = std::make_unique<Library>();
    Kokkos::push_finalize_hook([] { made.reset(); });
  }
  return *made;
}

}  // namespace

void gemm_cublaslt(const Exec& exec, const RowMajorProduct& row, double beta) {
  Library& cublas = library();
  const ColumnMajorProduct p = as_column_major(row);
  std::unique_ptr<Plan>& plan = cublas.plans[key_of(row)];
  if (!plan) plan = std::make_unique<Plan>(cublas.handle, row, p);
  const bool f64 = row.in == Element::f64;
  const double one64 = 1;
  const float one32 = 1, beta32 = static_cast<float>(beta);
  const void* const alpha_value = f64 ? static_cast<const void*>(&one64) : &one32;
  const void* const beta_value = f64 ? static_cast<const void*>(&beta) : &beta32;
  ATOLL_CUBLASLT(cublasLtMatmul(cublas.handle, plan->operation.handle, alpha_value, p.first, plan->first.handle,
                                p.second, plan->second.handle, beta_value, row.c, plan->c.handle, row.c, plan->c.handle,
                                &plan->algorithm, cublas.workspace.data(), workspace_bytes, exec.cuda_stream()));
}

std::string gemm_cublaslt_name(Element element) {
  const std::size_t version = cublasLtGetVersion();  // 130100: 13.1.0
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100) + (element == Element::f32 && tf32 ? " (TF32)" : "");
}

void gemm_cublaslt_tf32(bool on) { tf32 = on; }

std::size_t gemm_cublaslt_workspace_bytes() { return workspace_bytes; }

}  // namespace atl
