/// SPDX-License-Identifier: Apache-2.0
#include "core/attention_bf16.hpp"

#ifdef ATOLL_BF16_VECTORS

#include <algorithm>

namespace atl {

namespace {

using namespace bf16_vectors;
using Dimensions = AttentionDimensions<bf16>;

constexpr int b = 64;  // queries and keys of a block: what fits the second-level cache of a core
constexpr int half = b / 2, vectors = b / lanes;
constexpr float lowest = -1e38f;  // below any score, and finite when it is multiplied by log2(e)

/// Memory of a team, dealt out in parts that begin at cache lines.
class Room {
 public:
  explicit Room(float* memory) : next_(memory) {}
  float* numbers(int n) {
    float* const part = next_;
    next_ += n;
    return part;
  }
  Word* words(int n) { return reinterpret_cast<Word*>(numbers(n)); }

 private:
  float* next_;
};

/// Rows [first, first + b) of one head, (b, padded_head) bf16 as words; zeros beyond the end.
void load_rows(const Dimensions& n, const bf16* from, int stride, int first, Word* to) {
  for (int i = 0; i < b; ++i) {
    const bool known = first + i < n.length;
    const bf16* const row =
        known ? from + static_cast<std::size_t>(first + i) * static_cast<std::size_t>(stride) : from;
    for (int d = 0; d < n.padded_head; d += 32)
      _mm512_storeu_si512(to + (i * n.padded_head + d) / 2, part_of_row(row, d, known ? n.head : 0));
  }
}

/// Columns of a row of b from `begin` up to `end`.
std::uint64_t range(int begin, int end) {
  const auto below = [](int k) { return k >= 64 ? ~std::uint64_t(0) : k <= 0 ? 0 : (std::uint64_t(1) << k) - 1; };
  return below(end) & ~below(begin);
}

struct Forward {
  Dimensions n;
  const bf16* qkv;
  bf16* out;
  float* lse;

  static std::size_t scratch_elements(const Dimensions& n) {
    return static_cast<std::size_t>(half * n.padded_head * 3 + b * n.padded_head + b * b + half * b + 3 * b) + 64;
  }

  // One team: one block of queries of one head; later blocks, which have more keys, first. Scores are kept transposed,
  // a row for each key, so that the softmax runs along vectors.
  void operator()(const TeamMember& member) const {
    const int query_block = n.blocks - 1 - member.league_rank() % n.blocks;
    const int head = member.league_rank() / n.blocks % n.query_heads;
    const int sequence = member.league_rank() / n.blocks / n.query_heads;
    Scratch<float> scratch(member.team_scratch(0), scratch_elements(n) - 64);
    Room room(scratch.data());
    Word* const qt = room.words(half * n.padded_head);    // (padded_head / 2, b)
    Word* const rows = room.words(half * n.padded_head);  // (b, padded_head / 2)
    Word* const v = room.words(half * n.padded_head);     // (b / 2, padded_head)
    float* const o = room.numbers(b * n.padded_head);
    float* const st = room.numbers(b * b);
    Word* const p = room.words(half * b);  // (b / 2, b)
    float* const row_max = room.numbers(b);
    float* const row_sum = room.numbers(b);
    float* const rescale = room.numbers(b);

    const bf16* const base = qkv + static_cast<std::size_t>(sequence) * static_cast<std::size_t>(n.length * n.width);
    const bf16* const keys = base + (n.query_heads + head / n.group()) * n.head;
    const bf16* const values = keys + n.key_value_heads * n.head;
    const int first_query = query_block * b;
    load_rows(n, base + head * n.head, n.width, first_query, rows);
    transpose(b, n.padded_head / 2, rows, qt);
    std::fill(row_max, row_max + b, lowest);
    std::fill(row_sum, row_sum + b, 0.0f);
    std::fill(o, o + b * n.padded_head, 0.0f);

    const int last_first_key = n.first_key(sequence, first_query + b - 1);
    for (int key_block = n.first_key(sequence, first_query) / b; key_block <= query_block; ++key_block) {
      load_rows(n, keys, n.width, key_block * b, rows);
      product<Sum::fresh>(b, b, n.padded_head / 2, rows, n.padded_head / 2, 1, qt, b, st, b);
      if (key_block == query_block)
        for (int j = 1; j < b; ++j) std::fill(st + j * b, st + j * b + j, -INFINITY);
      if (last_first_key > key_block * b) hide_keys(sequence, first_query, key_block * b, st);
      softmax(st, p, row_max, row_sum, rescale);
      load_rows(n, values, n.width, key_block * b, rows);
      pair_rows(b, n.padded_head, rows, v);
      product<Sum::scale_and_add>(b, n.padded_head, half, p, 1, b, v, n.padded_head, o, n.padded_head, rescale);
    }
    for (int i = 0; i < b && first_query + i < n.length; ++i) {
      const std::size_t t = static_cast<std::size_t>(first_query + i), length = static_cast<std::size_t>(n.length);
      bf16* const to =
          out + (static_cast<std::size_t>(sequence) * length + t) * static_cast<std::size_t>(n.query_heads * n.head) +
          head * n.head;
      const float reciprocal = 1.0f / row_sum[i];
      for (int d = 0; d < n.head; ++d) to[d] = bf16(o[i * n.padded_head + d] * reciprocal);
      lse[static_cast<std::size_t>(sequence * n.query_heads + head) * length + t] =
          n.scale * row_max[i] + math::log(row_sum[i]);
    }
  }

  /// Keys before the first one that a query sees count as nothing.
  void hide_keys(int sequence, int first_query, int first_key, float* st) const {
    for (int i = 0; i < b; ++i) {
      const int hidden = std::min(n.first_key(sequence, first_query + i) - first_key, b);
      for (int j = 0; j < hidden; ++j) st[j * b + i] = -INFINITY;
    }
  }

  /// p = e^(score - largest), for two keys a word, with the largest score (unscaled) and the sum so far brought up to
  /// date, and the factor for what was summed before.
  void softmax(const float* st, Word* p, float* row_max, float* row_sum, float* rescale) const {
    const __m512 factor = _mm512_set1_ps(n.scale * log2_e);
    __m512 largest[vectors], sum[vectors];
    for (int q = 0; q < vectors; ++q) largest[q] = _mm512_loadu_ps(row_max + q * lanes);
    for (int j = 0; j < b; ++j)
#pragma GCC unroll 4
      for (int q = 0; q < vectors; ++q) largest[q] = _mm512_max_ps(_mm512_loadu_ps(st + j * b + q * lanes), largest[q]);
    for (int q = 0; q < vectors; ++q) {
      const __m512 before = _mm512_mul_ps(_mm512_loadu_ps(row_max + q * lanes), factor);
      _mm512_storeu_ps(row_max + q * lanes, largest[q]);
      largest[q] = _mm512_mul_ps(largest[q], factor);
      // Never above 1, even if the compiler fuses a product into the difference, which then is not rounded alike.
      const __m512 fall = _mm512_min_ps(_mm512_sub_ps(before, largest[q]), _mm512_setzero_ps());
      _mm512_storeu_ps(rescale + q * lanes, exp2(fall));
      sum[q] = _mm512_setzero_ps();
    }
    for (int j = 0; j < b; j += 2)
#pragma GCC unroll 4
      for (int q = 0; q < vectors; ++q) {
        const __m512 x = exp2(_mm512_fmsub_ps(_mm512_loadu_ps(st + j * b + q * lanes), factor, largest[q]));
        const __m512 y = exp2(_mm512_fmsub_ps(_mm512_loadu_ps(st + (j + 1) * b + q * lanes), factor, largest[q]));
        sum[q] = _mm512_add_ps(sum[q], _mm512_add_ps(x, y));
        _mm512_storeu_si512(p + j / 2 * b + q * lanes, words(x, y));
      }
    for (int q = 0; q < vectors; ++q)
      _mm512_storeu_ps(row_sum + q * lanes, _mm512_fmadd_ps(_mm512_loadu_ps(row_sum + q * lanes),
                                                            _mm512_loadu_ps(rescale + q * lanes), sum[q]));
  }
};

struct Backward {
  Dimensions n;
  const bf16* qkv;
  const bf16* dout;
  const float* lse;
  const float* delta;
  bf16* dqkv;
  float* dqueries;

  static std::size_t scratch_elements(const Dimensions& n) {
    return static_cast<std::size_t>(half * n.padded_head * 7 + 3 * b * n.padded_head + 2 * b * b + 3 * half * b) + 64;
  }

  // One team: one key-value head of one sequence, with the query heads that share it. It alone writes their gradients,
  // so nothing is summed by atomics.
  void operator()(const TeamMember& member) const {
    const int kv_head = member.league_rank() % n.key_value_heads, sequence = member.league_rank() / n.key_value_heads;
    const int words_of_head = n.padded_head / 2;
    Scratch<float> scratch(member.team_scratch(0), scratch_elements(n) - 64);
    Room room(scratch.data());
    Word* const kt = room.words(half * n.padded_head);    // (padded_head / 2, b)
    Word* const vt = room.words(half * n.padded_head);    // (padded_head / 2, b)
    Word* const k = room.words(half * n.padded_head);     // (b / 2, padded_head)
    Word* const rows = room.words(half * n.padded_head);  // (b, padded_head / 2): of queries
    Word* const q = room.words(half * n.padded_head);     // (b / 2, padded_head)
    Word* const dy_rows = room.words(half * n.padded_head);
    Word* const dy = room.words(half * n.padded_head);
    float* const dk = room.numbers(b * n.padded_head);
    float* const dv = room.numbers(b * n.padded_head);
    float* const dq = room.numbers(b * n.padded_head);
    float* const s = room.numbers(b * b);
    float* const ds = room.numbers(b * b);
    Word* const p_pairs = room.words(half * b);   // (b / 2, b): of two queries
    Word* const ds_pairs = room.words(half * b);  // the same
    Word* const ds_rows = room.words(half * b);   // (b, b / 2): of two keys

    const std::size_t length = static_cast<std::size_t>(n.length), width = static_cast<std::size_t>(n.width);
    const std::size_t first_row = static_cast<std::size_t>(sequence) * length;
    const std::size_t queries_width = static_cast<std::size_t>(n.query_heads * n.head);
    const bf16* const base = qkv + first_row * width;
    const int key_offset = (n.query_heads + kv_head) * n.head, value_offset = key_offset + n.key_value_heads * n.head;
    for (int key_block = 0; key_block < n.blocks; ++key_block) {
      const int first_key = key_block * b;
      load_rows(n, base + value_offset, n.width, first_key, rows);
      transpose(b, words_of_head, rows, vt);
      load_rows(n, base + key_offset, n.width, first_key, rows);
      transpose(b, words_of_head, rows, kt);
      pair_rows(b, n.padded_head, rows, k);
      std::fill(dk, dk + b * n.padded_head, 0.0f);
      std::fill(dv, dv + b * n.padded_head, 0.0f);

      for (int head = kv_head * n.group(); head < (kv_head + 1) * n.group(); ++head) {
        const std::size_t head_row = static_cast<std::size_t>(sequence * n.query_heads + head) * length;
        for (int query_block = key_block; query_block < n.blocks; ++query_block) {
          const int first_query = query_block * b, first_key_block = n.first_key(sequence, first_query) / b;
          if (first_key_block > key_block) break;  // nor does a later query see these keys
          load_rows(n, base + head * n.head, n.width, first_query, rows);
          load_rows(n, dout + first_row * queries_width + head * n.head, n.query_heads * n.head, first_query, dy_rows);
          pair_rows(b, n.padded_head, rows, q);
          pair_rows(b, n.padded_head, dy_rows, dy);
          product<Sum::fresh>(b, b, words_of_head, rows, words_of_head, 1, kt, b, s, b);
          product<Sum::fresh>(b, b, words_of_head, dy_rows, words_of_head, 1, vt, b, ds, b);
          probabilities(sequence, first_query, first_key, lse + head_row, delta + head_row, s, ds, p_pairs, ds_pairs,
                        ds_rows);
          product<Sum::add>(b, n.padded_head, half, p_pairs, 1, b, dy, n.padded_head, dv, n.padded_head);
          product<Sum::add>(b, n.padded_head, half, ds_pairs, 1, b, q, n.padded_head, dk, n.padded_head);
          product<Sum::fresh>(b, n.padded_head, half, ds_rows, half, 1, k, n.padded_head, dq, n.padded_head);
          for (int i = 0; i < b && first_query + i < n.length; ++i) {
            float* const to = dqueries + (first_row + static_cast<std::size_t>(first_query + i)) * queries_width +
                              static_cast<std::size_t>(head * n.head);
            const float* const from = dq + i * n.padded_head;
            if (key_block == first_key_block)
              for (int d = 0; d < n.head; ++d) to[d] = from[d];
            else
              for (int d = 0; d < n.head; ++d) to[d] += from[d];
          }
        }
      }
      for (int i = 0; i < b && first_key + i < n.length; ++i) {
        bf16* const row = dqkv + (first_row + static_cast<std::size_t>(first_key + i)) * width;
        for (int d = 0; d < n.head; ++d) {
          row[key_offset + d] = bf16(dk[i * n.padded_head + d]);
          row[value_offset + d] = bf16(dv[i * n.padded_head + d]);
        }
      }
    }
  }

  /// Of scores s and ds = dout v, rows for queries: p = e^(scale s - lse) and scale p (ds - delta), 0 where a query
  /// does not see the key, as words of two queries and, the second, of two keys.
  void probabilities(int sequence, int first_query, int first_key, const float* head_lse, const float* head_delta,
                     const float* s, const float* ds, Word* p_pairs, Word* ds_pairs, Word* ds_rows) const {
    const __m512 factor = _mm512_set1_ps(n.scale * log2_e), scale = _mm512_set1_ps(n.scale);
    for (int i = 0; i < b; i += 2) {
      __m512 p[2][vectors], gradient[2][vectors];
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
        const int t = first_query + i + r;
        const std::uint64_t seen = t >= n.length ? 0 : range(n.first_key(sequence, t) - first_key, t - first_key + 1);
        const __m512 row_lse = _mm512_set1_ps(t < n.length ? head_lse[t] * log2_e : 0.0f),
                     row_delta = _mm512_set1_ps(t < n.length ? head_delta[t] : 0.0f);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          const int at = (i + r) * b + v * lanes;
          const __m512 e = exp2(_mm512_fmsub_ps(_mm512_loadu_ps(s + at), factor, row_lse));
          p[r][v] = _mm512_maskz_mov_ps(static_cast<__mmask16>(seen >> (v * lanes)), e);
          gradient[r][v] =
              _mm512_mul_ps(_mm512_mul_ps(p[r][v], scale), _mm512_sub_ps(_mm512_loadu_ps(ds + at), row_delta));
        }
        for (int v = 0; v < vectors; v += 2)
          _mm512_storeu_si512(ds_rows + ((i + r) * b + v * lanes) / 2, narrow(gradient[r][v], gradient[r][v + 1]));
      }
      for (int v = 0; v < vectors; ++v) {
        _mm512_storeu_si512(p_pairs + i / 2 * b + v * lanes, words(p[0][v], p[1][v]));
        _mm512_storeu_si512(ds_pairs + i / 2 * b + v * lanes, words(gradient[0][v], gradient[1][v]));
      }
    }
  }
};

}  // namespace

void attention_bf16(const Exec& exec, const AttentionShape& shape, const bf16* qkv, bf16* out, float* lse,
                    const std::int32_t* first_keys) {
  const Dimensions n(shape, b, first_keys);
  for_each_team("atoll::attention", exec, shape.sequences * shape.query_heads * static_cast<std::size_t>(n.blocks),
                Forward{n, qkv, out, lse}, Forward::scratch_elements(n) * sizeof(float));
}

void attention_backward_bf16(const Exec& exec, const AttentionShape& shape, const bf16* qkv, const bf16* dout,
                             const float* lse, const float* delta, bf16* dqkv, float* dqueries,
                             const std::int32_t* first_keys) {
  const Dimensions n(shape, b, first_keys);
  for_each_team("atoll::attention_backward", exec, shape.sequences * shape.key_value_heads,
                Backward{n, qkv, dout, lse, delta, dqkv, dqueries}, Backward::scratch_elements(n) * sizeof(float));
}

}  // namespace atl

#endif
