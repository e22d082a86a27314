/// Attention of bf16 on NVIDIA's tensor cores. Included by attention*.cpp only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/attention_dimensions.hpp"

namespace atl {

/// Whether the kernels below are in this build (devices of compute capability 8.0 and newer) and take heads of this
/// size: multiples of 8 up to 128.
constexpr bool attention_by_tensor_cores([[maybe_unused]] std::size_t head_size) {
#ifdef ATOLL_HAVE_CUDA_ATTENTION
  return head_size % 8 == 0 && head_size <= 128;
#else
  return false;
#endif
}

#ifdef ATOLL_HAVE_CUDA_ATTENTION
/// As attention() and attention_backward(), with the roundings of core/attention_tensor_cores.hpp. Start on exec, do
/// not wait. qkv, out, dout and dqkv are aligned to 16 bytes. Error where a device does not take a kernel.
void attention_cuda(const Exec& exec, const AttentionShape& shape, const bf16* qkv, bf16* out, float* lse,
                    const std::int32_t* first_keys);
void attention_backward_cuda(const Exec& exec, const AttentionShape& shape, const bf16* qkv, const bf16* dout,
                             const float* lse, const float* delta, bf16* dqkv, const std::int32_t* first_keys);
#endif

}  // namespace atl
