/// Token embedding: rows of a table. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"

#include <cstdint>
#include <vector>

namespace atl {

/// The positions of each distinct token of a micro-batch, so that backward sums each row of the table in a fixed order
/// without atomics. Built on the host once a micro-batch.
class TokenIndex {
 public:
  /// `capacity`: the most tokens a micro-batch has.
  explicit TokenIndex(std::size_t capacity);
  /// tokens: (N), N <= capacity, each in [0, vocabulary).
  void assign(const std::vector<std::int32_t>& tokens, std::size_t vocabulary);

  std::size_t distinct() const { return distinct_; }
  View1<std::int32_t> positions;  ///< (N) positions, sorted by token, then by position
  View1<std::int32_t> begins;     ///< (distinct + 1) where a token's positions begin
  View1<std::int32_t> tokens;     ///< (distinct) the token itself

 private:
  std::size_t distinct_ = 0;
};

/// x(n,:) = table(tokens(n),:). table: (V, C); x: (N, C).
template <class T>
void embedding(const Exec& exec, View2<const T> table, View1<const std::int32_t> tokens, View2<T> x);

/// Adds to dtable (V, C) the rows of dx (N, C), each token's positions in ascending order.
template <class T>
void embedding_backward(const Exec& exec, const TokenIndex& index, View2<const T> dx, View2<Accumulator<T>> dtable);

}  // namespace atl
