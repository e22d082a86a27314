/// Shapes as the kernels of attention see them. Included by attention*.cpp only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/attention.hpp"
#include "core/tile.hpp"

#include <cmath>
#include <limits>

namespace atl {

namespace detail {
constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
}  // namespace detail

/// A score that any other one is above, and whose difference to itself is 0: where a query has seen no key yet.
template <class R>
inline constexpr R largest_finite = std::numeric_limits<R>::max();

inline constexpr float log2_e = 1.44269504f;

/// What the kernels of attention know of the shapes, as int for device arithmetic.
template <class T>
struct AttentionDimensions {
  using R = Accumulator<T>;
  int length, query_heads, key_value_heads, head, padded_head, width, blocks;
  R scale;
  const std::int32_t* first_keys;  ///< null: every query sees all keys before it

  AttentionDimensions(const AttentionShape& shape, int b, const std::int32_t* first = nullptr)
      : length(static_cast<int>(shape.length)),
        query_heads(static_cast<int>(shape.query_heads)),
        key_value_heads(static_cast<int>(shape.key_value_heads)),
        head(static_cast<int>(shape.head_size)),
        padded_head(detail::round_up(head, tile_columns<R>)),
        width(static_cast<int>(shape.width())),
        blocks((length + b - 1) / b),
        scale(R(1) / std::sqrt(R(head))),
        first_keys(first) {}
  KOKKOS_INLINE_FUNCTION int group() const { return query_heads / key_value_heads; }
  /// First key that a query sees; of one beyond the end, that of the last query.
  KOKKOS_INLINE_FUNCTION int first_key(int sequence, int query) const {
    if (first_keys == nullptr) return 0;
    const int last = length - 1;
    return first_keys[static_cast<std::size_t>(sequence) * length + (query < last ? query : last)];
  }
};

}  // namespace atl
