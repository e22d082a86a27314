/// SPDX-License-Identifier: Apache-2.0
#include "core/decode_attention.hpp"

#include "core/launch.hpp"

namespace atl {

namespace {

constexpr int part_length = 256;  // positions of a part: their keys and values fit the second-level cache

std::size_t parts_of(std::size_t longest) { return (longest + part_length - 1) / part_length; }

/// The sizes as int for device arithmetic, and where a head begins.
template <class T>
struct Layout {
  int capacity, query_heads, key_value_heads, head, width;
  explicit Layout(const KeyValueCache<T>& cache, std::size_t row)
      : capacity(static_cast<int>(cache.capacity)),
        query_heads(static_cast<int>(row / cache.head_size - 2 * cache.key_value_heads)),
        key_value_heads(static_cast<int>(cache.key_value_heads)),
        head(static_cast<int>(cache.head_size)),
        width(static_cast<int>(row)) {}
  KOKKOS_INLINE_FUNCTION std::size_t begin(int slot, int kv_head) const {
    return static_cast<std::size_t>(slot * key_value_heads + kv_head) * capacity * head;
  }
};

/// a . b, on the host in partial sums so that it vectorises; alone in its thread elsewhere.
template <class R, class T>
KOKKOS_INLINE_FUNCTION R dot(int n, const R* a, const T* b) {
  if constexpr (vector_kernels) {
    constexpr int lanes = 32;
    R partial[lanes] = {};
    int d = 0;
    for (; d + lanes <= n; d += lanes)
      for (int l = 0; l < lanes; ++l) partial[l] += a[d + l] * R(b[d + l]);
    for (; d < n; ++d) partial[d % lanes] += a[d] * R(b[d]);
    for (int half = lanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) partial[l] += partial[l + half];
    return partial[0];
  } else {
    R sum = 0;
    for (int d = 0; d < n; ++d) sum += a[d] * R(b[d]);
    return sum;
  }
}

/// One team: one part of the positions of one query head. Writes its largest score, its sum of e^(score - largest), and
/// the sum of the values with these weights. The heads that share keys are neighbours: the caches hold them.
template <class T>
struct Part {
  using R = Accumulator<T>;
  Layout<T> n;
  int parts;
  R scale;
  const std::int32_t *slots, *positions;
  const T *qkv, *keys, *values;
  R* workspace;

  KOKKOS_FUNCTION static std::size_t scratch_elements(int head) { return static_cast<std::size_t>(part_length + head); }

  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int head = member.league_rank() % n.query_heads;
    const int part = member.league_rank() / n.query_heads % parts;
    const int row = member.league_rank() / n.query_heads / parts;
    const int first = part * part_length;
    const int number = positions[row] + 1 - first < part_length ? positions[row] + 1 - first : part_length;
    if (number <= 0) return;
    Scratch<R> scratch(member.team_scratch(0), scratch_elements(n.head));
    R* const score = scratch.data();
    R* const q = score + part_length;
    const int kv_head = head / (n.query_heads / n.key_value_heads);
    const std::size_t begin = n.begin(slots[row], kv_head) + static_cast<std::size_t>(first) * n.head;
    const T* const k = keys + begin;
    const T* const v = values + begin;
    const T* const query = qkv + static_cast<std::size_t>(row) * n.width + head * n.head;
    R* const out = workspace + static_cast<std::size_t>(member.league_rank()) * (n.head + 2);

    team_for(member, n.head, [&](const int d) { q[d] = scale * R(query[d]); });
    member.team_barrier();
    team_for(member, number, [&](const int j) { score[j] = dot(n.head, q, k + static_cast<std::size_t>(j) * n.head); });
    member.team_barrier();
    const R largest = team_max<R>(member, number, [&](const int j) { return score[j]; });
    member.team_barrier();
    team_for(member, number, [&](const int j) { score[j] = fast_exp(score[j] - largest); });
    member.team_barrier();
    const R sum = team_sum<R>(member, number, [&](const int j) { return score[j]; });
    Kokkos::single(Kokkos::PerTeam(member), [&]() {
      out[0] = largest;
      out[1] = sum;
    });
    R* const o = out + 2;
    if constexpr (vector_kernels) {
      for (int d = 0; d < n.head; ++d) o[d] = 0;
      for (int j = 0; j < number; ++j) {
        const T* const value = v + static_cast<std::size_t>(j) * n.head;
        for (int d = 0; d < n.head; ++d) o[d] += score[j] * R(value[d]);
      }
    } else {
      team_for(member, n.head, [&](const int d) {
        R total = 0;
        for (int j = 0; j < number; ++j) total += score[j] * R(v[static_cast<std::size_t>(j) * n.head + d]);
        o[d] = total;
      });
    }
  }
};

/// One team: one query head of one row, its parts in ascending order.
template <class T>
struct Join {
  using R = Accumulator<T>;
  Layout<T> n;
  int parts;
  const std::int32_t* positions;
  const R* workspace;
  T* out;

  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int head = member.league_rank() % n.query_heads, row = member.league_rank() / n.query_heads;
    const int used = positions[row] / part_length + 1;
    const auto part = [&](int i) {
      return workspace + (static_cast<std::size_t>(row * parts + i) * n.query_heads + head) * (n.head + 2);
    };
    R largest = part(0)[0];
    for (int i = 1; i < used; ++i) largest = part(i)[0] > largest ? part(i)[0] : largest;
    R sum = 0;
    for (int i = 0; i < used; ++i) sum += fast_exp(part(i)[0] - largest) * part(i)[1];
    T* const to = out + static_cast<std::size_t>(member.league_rank()) * n.head;
    team_for(member, n.head, [&](const int d) {
      R total = 0;
      for (int i = 0; i < used; ++i) total += fast_exp(part(i)[0] - largest) * part(i)[2 + d];
      to[d] = T(total / sum);
    });
  }
};

}  // namespace

template <class T>
KeyValueCache<T>::KeyValueCache(std::size_t slots_, std::size_t capacity_, std::size_t key_value_heads_,
                                std::size_t head_size_)
    : slots(slots_), capacity(capacity_), key_value_heads(key_value_heads_), head_size(head_size_) {
  keys = allocate<T>("atoll::cached_keys", slots * key_value_heads * capacity * head_size);
  values = allocate<T>("atoll::cached_values", slots * key_value_heads * capacity * head_size);
}

template <class T>
void store_keys_values(const Exec& exec, View1<const std::int32_t> slots, View1<const std::int32_t> positions,
                       View2<const T> qkv, const KeyValueCache<T>& cache) {
  const Layout<T> n(cache, qkv.extent(1));
  ATOLL_REQUIRE(slots.extent(0) == qkv.extent(0) && positions.extent(0) == qkv.extent(0));
  const auto keys = cache.keys, values = cache.values;
  for_each_team(
      "atoll::store_keys_values", exec, qkv.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const int row = member.league_rank(), slot = slots(row), position = positions(row);
        const T* const k = qkv.data() + static_cast<std::size_t>(row) * n.width + n.query_heads * n.head;
        const T* const v = k + n.key_value_heads * n.head;
        for (int head = 0; head < n.key_value_heads; ++head) {
          const std::size_t to = n.begin(slot, head) + static_cast<std::size_t>(position) * n.head;
          team_for(member, n.head, [&](const int d) {
            keys(to + d) = k[head * n.head + d];
            values(to + d) = v[head * n.head + d];
          });
        }
      });
}

template <class T>
void copy_slot(const Exec& exec, std::size_t from, std::size_t to, std::size_t length, const KeyValueCache<T>& cache) {
  ATOLL_REQUIRE(from < cache.slots && to < cache.slots && length <= cache.capacity);
  const std::size_t head = cache.capacity * cache.head_size, slot = cache.key_value_heads * head;
  const auto copy = [&](const View1<T>& all, std::size_t h) {
    Kokkos::deep_copy(exec, part(all, to * slot + h * head, length * cache.head_size),
                      part(all, from * slot + h * head, length * cache.head_size));
  };
  for (std::size_t h = 0; h < cache.key_value_heads; ++h) {
    copy(cache.keys, h);
    copy(cache.values, h);
  }
}

std::size_t decode_attention_workspace(std::size_t rows, std::size_t longest, std::size_t query_heads,
                                       std::size_t head_size) {
  return rows * parts_of(longest) * query_heads * (head_size + 2);
}

template <class T>
void decode_attention(const Exec& exec, View1<const std::int32_t> slots, View1<const std::int32_t> positions,
                      std::size_t longest, View2<const T> qkv, const KeyValueCache<T>& cache, View2<T> out,
                      View1<Accumulator<T>> workspace) {
  using R = Accumulator<T>;
  const Layout<T> n(cache, qkv.extent(1));
  const std::size_t rows = qkv.extent(0), heads = static_cast<std::size_t>(n.query_heads), parts = parts_of(longest);
  ATOLL_REQUIRE(longest <= cache.capacity && n.query_heads > 0 && n.query_heads % n.key_value_heads == 0);
  ATOLL_REQUIRE(slots.extent(0) == rows && positions.extent(0) == rows);
  ATOLL_REQUIRE(out.extent(0) == rows && out.extent(1) == heads * cache.head_size);
  ATOLL_REQUIRE(workspace.extent(0) >= decode_attention_workspace(rows, longest, heads, cache.head_size));
  const int number = static_cast<int>(parts);
  for_each_team("atoll::decode_attention", exec, rows * parts * heads,
                Part<T>{n, number, R(1) / std::sqrt(R(n.head)), slots.data(), positions.data(), qkv.data(),
                        cache.keys.data(), cache.values.data(), workspace.data()},
                Part<T>::scratch_elements(n.head) * sizeof(R) + 64);
  for_each_team("atoll::decode_attention_join", exec, rows * heads,
                Join<T>{n, number, positions.data(), workspace.data(), out.data()});
}

#define ATOLL_INSTANTIATE(T)                                                                                        \
  template struct KeyValueCache<T>;                                                                                 \
  template void store_keys_values<T>(const Exec&, View1<const std::int32_t>, View1<const std::int32_t>,             \
                                     View2<const T>, const KeyValueCache<T>&);                                      \
  template void copy_slot<T>(const Exec&, std::size_t, std::size_t, std::size_t, const KeyValueCache<T>&);          \
  template void decode_attention<T>(const Exec&, View1<const std::int32_t>, View1<const std::int32_t>, std::size_t, \
                                    View2<const T>, const KeyValueCache<T>&, View2<T>, View1<Accumulator<T>>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
