/// Grouped-query causal attention that never stores T x T. SPDX-License-Identifier: Apache-2.0
///
/// Blocks of queries meet blocks of keys with an online softmax (arXiv:2205.14135); blocks above the diagonal are
/// skipped. Backward recomputes the probabilities from the saved log-sum-exp. Memory is linear in T.
///
/// `first_keys`, (B T), confines attention: position n sees the keys first_keys(n) to n of its sequence. They must not
/// decrease along a sequence, nor exceed n; blocks of keys before them are skipped too. Where documents are packed into
/// a sequence they are the positions where each one's document begins. Empty: 0, every key before.
///
/// Which kernels: on hosts loops over vectors, for bf16 by AVX-512's instructions where the processor has them; on
/// NVIDIA's devices of compute capability 8.0 and newer tensor cores for bf16, in heads of a multiple of 8 up to 128;
/// elsewhere teams that share what fits their scratch memory, without any such instructions.
#pragma once

#include "core/array.hpp"

#include <cstdint>

namespace atl {

struct AttentionShape {
  std::size_t sequences;        ///< B
  std::size_t length;           ///< T
  std::size_t query_heads;      ///< H
  std::size_t key_value_heads;  ///< K, divides H; query head h uses key-value head h / (H / K)
  std::size_t head_size;        ///< D
  std::size_t width() const { return (query_heads + 2 * key_value_heads) * head_size; }  ///< of a row of qkv
};

/// out(n, h D + d) = sum_j softmax_j(q_h . k_j / sqrt(D)) v_j over positions first_keys(n) <= j <= n of the same
/// sequence.
/// qkv: (B T, (H + 2 K) D): queries, keys (both rotated), values. out: (B T, H D) and lse: (B H T) are overwritten.
template <class T>
void attention(const Exec& exec, const AttentionShape& shape, View2<const T> qkv, View2<T> out,
               View1<Accumulator<T>> lse, View1<const std::int32_t> first_keys = {});

/// Elements of backward's workspace: B H T; for bf16 also the gradient of the queries in fp32, B T H D, where a kernel
/// sums it over blocks of keys.
template <class T>
std::size_t attention_workspace(const AttentionShape& shape);

/// Overwrites dqkv, of the shape of qkv, from dout (B T, H D). workspace: attention_workspace<T>(shape) elements;
/// first_keys: as in forward.
template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, View2<const T> qkv, View2<const T> out,
                        View2<const T> dout, View1<const Accumulator<T>> lse, View2<T> dqkv,
                        View1<Accumulator<T>> workspace, View1<const std::int32_t> first_keys = {});

}  // namespace atl
