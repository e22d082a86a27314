/// One transformer block: x + attention(norm(x)), then + mlp(norm(.)). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/attention.hpp"
#include "core/rope.hpp"
#include "model/parameters.hpp"

namespace atl {

/// What a block's backward needs of its forward pass: N rows each. What norms and SwiGLU made is not kept: their
/// backward makes it again on its way, to the bit.
template <class T>
struct BlockActivations {
  using R = Accumulator<T>;
  BlockActivations() = default;
  BlockActivations(const LlamaConfig& config, std::size_t rows);

  View1<R> attention_reciprocal;  ///< (N) of the norm
  View2<T> qkv;                   ///< (N, (H + 2 K) D) rotated
  View2<T> attended;              ///< (N, H D)
  View1<R> lse;                   ///< (N H)
  View2<T> middle;                ///< (N, C) residual stream between attention and mlp
  View1<R> mlp_reciprocal;        ///< (N)
  View2<T> gate_up;               ///< (N, 2 F); backward overwrites it
};

/// Buffers that all blocks' forward passes share.
template <class T>
struct BlockScratch {
  BlockScratch(const LlamaConfig& config, std::size_t rows);

  View2<T> normed;     ///< (N, C) input of a product, after a norm; in backward first its gradient
  View2<T> activated;  ///< (N, F) the same of SwiGLU
};

/// Buffers that all blocks' backward passes share.
template <class T>
struct BlockWorkspace : BlockScratch<T> {
  using R = Accumulator<T>;
  BlockWorkspace(const LlamaConfig& config, std::size_t rows);

  View2<T> dattended;  ///< (N, H D)
  View2<T> dqkv;       ///< (N, (H + 2 K) D)
  View1<R> attention;  ///< attention_workspace
  View1<R> norm_partial;
};

/// What is the same for all blocks and micro-batches of one shape.
template <class T>
struct BlockContext {
  LlamaConfig config;
  AttentionShape attention;
  RopeTable<T> rope;
  View1<const std::int32_t> first_keys;                                        ///< (N) of attention; empty: all before
  std::size_t rows() const { return attention.sequences * attention.length; }  ///< N
};

/// y = block(x); x, y: (N, C), distinct. Fills `saved`.
template <class T>
void block_forward(const Exec& exec, const BlockContext<T>& context, const BlockTensors<const T>& weights,
                   View2<const T> x, const BlockActivations<T>& saved, const BlockScratch<T>& scratch, View2<T> y);

/// dx (N, C): in, the gradient of y; out, that of x. Overwrites `gradients`, all of them.
template <class T>
void block_backward(const Exec& exec, const BlockContext<T>& context, const BlockTensors<const T>& weights,
                    View2<const T> x, const BlockActivations<T>& saved, const BlockWorkspace<T>& workspace, View2<T> dx,
                    const BlockTensors<Accumulator<T>>& gradients);

}  // namespace atl
