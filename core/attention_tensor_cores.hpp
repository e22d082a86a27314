/// Attention of bf16 by tensor cores (arXiv:2307.08691): what a block of threads does. Included by attention_cuda.cpp
/// and its test. SPDX-License-Identifier: Apache-2.0
///
/// Products of bf16 with fp32 sums; probabilities and their gradients are rounded to bf16 before they are multiplied,
/// as by the other kernels for bf16. Nothing is added by atomics: a block alone writes its part of a result, so the
/// same input gives the same bits. D, the columns of a tile, is the head size rounded up; heads are a multiple of 8.
#pragma once

#include "core/attention_dimensions.hpp"
#include "core/tensor_core_tiles.hpp"

#include <type_traits>

namespace atl::tensor_cores {

using Dimensions = AttentionDimensions<bf16>;  ///< of blocks of block_rows

namespace detail {
template <class T>
KOKKOS_INLINE_FUNCTION constexpr std::size_t at(T i) {
  return static_cast<std::size_t>(i);
}
/// The larger of the values of the 4 lanes that share rows, or their sum: the same bits on all of them.
template <class Block>
KOKKOS_INLINE_FUNCTION float quad_max(Block& block, float x) {
  const float a = block.shuffle_xor(x, 1);
  x = a > x ? a : x;
  const float b = block.shuffle_xor(x, 2);
  return b > x ? b : x;
}
template <class Block>
KOKKOS_INLINE_FUNCTION float quad_sum(Block& block, float x) {
  x += block.shuffle_xor(x, 1);
  return x + block.shuffle_xor(x, 2);
}
KOKKOS_INLINE_FUNCTION int smaller(int a, int b) { return a < b ? a : b; }
}  // namespace detail

/// Which block_rows queries of a head block `number` has: later ones, which have more keys, first.
struct QueryBlock {
  int sequence, head, first_query;
  KOKKOS_INLINE_FUNCTION QueryBlock(const Dimensions& n, int number)
      : sequence(number / n.blocks / n.query_heads),
        head(number / n.blocks % n.query_heads),
        first_query((n.blocks - 1 - number % n.blocks) * block_rows) {}
  static std::size_t blocks(const Dimensions& n, std::size_t sequences) {
    return sequences * detail::at(n.query_heads) * detail::at(n.blocks);
  }
};

/// Keys and values of a key-value head: two tiles of each in shared memory, used in turns.
template <int D, int keys>
struct KeyTiles {
  static constexpr int elements = 4 * keys * pitch<D>;
  const bf16 *from_k, *from_v;
  bf16* shared;

  /// base: row 0 of the sequence.
  KOKKOS_INLINE_FUNCTION KeyTiles(const Dimensions& n, const bf16* base, int kv_head, bf16* tiles)
      : from_k(base + (n.query_heads + kv_head) * n.head), from_v(from_k + n.key_value_heads * n.head), shared(tiles) {}
  KOKKOS_INLINE_FUNCTION bf16* k(int stage) const { return shared + stage * keys * pitch<D>; }
  KOKKOS_INLINE_FUNCTION bf16* v(int stage) const { return k(stage + 2); }
  template <class Block>
  KOKKOS_INLINE_FUNCTION void load(Block& block, const Dimensions& n, int first_key, int stage) const {
    const std::size_t width = detail::at(n.width), offset = detail::at(first_key) * width;
    copy_rows<D>(block, keys, n.length - first_key, n.head, from_k + offset, width, k(stage));
    copy_rows<D>(block, keys, n.length - first_key, n.head, from_v + offset, width, v(stage));
  }
};

/// Forward: a block for block_rows queries of a head.
template <int D>
struct Forward {
  static constexpr int keys = 64;  ///< of a tile
  using Keys = KeyTiles<D, keys>;
  static constexpr std::size_t shared_bytes = sizeof(bf16) * (block_rows * pitch<D> + Keys::elements);
  static std::size_t blocks(const Dimensions& n, std::size_t sequences) { return QueryBlock::blocks(n, sequences); }

  Dimensions n;
  const bf16* qkv;
  bf16* out;
  float* lse;

  template <class Block>
  KOKKOS_INLINE_FUNCTION void operator()(Block& block, int number) const {
    using detail::at;
    const QueryBlock own(n, number);
    const int sequence = own.sequence, head = own.head, first_query = own.first_query;
    const bf16* const base = qkv + at(sequence) * at(n.length) * at(n.width);
    bf16* const q = reinterpret_cast<bf16*>(block.shared());
    const Keys tiles(n, base, head / n.group(), q + block_rows * pitch<D>);
    const Place place(block);
    const int query = first_query + place.row();  // and 8 further
    const int first_seen[2] = {n.first_key(sequence, query), n.first_key(sequence, query + 8)};
    const int last_first = n.first_key(sequence, first_query + block_rows - 1);
    const int end = detail::smaller(first_query + block_rows, n.length);
    const float factor = n.scale * log2_e;
    float sums[D / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

    copy_rows<D>(block, block_rows, n.length - first_query, n.head,
                 base + at(first_query) * at(n.width) + head * n.head, at(n.width), q);
    const auto load = [&](int first_key, int stage) { tiles.load(block, n, first_key, stage); };
    in_turns(block, n.first_key(sequence, first_query) / keys * keys, end, keys, load, [&](int first_key, int stage) {
      float p[keys / 8][4] = {};
      multiply_by_transposed<D, keys>(block, q + 16 * place.warp * pitch<D>, tiles.k(stage), p);
      if (first_key + keys > first_query || last_first > first_key) {
        ATOLL_UNROLL
        for (int j = 0; j < keys / 8; ++j) {
          ATOLL_UNROLL
          for (int e = 0; e < 4; ++e) {
            const int key = first_key + 8 * j + place.column() + e % 2;
            if (key > query + e / 2 * 8 || key < first_seen[e / 2]) p[j][e] = -INFINITY;
          }
        }
      }
      softmax(block, factor, p, largest, total, sums);
      multiply<keys, D>(block, p, tiles.v(stage), sums);
    });

    float reciprocal[2];
    ATOLL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = detail::quad_sum(block, total[half]);
      reciprocal[half] = 1.0f / sum;
      if (place.lane % 4 == 0 && query + 8 * half < n.length)
        lse[(at(sequence) * at(n.query_heads) + at(head)) * at(n.length) + at(query + 8 * half)] =
            n.scale * largest[half] + math::log(sum);
    }
    round_to_tile<D>(block, sums, reciprocal[0], reciprocal[1], q);
    block.barrier();
    const std::size_t width = at(n.query_heads) * at(n.head);
    copy_rows_out<D>(block, n.length - first_query, n.head, q,
                     out + (at(sequence) * at(n.length) + at(first_query)) * width + head * n.head, width);
  }

  /// Scores become e^(scale (score - largest)), with the largest score and this lane's part of the sum brought up to
  /// date; what was summed before is scaled down.
  template <class Block>
  KOKKOS_INLINE_FUNCTION static void softmax(Block& block, float factor, float (&p)[keys / 8][4], float (&largest)[2],
                                             float (&total)[2], float (&sums)[D / 8][4]) {
    ATOLL_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
      ATOLL_UNROLL
      for (int j = 0; j < keys / 8; ++j) {
        ATOLL_UNROLL
        for (int e = 2 * half; e < 2 * half + 2; ++e) most = p[j][e] > most ? p[j][e] : most;
      }
      most = detail::quad_max(block, most);
      const float base = most == -INFINITY ? 0.0f : most * factor;  // no key seen yet
      const float rescale = block.exp2(largest[half] * factor - base);
      largest[half] = most;
      float sum = 0;
      ATOLL_UNROLL
      for (int j = 0; j < keys / 8; ++j) {
        ATOLL_UNROLL
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          p[j][e] = block.exp2(p[j][e] * factor - base);
          sum += p[j][e];
        }
      }
      total[half] = total[half] * rescale + sum;
      ATOLL_UNROLL
      for (int j = 0; j < D / 8; ++j) {
        sums[j][2 * half] *= rescale;
        sums[j][2 * half + 1] *= rescale;
      }
    }
  }
};

/// What backward reads and writes; delta as attention.cpp computes it: rowsum(dout * out), in the order of lse.
struct BackwardArrays {
  Dimensions n;
  const bf16* qkv;
  const bf16* dout;
  const float* lse;
  const float* delta;
  bf16* dqkv;
};

/// Gradients of the queries: a block for block_rows queries of a head.
template <int D>
struct BackwardQueries {
  static constexpr int keys = D <= 64 ? 64 : 32;  ///< of a tile: what registers and shared memory have room for
  using Keys = KeyTiles<D, keys>;
  static constexpr std::size_t shared_bytes = sizeof(bf16) * (2 * block_rows * pitch<D> + Keys::elements);
  static std::size_t blocks(const Dimensions& n, std::size_t sequences) { return QueryBlock::blocks(n, sequences); }

  BackwardArrays arrays;

  template <class Block>
  KOKKOS_INLINE_FUNCTION void operator()(Block& block, int number) const {
    using detail::at;
    const Dimensions& n = arrays.n;
    const QueryBlock own(n, number);
    const int sequence = own.sequence, head = own.head, first_query = own.first_query;
    const std::size_t first_row = at(sequence) * at(n.length), out_width = at(n.query_heads) * at(n.head);
    const bf16* const base = arrays.qkv + first_row * at(n.width);
    bf16* const q = reinterpret_cast<bf16*>(block.shared());
    bf16* const dy = q + block_rows * pitch<D>;
    const Keys tiles(n, base, head / n.group(), dy + block_rows * pitch<D>);
    const Place place(block);
    const int query = first_query + place.row();  // and 8 further
    const int known_queries = n.length - first_query, end = detail::smaller(first_query + block_rows, n.length);
    const float factor = n.scale * log2_e;
    int first_seen[2];
    float base2[2], delta[2];
    ATOLL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int t = detail::smaller(query + 8 * half, n.length - 1);
      const std::size_t i = (at(sequence) * at(n.query_heads) + at(head)) * at(n.length) + at(t);
      first_seen[half] = n.first_key(sequence, t);
      base2[half] = arrays.lse[i] * log2_e;
      delta[half] = arrays.delta[i];
    }
    float dq[D / 8][4] = {};

    copy_rows<D>(block, block_rows, known_queries, n.head, base + at(first_query) * at(n.width) + head * n.head,
                 at(n.width), q);
    copy_rows<D>(block, block_rows, known_queries, n.head,
                 arrays.dout + (first_row + at(first_query)) * out_width + head * n.head, out_width, dy);
    const auto load = [&](int first_key, int stage) { tiles.load(block, n, first_key, stage); };
    in_turns(block, n.first_key(sequence, first_query) / keys * keys, end, keys, load, [&](int first_key, int stage) {
      float p[keys / 8][4] = {}, ds[keys / 8][4] = {};
      multiply_by_transposed<D, keys>(block, q + 16 * place.warp * pitch<D>, tiles.k(stage), p);
      multiply_by_transposed<D, keys>(block, dy + 16 * place.warp * pitch<D>, tiles.v(stage), ds);
      ATOLL_UNROLL
      for (int j = 0; j < keys / 8; ++j) {
        ATOLL_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int key = first_key + 8 * j + place.column() + e % 2;
          const bool seen = key <= query + e / 2 * 8 && key >= first_seen[e / 2];
          ds[j][e] = seen ? block.exp2(p[j][e] * factor - base2[e / 2]) * (ds[j][e] - delta[e / 2]) : 0.0f;
        }
      }
      multiply<keys, D>(block, ds, tiles.k(stage), dq);
    });
    round_to_tile<D>(block, dq, n.scale, n.scale, q);
    block.barrier();
    copy_rows_out<D>(block, known_queries, n.head, q,
                     arrays.dqkv + (first_row + at(first_query)) * at(n.width) + head * n.head, at(n.width));
  }
};

/// Gradients of keys and values: a block for block_rows keys of a key-value head, with the queries of all heads that
/// share it. Scores are kept transposed, a row for each key.
template <int D>
struct BackwardKeys {
  static constexpr int queries = D <= 32 ? 64 : 32;  ///< of a tile: what registers have room for
  static constexpr std::size_t shared_bytes = sizeof(bf16) * pitch<D> * (2 * block_rows + 4 * queries);
  static std::size_t blocks(const Dimensions& n, std::size_t sequences) {
    return sequences * detail::at(n.key_value_heads) * detail::at(n.blocks);
  }

  BackwardArrays arrays;

  /// Block `number`: earlier keys, which more queries see, first.
  template <class Block>
  KOKKOS_INLINE_FUNCTION void operator()(Block& block, int number) const {
    using detail::at;
    const Dimensions& n = arrays.n;
    const int first_key = number % n.blocks * block_rows, kv_head = number / n.blocks % n.key_value_heads;
    const int sequence = number / n.blocks / n.key_value_heads;
    const std::size_t first_row = at(sequence) * at(n.length), out_width = at(n.query_heads) * at(n.head);
    const bf16* const base = arrays.qkv + first_row * at(n.width);
    const int key_offset = (n.query_heads + kv_head) * n.head, value_offset = key_offset + n.key_value_heads * n.head;
    bf16* const k = reinterpret_cast<bf16*>(block.shared());
    bf16* const v = k + block_rows * pitch<D>;
    bf16* const q = v + block_rows * pitch<D>;  // two tiles, used in turns
    bf16* const dy = q + 2 * queries * pitch<D>;
    const Place place(block);
    const int key = first_key + place.row();  // and 8 further
    const int known_keys = n.length - first_key;
    const float factor = n.scale * log2_e;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};

    // Tiles of queries, of one head after the other.
    const int tiles = (last_query(sequence, first_key) - first_key) / queries + 1, all = tiles * n.group();
    const auto load = [&](int tile, int stage) {
      const int head = kv_head * n.group() + tile / tiles, first_query = first_key + tile % tiles * queries;
      const int known = n.length - first_query;
      copy_rows<D>(block, queries, known, n.head, base + at(first_query) * at(n.width) + head * n.head, at(n.width),
                   q + stage * queries * pitch<D>);
      copy_rows<D>(block, queries, known, n.head,
                   arrays.dout + (first_row + at(first_query)) * out_width + head * n.head, out_width,
                   dy + stage * queries * pitch<D>);
    };
    copy_rows<D>(block, block_rows, known_keys, n.head, base + at(first_key) * at(n.width) + key_offset, at(n.width),
                 k);
    copy_rows<D>(block, block_rows, known_keys, n.head, base + at(first_key) * at(n.width) + value_offset, at(n.width),
                 v);
    in_turns(block, 0, all, 1, load, [&](int tile, int stage) {
      float p[queries / 8][4] = {}, ds[queries / 8][4] = {};
      multiply_by_transposed<D, queries>(block, k + 16 * place.warp * pitch<D>, q + stage * queries * pitch<D>, p);
      multiply_by_transposed<D, queries>(block, v + 16 * place.warp * pitch<D>, dy + stage * queries * pitch<D>, ds);
      const int head = kv_head * n.group() + tile / tiles, first_query = first_key + tile % tiles * queries;
      const std::size_t of_head = (at(sequence) * at(n.query_heads) + at(head)) * at(n.length);
      ATOLL_UNROLL
      for (int j = 0; j < queries / 8; ++j) {
        ATOLL_UNROLL
        for (int odd = 0; odd < 2; ++odd) {
          const int query = first_query + 8 * j + place.column() + odd, t = detail::smaller(query, n.length - 1);
          const float base2 = arrays.lse[of_head + at(t)] * log2_e, delta = arrays.delta[of_head + at(t)];
          const int first_seen = n.first_key(sequence, t);
          ATOLL_UNROLL
          for (int e = odd; e < 4; e += 2) {
            const int of_sum = key + e / 2 * 8;
            const bool seen = query < n.length && of_sum <= query && of_sum >= first_seen;
            p[j][e] = seen ? block.exp2(p[j][e] * factor - base2) : 0.0f;
            ds[j][e] = p[j][e] * (ds[j][e] - delta);
          }
        }
      }
      multiply<queries, D>(block, p, dy + stage * queries * pitch<D>, dv);
      multiply<queries, D>(block, ds, q + stage * queries * pitch<D>, dk);
    });
    round_to_tile<D>(block, dk, n.scale, n.scale, k);
    round_to_tile<D>(block, dv, 1.0f, 1.0f, v);
    block.barrier();
    bf16* const to = arrays.dqkv + (first_row + at(first_key)) * at(n.width);
    copy_rows_out<D>(block, known_keys, n.head, k, to + key_offset, at(n.width));
    copy_rows_out<D>(block, known_keys, n.head, v, to + value_offset, at(n.width));
  }

  /// The last query that sees one of the keys from `first_key` on: the first keys of queries do not decrease.
  KOKKOS_INLINE_FUNCTION int last_query(int sequence, int first_key) const {
    const Dimensions& n = arrays.n;
    if (n.first_keys == nullptr) return n.length - 1;
    const int last_key = detail::smaller(first_key + block_rows, n.length) - 1;
    int sees = last_key, end = n.length;  // a query sees itself
    while (end - sees > 1) {
      const int middle = sees + (end - sees) / 2;
      (n.first_key(sequence, middle) <= last_key ? sees : end) = middle;
    }
    return sees;
  }
};

/// f(std::integral_constant<int, D>) with the smallest D that holds heads of this size.
template <class F>
void with_columns(std::size_t head_size, const F& f) {
  if (head_size <= 32) return f(std::integral_constant<int, 32>());
  if (head_size <= 64) return f(std::integral_constant<int, 64>());
  if (head_size <= 96) return f(std::integral_constant<int, 96>());
  f(std::integral_constant<int, 128>());
}

}  // namespace atl::tensor_cores
