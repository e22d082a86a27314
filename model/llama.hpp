/// Llama over sharded parameters: forward and backward of one micro-batch. SPDX-License-Identifier: Apache-2.0
///
/// Units are gathered when their layer begins, or one or two layers ahead, and freed when it ends; in backward they are
/// gathered again, and their gradients reduced as soon as they are complete, beside the next layer's backward. The
/// mathematics is that of Hugging Face's LlamaForCausalLM; with Packing::documents that of each document alone.
/// Positions go on through a sequence then too: RoPE, scaled or not, turns queries and keys by their positions times
/// fixed frequencies, so that a score depends on their distance only (arXiv:2104.09864, eq. 16).
#pragma once

#include "core/embedding.hpp"
#include "model/batch.hpp"
#include "model/block.hpp"
#include "model/loss.hpp"
#include "model/options.hpp"
#include "parallel/sharded_parameters.hpp"

#include <vector>

namespace atl {

/// The largest micro-batch, and how its activations are kept.
struct LlamaShape {
  std::int64_t micro_batch = 1;      ///< B
  std::int64_t sequence_length = 0;  ///< T
  Recompute recompute = Recompute::none;
  std::int64_t loss_chunk = 1024;
  Packing packing = Packing::concatenate;
};

/// What comes after a micro-batch: another one of the same step (the same weights), or something else.
enum class Follows { micro_batch, anything };

template <class T>
class Llama {
 public:
  using R = Accumulator<T>;
  /// Allocates everything a micro-batch needs. `parameters` has llama_units(config) and must outlive this.
  Llama(const LlamaConfig& config, const LlamaShape& shape, ShardedParameters<T>& parameters);

  /// Sum of the losses of all counted targets; adds the gradient of scale times that sum to the shards' gradients.
  /// Collective over the replica: every rank calls it equally often, if need be with a batch of ignored targets.
  /// A batch has document_starts if, and only if, the shape says Packing::documents. `follows`: what the next call on
  /// the model is, so that its first gather begins early.
  double forward_backward(const Exec& exec, const Batch& batch, double scale, Follows follows = Follows::anything);
  /// Sum of the losses only.
  double forward(const Exec& exec, const Batch& batch);
  /// Logits (B T, V), for tests.
  View2<R> logits(const Exec& exec, const Batch& batch);

  const LlamaConfig& config() const { return config_; }
  ShardedParameters<T>& parameters() { return parameters_; }

 private:
  enum class Keep { nothing, for_backward };
  /// Embedding and blocks; returns the residual stream (N, C) after the last block.
  View2<T> forward_blocks(const Exec& exec, const Batch& batch, Keep keep);
  void load(const Batch& batch);
  /// Units in the order of their gathers: forward, and backward if it follows.
  std::vector<std::size_t> gather_order(Keep keep) const;
  const BlockActivations<T>& activations(std::size_t layer) const {
    return saved_[shape_.recompute == Recompute::none ? layer : 0];
  }
  View2<T> stream(std::size_t layer) const;  ///< input of a block; that of block L is the last block's output

  LlamaConfig config_;
  LlamaShape shape_;
  ShardedParameters<T>& parameters_;
  std::size_t layers_;
  BlockContext<T> context_;
  View1<std::int32_t> tokens_, targets_, document_starts_;
  TokenIndex token_index_;
  std::vector<View2<T>> streams_;
  std::vector<BlockActivations<T>> saved_;  ///< of every block, or of one where blocks are recomputed
  BlockWorkspace<T> workspace_;
  Loss<T> loss_;
  View2<T> gradient_;  ///< (N, C) of the residual stream
};

}  // namespace atl
