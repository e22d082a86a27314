/// Rotary position embedding (arXiv:2104.09864), half-split as in Hugging Face's Llama. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "core/array.hpp"

#include <cstdint>
#include <vector>

namespace atl {

/// cos and sin of position x frequency: (T, D/2) each, computed in fp64.
template <class T>
struct RopeTable {
  View2<Accumulator<T>> cosine, sine;
};

/// `frequencies`: D/2 angles per position (rope_frequencies of model/llama_config gives them, scaled or not).
template <class T>
RopeTable<T> make_rope_table(const std::vector<double>& frequencies, std::size_t length);

enum class Rotation { forward, inverse };

/// Rotates, in place, the first `heads` heads of every row of x (N, >= heads D): element pairs (d, d + D/2) of a head
/// by the angle of the row's position (row mod T). The inverse rotation is the backward pass, and undoes the forward
/// one.
template <class T>
void rope(const Exec& exec, Rotation rotation, const RopeTable<T>& table, std::size_t heads, View2<T> x);

/// The forward rotation where row n is at positions(n), which is below the table's length.
template <class T>
void rope(const Exec& exec, View1<const std::int32_t> positions, const RopeTable<T>& table, std::size_t heads,
          View2<T> x);

}  // namespace atl
