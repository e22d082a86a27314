/// Keys and values of the tokens so far, and attention of one new token a sequence to them.
/// SPDX-License-Identifier: Apache-2.0
///
/// The positions of a sequence are cut into parts of fixed length, each with a softmax of its own; the parts are then
/// joined by their largest scores and sums (as arXiv:2205.14135 joins blocks). So a long sequence fills a device, and a
/// row's bits depend on its own sequence alone.
#pragma once

#include "core/array.hpp"

#include <cstdint>

namespace atl {

/// Of one layer, for `slots` sequences of at most `capacity` positions. A head's positions lie one after another.
template <class T>
struct KeyValueCache {
  std::size_t slots = 0, capacity = 0;
  std::size_t key_value_heads = 0;  ///< K
  std::size_t head_size = 0;        ///< D
  View1<T> keys, values;            ///< (slots, K, capacity, D); keys are rotated

  KeyValueCache() = default;
  KeyValueCache(std::size_t slots, std::size_t capacity, std::size_t key_value_heads, std::size_t head_size);
};

/// Keys and values of row n of qkv (N, (H + 2 K) D) go to position positions(n) of slot slots(n). Slots and positions
/// must be inside the cache.
template <class T>
void store_keys_values(const Exec& exec, View1<const std::int32_t> slots, View1<const std::int32_t> positions,
                       View2<const T> qkv, const KeyValueCache<T>& cache);

/// The first `length` positions of a slot become those of another one.
template <class T>
void copy_slot(const Exec& exec, std::size_t from, std::size_t to, std::size_t length, const KeyValueCache<T>& cache);

/// out(n, h D + d) = sum_j softmax_j(q_h . k_j / sqrt(D)) v_j over the positions j <= positions(n) of slot slots(n),
/// whose keys and values are stored. qkv: (N, (H + 2 K) D), of which the queries are used; out: (N, H D) is
/// overwritten. `longest`: the largest position + 1. `workspace`: decode_attention_workspace elements.
template <class T>
void decode_attention(const Exec& exec, View1<const std::int32_t> slots, View1<const std::int32_t> positions,
                      std::size_t longest, View2<const T> qkv, const KeyValueCache<T>& cache, View2<T> out,
                      View1<Accumulator<T>> workspace);

std::size_t decode_attention_workspace(std::size_t rows, std::size_t longest, std::size_t query_heads,
                                       std::size_t head_size);

}  // namespace atl
