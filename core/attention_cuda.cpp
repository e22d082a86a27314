/// SPDX-License-Identifier: Apache-2.0
#include "core/attention_cuda.hpp"

#include "core/attention_tensor_cores.hpp"
#include "core/progress.hpp"

namespace atl {

namespace {

using tensor_cores::Dimensions;

/// A thread of a block on a device (core/tensor_core_tiles.hpp).
class CudaBlock {
 public:
  __device__ explicit CudaBlock(char* shared) : shared_(shared) {}
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ char* shared() const { return shared_; }
  __device__ void barrier() { __syncthreads(); }

  __device__ void copy(bf16* to, const bf16* from, bool known) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(known ? 16 : 0)
                 : "memory");
  }
  __device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int n>
  __device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
  }
  __device__ void copy_out(bf16* to, const bf16* from) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  }
  __device__ void store_pair(bf16* to, std::uint32_t pair) { *reinterpret_cast<std::uint32_t*>(to) = pair; }

  __device__ void load_matrices(std::uint32_t (&r)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address(row))
                 : "memory");
  }
  __device__ void load_matrices_transposed(std::uint32_t (&r)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address(row))
                 : "memory");
  }
  __device__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
  __device__ std::uint32_t pack(float low, float high) const {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  __device__ float exp2(float x) const {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
  }

 private:
  static __device__ std::uint32_t address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
  char* shared_;
};

template <class Kernel>
__global__ void __launch_bounds__(tensor_cores::threads) run(const Kernel kernel) {
  extern __shared__ __align__(16) char shared[];
  CudaBlock block(shared);
  kernel(block, static_cast<int>(blockIdx.x));
}

void require(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw Error(std::string(call) + " failed: " + cudaGetErrorString(status));
}

template <class Kernel>
void start(const std::string& label, const Exec& exec, const Kernel& kernel, std::size_t blocks) {
  ATOLL_REQUIRE(blocks <= static_cast<std::size_t>(INT32_MAX));
  make_progress();
  Kokkos::Profiling::pushRegion(label);
  constexpr int bytes = static_cast<int>(Kernel::shared_bytes);
  [[maybe_unused]] static const bool allowed = [] {  // once: a process has one device
    require(cudaFuncSetAttribute(run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
            "attention: cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
    return true;
  }();
  run<Kernel><<<static_cast<unsigned>(blocks), tensor_cores::threads, bytes, exec.cuda_stream()>>>(kernel);
  require(cudaGetLastError(), "attention: the start of a kernel");
  Kokkos::Profiling::popRegion();
}

void require_aligned(const void* array) { ATOLL_REQUIRE(reinterpret_cast<std::uintptr_t>(array) % 16 == 0); }

}  // namespace

void attention_cuda(const Exec& exec, const AttentionShape& shape, const bf16* qkv, bf16* out, float* lse,
                    const std::int32_t* first_keys) {
  if (shape.sequences * shape.length == 0) return;
  for (const void* array : {static_cast<const void*>(qkv), static_cast<const void*>(out)}) require_aligned(array);
  const Dimensions n(shape, tensor_cores::block_rows, first_keys);
  tensor_cores::with_columns(shape.head_size, [&](auto columns) {
    using Forward = tensor_cores::Forward<columns.value>;
    start("atoll::attention", exec, Forward{n, qkv, out, lse}, Forward::blocks(n, shape.sequences));
  });
}

void attention_backward_cuda(const Exec& exec, const AttentionShape& shape, const bf16* qkv, const bf16* dout,
                             const float* lse, const float* delta, bf16* dqkv, const std::int32_t* first_keys) {
  if (shape.sequences * shape.length == 0) return;
  for (const void* array :
       {static_cast<const void*>(qkv), static_cast<const void*>(dout), static_cast<const void*>(dqkv)})
    require_aligned(array);
  const Dimensions n(shape, tensor_cores::block_rows, first_keys);
  const tensor_cores::BackwardArrays arrays{n, qkv, dout, lse, delta, dqkv};
  tensor_cores::with_columns(shape.head_size, [&](auto columns) {
    using Keys = tensor_cores::BackwardKeys<columns.value>;
    using Queries = tensor_cores::BackwardQueries<columns.value>;
    start("atoll::attention_backward_keys", exec, Keys{arrays}, Keys::blocks(n, shape.sequences));
    start("atoll::attention_backward_queries", exec, Queries{arrays}, Queries::blocks(n, shape.sequences));
  });
}

}  // namespace atl
