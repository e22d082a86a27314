/// Llama's parameters: Hugging Face names, shapes, and the units they are gathered in. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "core/array.hpp"
#include "model/llama_config.hpp"
#include "parallel/shard_layout.hpp"

#include <vector>

namespace atl {

/// Unit 0: the embedding (and, with a tied head, the final norm); then a unit a block; last, untied: final norm and
/// head. With a tied head the embedding is gathered again for the head, and there is no head unit.
std::vector<UnitSpec> llama_units(const LlamaConfig& config);

inline std::size_t embedding_unit() { return 0; }
inline std::size_t block_unit(std::int64_t layer) { return 1 + static_cast<std::size_t>(layer); }
std::size_t head_unit(const LlamaConfig& config);

/// A block's tensors inside its gathered unit. Q, K, V, and gate and up, lie one after another, so each set is one
/// matrix: one product instead of three, or two. E: const T for weights, T for gradients.
template <class E>
struct BlockTensors {
  View2<E> qkv;             ///< ((H + 2 K) D, C)
  View2<E> o;               ///< (C, H D)
  View2<E> gate_up;         ///< (2 F, C)
  View2<E> down;            ///< (C, F)
  View1<E> attention_norm;  ///< (C)
  View1<E> mlp_norm;        ///< (C)
};

template <class E>
BlockTensors<E> block_tensors(const LlamaConfig& config, const View1<E>& unit) {
  const auto c = static_cast<std::size_t>(config.hidden_size), f = static_cast<std::size_t>(config.intermediate_size);
  const auto q = static_cast<std::size_t>(config.query_size()), kv = static_cast<std::size_t>(config.key_value_size());
  std::size_t at = 0;
  const auto next = [&](std::size_t rows, std::size_t columns) {
    const View2<E> m = matrix(unit, at, rows, columns);
    at += rows * columns;
    return m;
  };
  BlockTensors<E> tensors;
  tensors.qkv = next(q + 2 * kv, c);
  tensors.o = next(c, q);
  tensors.gate_up = next(2 * f, c);
  tensors.down = next(c, f);
  tensors.attention_norm = part(unit, at, c);
  tensors.mlp_norm = part(unit, at + c, c);
  return tensors;
}

/// The head's matrix and the final norm inside the gathered unit that holds them, tied or not.
template <class E>
struct HeadTensors {
  View2<E> weight;  ///< (V, C)
  View1<E> norm;    ///< (C)
};

template <class E>
HeadTensors<E> head_tensors(const LlamaConfig& config, const View1<E>& unit) {
  const auto c = static_cast<std::size_t>(config.hidden_size), v = static_cast<std::size_t>(config.vocab_size);
  return {matrix(unit, 0, v, c), part(unit, v * c, c)};
}

}  // namespace atl
