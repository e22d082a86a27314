/// Llama one token at a time, with the keys and values of all tokens before. SPDX-License-Identifier: Apache-2.0
///
/// A prompt takes one forward pass; then every step adds a token to each of some sequences. The mathematics is that of
/// model/llama. Weights come from ShardedParameters layer by layer, so a model may be larger than a rank's memory; the
/// sequences of a rank are its own.
#pragma once

#include "core/decode_attention.hpp"
#include "model/block.hpp"
#include "model/llama.hpp"

#include <cstdint>
#include <vector>

namespace atl {

template <class T>
class LlamaDecoder {
 public:
  using R = Accumulator<T>;
  /// Room for `slots` sequences (0: this rank only takes part in gathers) of at most `capacity` tokens.
  LlamaDecoder(const LlamaConfig& config, std::int64_t slots, std::int64_t capacity, ShardedParameters<T>& parameters);

  /// Prompt i, of at least one token, becomes the content of slot i: at most as many as slots. Returns the logits of
  /// their last tokens, (prompts, V), valid until the next call. Collective over the replica, as is step().
  View2<R> prefill(const Exec& exec, const std::vector<std::vector<std::int32_t>>& prompts);
  /// Slot `to` becomes a copy of slot `from`.
  void copy(const Exec& exec, std::int64_t from, std::int64_t to);
  /// Adds tokens[i] to slots[i] (each at most once); logits (N, V) of what follows it, valid until the next call. A
  /// row's bits do not depend on the other rows.
  View2<R> step(const Exec& exec, const std::vector<std::int32_t>& slots, const std::vector<std::int32_t>& tokens);

  std::int64_t length(std::int64_t slot) const { return lengths_[static_cast<std::size_t>(slot)]; }
  std::int64_t capacity() const { return capacity_; }

 private:
  View2<R> logits(const Exec& exec, const View1<const T>& head_unit, View2<const T> x);
  void expect_gathers();

  LlamaConfig config_;
  std::int64_t capacity_;
  ShardedParameters<T>& parameters_;
  BlockContext<T> context_;               ///< of one prompt
  std::vector<KeyValueCache<T>> caches_;  ///< of every layer
  std::vector<std::int64_t> lengths_;     ///< tokens in each slot
  View1<std::int32_t> tokens_, slots_, positions_;
  View2<T> x_, normed_, qkv_, attended_, gate_up_, activated_;  ///< rows of a step, as in BlockActivations
  View2<R> logits_;
  View1<R> reciprocal_, workspace_;
};

}  // namespace atl
