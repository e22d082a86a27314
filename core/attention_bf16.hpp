/// Attention on processors with instructions for bf16. Included by attention*.cpp only. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "core/attention_dimensions.hpp"
#include "core/bf16_vectors.hpp"

namespace atl {

/// Whether the kernels below are in this build and take heads of this size.
constexpr bool attention_by_bf16_vectors([[maybe_unused]] std::size_t head_size) {
#ifdef ATOLL_BF16_VECTORS
  return head_size % 2 == 0;
#else
  return false;
#endif
}

#ifdef ATOLL_BF16_VECTORS
/// As attention() and attention_backward(): products of bf16 numbers with fp32 sums, probabilities and their gradients
/// rounded to bf16 before they are multiplied.
void attention_bf16(const Exec& exec, const AttentionShape& shape, const bf16* qkv, bf16* out, float* lse,
                    const std::int32_t* first_keys);
/// dqueries, (B T, H D): gradients of the queries, which are summed in fp32 over blocks of keys.
void attention_backward_bf16(const Exec& exec, const AttentionShape& shape, const bf16* qkv, const bf16* dout,
                             const float* lse, const float* delta, bf16* dqkv, float* dqueries,
                             const std::int32_t* first_keys);
#endif

}  // namespace atl
