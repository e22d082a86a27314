/// SPDX-License-Identifier: Apache-2.0
#include "core/attention.hpp"

#include "core/attention_bf16.hpp"
#include "core/attention_cuda.hpp"
#include "core/attention_dimensions.hpp"
#include "core/tile.hpp"

#include <algorithm>
#include <type_traits>

namespace atl {

namespace {

// Queries and keys of a block, b: what fits the second-level cache of a core. A device takes the largest power of two
// whose tiles fit the scratch memory of a team, and needs one that does.
constexpr int largest_block = vector_kernels ? 64 : 32, smallest_block = vector_kernels ? 64 : 4;

/// Rows [first, first + b) of one head into scratch (b, padded_head), zeros beyond the end, times `factor`.
template <int b, class T, class R>
KOKKOS_INLINE_FUNCTION void load_rows(const TeamMember& member, const AttentionDimensions<T>& n, const T* from,
                                      int stride, int first, R factor, R* to) {
  team_for(member, b, [&](const int i) {
    R* const row = to + i * n.padded_head;
    const T* const source = from + static_cast<std::size_t>(first + i) * stride;
    const int known = first + i < n.length ? n.head : 0;
    for (int d = 0; d < known; ++d) row[d] = factor * R(source[d]);
    for (int d = known; d < n.padded_head; ++d) row[d] = 0;
  });
}

/// The same, transposed: scratch (padded_head, b).
template <int b, class T, class R>
KOKKOS_INLINE_FUNCTION void load_columns(const TeamMember& member, const AttentionDimensions<T>& n, const T* from,
                                         int stride, int first, R factor, R* to) {
  team_for(member, b, [&](const int i) {
    const T* const source = from + static_cast<std::size_t>(first + i) * stride;
    const int known = first + i < n.length ? n.head : 0;
    for (int d = 0; d < known; ++d) to[d * b + i] = factor * R(source[d]);
    for (int d = known; d < n.padded_head; ++d) to[d * b + i] = 0;
  });
}

template <class T, int b>
struct Forward {
  using R = Accumulator<T>;
  AttentionDimensions<T> n;
  const T* qkv;
  T* out;
  R* lse;

  KOKKOS_FUNCTION static std::size_t scratch_elements(const AttentionDimensions<T>& n) {
    return static_cast<std::size_t>(4 * b * n.padded_head + b * b + 3 * b) + 64;
  }

  // One team: one block of queries of one head. Later blocks have more keys; they come first for balance. Scores are
  // kept transposed, a row for each key: so only queries have to be transposed, once, and the softmax runs along
  // vectors.
  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int query_block = n.blocks - 1 - member.league_rank() % n.blocks;
    const int head = member.league_rank() / n.blocks % n.query_heads;
    const int sequence = member.league_rank() / n.blocks / n.query_heads;
    Scratch<R> scratch(member.team_scratch(0), scratch_elements(n) - 64);
    R* const qt = scratch.data();
    R* const k = qt + b * n.padded_head;
    R* const v = k + b * n.padded_head;
    R* const o = v + b * n.padded_head;
    R* const st = o + b * n.padded_head;
    R* const row_max = st + b * b;
    R* const row_sum = row_max + b;
    R* const rescale = row_sum + b;

    const T* const base = qkv + static_cast<std::size_t>(sequence) * n.length * n.width;
    const T* const keys = base + (n.query_heads + head / n.group()) * n.head;
    const T* const values = keys + n.key_value_heads * n.head;
    const int first_query = query_block * b;
    load_columns<b>(member, n, base + head * n.head, n.width, first_query, n.scale, qt);
    team_for(member, b, [&](const int i) {
      row_max[i] = -largest_finite<R>;
      row_sum[i] = 0;
      for (int d = 0; d < n.padded_head; ++d) o[i * n.padded_head + d] = 0;
    });

    const int last_first_key = n.first_key(sequence, first_query + b - 1);
    for (int key_block = n.first_key(sequence, first_query) / b; key_block <= query_block; ++key_block) {
      member.team_barrier();
      load_rows<b>(member, n, keys, n.width, key_block * b, R(1), k);
      load_rows<b>(member, n, values, n.width, key_block * b, R(1), v);
      member.team_barrier();
      tile_product(member, b, b, n.padded_head, k, n.padded_head, 1, qt, b, Store::overwrite, st, b);
      member.team_barrier();
      if (last_first_key > key_block * b) hide_keys(member, sequence, first_query, key_block * b, st);
      softmax(member, key_block == query_block, st, row_max, row_sum, rescale);
      member.team_barrier();
      team_for(member, b, [&](const int i) {
        for (int d = 0; d < n.padded_head; ++d) o[i * n.padded_head + d] *= rescale[i];
      });
      member.team_barrier();
      tile_product(member, b, n.padded_head, b, st, 1, b, v, n.padded_head, Store::add, o, n.padded_head);
    }
    member.team_barrier();
    team_for(member, b, [&](const int i) {
      const int t = first_query + i;
      if (t >= n.length) return;
      T* const to = out + (static_cast<std::size_t>(sequence) * n.length + t) * n.query_heads * n.head + head * n.head;
      const R reciprocal = R(1) / row_sum[i];
      for (int d = 0; d < n.head; ++d) to[d] = T(o[i * n.padded_head + d] * reciprocal);
      lse[(static_cast<std::size_t>(sequence) * n.query_heads + head) * n.length + t] =
          row_max[i] + math::log(row_sum[i]);
    });
  }

  /// Keys before the first one that a query sees count as nothing.
  KOKKOS_FUNCTION void hide_keys(const TeamMember& member, int sequence, int first_query, int first_key, R* st) const {
    team_for(member, b, [&](const int i) {
      const int hidden = n.first_key(sequence, first_query + i) - first_key;
      for (int j = 0; j < (hidden < b ? hidden : b); ++j) st[j * b + i] = -INFINITY;
    });
    member.team_barrier();
  }

  /// Scores st (keys, queries) become e^(score - row_max), with the largest score and the sum so far brought up to
  /// date, and the factor for what was summed before. On the diagonal later keys count as nothing.
  KOKKOS_FUNCTION static void softmax(const TeamMember& member, bool diagonal, R* st, R* row_max, R* row_sum,
                                      R* rescale) {
    // Queries that one thread treats together: all on the host, as vectors; one on a device.
    constexpr int together = vector_kernels ? b : 1;
    team_for(member, b / together, [&](const int group) {
      const int first = group * together, end = first + together;
      if (diagonal)
        for (int j = first + 1; j < b; ++j)
          for (int i = first; i < (j < end ? j : end); ++i) st[j * b + i] = -INFINITY;
      R largest[together], sum[together];
      for (int i = 0; i < together; ++i) {
        largest[i] = row_max[first + i];
        sum[i] = 0;
      }
      for (int j = 0; j < b; ++j) {
        const R* const score = st + j * b + first;
        for (int i = 0; i < together; ++i) largest[i] = score[i] > largest[i] ? score[i] : largest[i];
      }
      for (int j = 0; j < b; ++j) {
        R* const score = st + j * b + first;
        for (int i = 0; i < together; ++i) {
          const R p = fast_exp(score[i] - largest[i]);
          score[i] = p;
          sum[i] += p;
        }
      }
      for (int i = 0; i < together; ++i) {
        rescale[first + i] = fast_exp(row_max[first + i] - largest[i]);
        row_max[first + i] = largest[i];
        row_sum[first + i] = row_sum[first + i] * rescale[first + i] + sum[i];
      }
    });
  }
};

template <class T, int b>
struct Backward {
  using R = Accumulator<T>;
  AttentionDimensions<T> n;
  const T* qkv;
  const T* dout;
  const R* lse;
  const R* delta;
  T* dqkv;
  R* dqueries;  ///< where gradients of queries are summed: in dqkv, unless it would round the sums
  std::size_t dqueries_width;

  KOKKOS_FUNCTION static std::size_t scratch_elements(const AttentionDimensions<T>& n) {
    return static_cast<std::size_t>(8 * b * n.padded_head + 2 * b * b) + 64;
  }

  // One team: one key-value head of one sequence, with the query heads that share it. It alone writes their gradients,
  // so nothing is summed by atomics.
  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int kv_head = member.league_rank() % n.key_value_heads;
    const int sequence = member.league_rank() / n.key_value_heads;
    Scratch<R> scratch(member.team_scratch(0), scratch_elements(n) - 64);
    R* const k = scratch.data();
    R* const kt = k + b * n.padded_head;
    R* const vt = kt + b * n.padded_head;
    R* const dk = vt + b * n.padded_head;
    R* const dv = dk + b * n.padded_head;
    R* const q = dv + b * n.padded_head;
    R* const dy = q + b * n.padded_head;
    R* const dq = dy + b * n.padded_head;
    R* const p = dq + b * n.padded_head;
    R* const ds = p + b * b;

    const std::size_t first_row = static_cast<std::size_t>(sequence) * n.length;
    const T* const base = qkv + first_row * n.width;
    T* const dbase = dqkv + first_row * n.width;
    const int key_offset = (n.query_heads + kv_head) * n.head;
    const int value_offset = key_offset + n.key_value_heads * n.head;
    for (int key_block = 0; key_block < n.blocks; ++key_block) {
      const int first_key = key_block * b;
      member.team_barrier();
      load_rows<b>(member, n, base + key_offset, n.width, first_key, R(1), k);
      load_columns<b>(member, n, base + key_offset, n.width, first_key, R(1), kt);
      load_columns<b>(member, n, base + value_offset, n.width, first_key, R(1), vt);
      team_for(member, 2 * b * n.padded_head, [&](const int i) { dk[i] = 0; });  // and dv, which follows it

      for (int head = kv_head * n.group(); head < (kv_head + 1) * n.group(); ++head) {
        const R* const head_lse = lse + (static_cast<std::size_t>(sequence) * n.query_heads + head) * n.length;
        const R* const head_delta = delta + (static_cast<std::size_t>(sequence) * n.query_heads + head) * n.length;
        for (int query_block = key_block; query_block < n.blocks; ++query_block) {
          const int first_query = query_block * b, first_key_block = n.first_key(sequence, first_query) / b;
          if (first_key_block > key_block) break;  // nor does a later query see these keys
          member.team_barrier();
          load_rows<b>(member, n, base + head * n.head, n.width, first_query, n.scale, q);
          load_rows<b>(member, n, dout + first_row * n.query_heads * n.head + head * n.head, n.query_heads * n.head,
                       first_query, R(1), dy);
          member.team_barrier();
          tile_product(member, b, b, n.padded_head, q, n.padded_head, 1, kt, b, Store::overwrite, p, b);
          tile_product(member, b, b, n.padded_head, dy, n.padded_head, 1, vt, b, Store::overwrite, ds, b);
          member.team_barrier();
          team_for(member, b, [&](const int i) {
            R* const prow = p + i * b;
            R* const dsrow = ds + i * b;
            const int t = first_query + i;
            const int visible = t >= n.length ? 0 : (key_block == query_block ? i + 1 : b);
            const int hidden = n.first_key(sequence, t) - first_key;
            const R row_lse = t < n.length ? head_lse[t] : R(0), row_delta = t < n.length ? head_delta[t] : R(0);
            for (int j = 0; j < b; ++j) {
              const R value = fast_exp(prow[j] - row_lse);
              prow[j] = value;
              dsrow[j] = value * (dsrow[j] - row_delta);
            }
            for (int j = visible; j < b; ++j) prow[j] = dsrow[j] = 0;
            for (int j = 0; j < (hidden < b ? hidden : b); ++j) prow[j] = dsrow[j] = 0;
          });
          member.team_barrier();
          tile_product(member, b, n.padded_head, b, p, 1, b, dy, n.padded_head, Store::add, dv, n.padded_head);
          tile_product(member, b, n.padded_head, b, ds, 1, b, q, n.padded_head, Store::add, dk, n.padded_head);
          tile_product(member, b, n.padded_head, b, ds, b, 1, k, n.padded_head, Store::overwrite, dq, n.padded_head);
          member.team_barrier();
          team_for(member, b, [&](const int i) {
            if (first_query + i >= n.length) return;
            R* const to = dqueries + (first_row + static_cast<std::size_t>(first_query + i)) * dqueries_width +
                          static_cast<std::size_t>(head * n.head);
            const R* const from = dq + i * n.padded_head;
            if (key_block == first_key_block)
              for (int d = 0; d < n.head; ++d) to[d] = n.scale * from[d];
            else
              for (int d = 0; d < n.head; ++d) to[d] += n.scale * from[d];
          });
        }
      }
      member.team_barrier();
      team_for(member, b, [&](const int i) {
        if (first_key + i >= n.length) return;
        T* const row = dbase + static_cast<std::size_t>(first_key + i) * n.width;
        for (int d = 0; d < n.head; ++d) {
          row[key_offset + d] = T(dk[i * n.padded_head + d]);
          row[value_offset + d] = T(dv[i * n.padded_head + d]);
        }
      });
    }
  }
};

/// launch(std::integral_constant<int, b>) with the largest block whose scratch memory, bytes(the same), a team has.
template <int b = largest_block, class Bytes, class Launch>
void with_block(const AttentionShape& shape, const Bytes& bytes, const Launch& launch) {
  constexpr std::integral_constant<int, b> block;
  // On the host, to test this: as on NVIDIA's devices.
  const std::size_t most = vector_kernels    ? SIZE_MAX
                           : kernels_on_host ? 40936
                                             : static_cast<std::size_t>(std::max(0, TeamPolicy::scratch_size_max(0)));
  if (bytes(block) <= most) {
    launch(block);
  } else if constexpr (b > smallest_block) {
    with_block<b / 2>(shape, bytes, launch);
  } else {
    throw ConfigError("attention with heads of size " + std::to_string(shape.head_size) + " needs " +
                      std::to_string(bytes(block)) + " bytes of scratch memory for a team, and this device has " +
                      std::to_string(most) + ": use smaller heads (model.head_dim), or train.precision = \"fp32\"");
  }
}

/// Gradients of queries, summed in fp32 (B T, H D), to their place in dqkv.
template <class T, class R>
void round_queries(const Exec& exec, const AttentionShape& shape, const R* from, const View2<T>& dqkv) {
  const int columns = static_cast<int>(shape.query_heads * shape.head_size);
  const std::size_t width = shape.width();
  T* const to = dqkv.data();
  for_each_team(
      "atoll::attention_backward_queries", exec, dqkv.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank());
        const R* const in = from + row * static_cast<std::size_t>(columns);
        T* const out = to + row * width;
        team_for(member, columns, [&](const int i) { out[i] = T(in[i]); });
      });
}

void check(const AttentionShape& shape, std::size_t rows, std::size_t columns, std::size_t first_keys) {
  ATOLL_REQUIRE(shape.key_value_heads > 0 && shape.query_heads % shape.key_value_heads == 0);
  ATOLL_REQUIRE(rows == shape.sequences * shape.length && columns == shape.width());
  ATOLL_REQUIRE(first_keys == 0 || first_keys == rows);
}

}  // namespace

template <class T>
std::size_t attention_workspace(const AttentionShape& shape) {
  const std::size_t rows = shape.sequences * shape.length * shape.query_heads;
  const bool sums_apart = !std::is_same_v<T, Accumulator<T>> && !attention_by_tensor_cores(shape.head_size);
  return sums_apart ? rows * (1 + shape.head_size) : rows;
}

template <class T>
void attention(const Exec& exec, const AttentionShape& shape, View2<const T> qkv, View2<T> out,
               View1<Accumulator<T>> lse, View1<const std::int32_t> first_keys) {
  check(shape, qkv.extent(0), qkv.extent(1), first_keys.extent(0));
#ifdef ATOLL_BF16_VECTORS
  if constexpr (std::is_same_v<T, bf16>)
    if (attention_by_bf16_vectors(shape.head_size))
      return attention_bf16(exec, shape, qkv.data(), out.data(), lse.data(), first_keys.data());
#endif
#ifdef ATOLL_HAVE_CUDA_ATTENTION
  if constexpr (std::is_same_v<T, bf16>)
    if (attention_by_tensor_cores(shape.head_size))
      return attention_cuda(exec, shape, qkv.data(), out.data(), lse.data(), first_keys.data());
#endif
  const auto bytes = [&](auto b) {
    return Forward<T, b.value>::scratch_elements(AttentionDimensions<T>(shape, b.value)) * sizeof(Accumulator<T>);
  };
  with_block(shape, bytes, [&](auto b) {
    const AttentionDimensions<T> n(shape, b.value, first_keys.data());
    for_each_team("atoll::attention", exec, shape.sequences * shape.query_heads * static_cast<std::size_t>(n.blocks),
                  Forward<T, b.value>{n, qkv.data(), out.data(), lse.data()}, bytes(b));
  });
}

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, View2<const T> qkv, View2<const T> out,
                        View2<const T> dout, View1<const Accumulator<T>> lse, View2<T> dqkv,
                        View1<Accumulator<T>> workspace, View1<const std::int32_t> first_keys) {
  using R = Accumulator<T>;
  check(shape, qkv.extent(0), qkv.extent(1), first_keys.extent(0));
  ATOLL_REQUIRE(workspace.extent(0) >= attention_workspace<T>(shape));
  R* const delta = workspace.data();
  const auto heads = static_cast<int>(shape.query_heads), head_size = static_cast<int>(shape.head_size),
             length = static_cast<int>(shape.length);
  // delta = rowsum(dout * out): the part of the softmax's gradient that all keys of a query share.
  for_each(
      "atoll::attention_backward_delta", exec, shape.sequences * shape.length * shape.query_heads,
      KOKKOS_LAMBDA(const std::int64_t i) {
        const T* const y = out.data() + i * head_size;
        const T* const dy = dout.data() + i * head_size;
        R sum = 0;
        for (int d = 0; d < head_size; ++d) sum += R(y[d]) * R(dy[d]);
        const std::int64_t row = i / heads, head = i % heads;
        delta[(row / length * heads + head) * length + row % length] = sum;
      });
#ifdef ATOLL_HAVE_CUDA_ATTENTION
  if constexpr (std::is_same_v<T, bf16>)
    if (attention_by_tensor_cores(shape.head_size))
      return attention_backward_cuda(exec, shape, qkv.data(), dout.data(), lse.data(), delta, dqkv.data(),
                                     first_keys.data());
#endif
  const auto bytes = [&](auto b) {
    return Backward<T, b.value>::scratch_elements(AttentionDimensions<T>(shape, b.value)) * sizeof(R);
  };
  const std::size_t width = shape.query_heads * shape.head_size;
  R* dqueries;
  if constexpr (std::is_same_v<T, R>)
    dqueries = dqkv.data();
  else
    dqueries = delta + shape.sequences * shape.length * shape.query_heads;
  const std::size_t dqueries_width = std::is_same_v<T, R> ? shape.width() : width;
#ifdef ATOLL_BF16_VECTORS
  if constexpr (std::is_same_v<T, bf16>)
    if (attention_by_bf16_vectors(shape.head_size)) {
      attention_backward_bf16(exec, shape, qkv.data(), dout.data(), lse.data(), delta, dqkv.data(), dqueries,
                              first_keys.data());
      return round_queries(exec, shape, dqueries, dqkv);
    }
#endif
  with_block(shape, bytes, [&](auto b) {
    for_each_team("atoll::attention_backward", exec, shape.sequences * shape.key_value_heads,
                  Backward<T, b.value>{AttentionDimensions<T>(shape, b.value, first_keys.data()), qkv.data(),
                                       dout.data(), lse.data(), delta, dqkv.data(), dqueries, dqueries_width},
                  bytes(b));
  });
  if constexpr (!std::is_same_v<T, R>) round_queries(exec, shape, dqueries, dqkv);
}

#define ATOLL_INSTANTIATE(T)                                                                                        \
  template std::size_t attention_workspace<T>(const AttentionShape&);                                               \
  template void attention<T>(const Exec&, const AttentionShape&, View2<const T>, View2<T>, View1<Accumulator<T>>,   \
                             View1<const std::int32_t>);                                                            \
  template void attention_backward<T>(const Exec&, const AttentionShape&, View2<const T>, View2<const T>,           \
                                      View2<const T>, View1<const Accumulator<T>>, View2<T>, View1<Accumulator<T>>, \
                                      View1<const std::int32_t>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
