/// SPDX-License-Identifier: Apache-2.0
#include "core/rope.hpp"

#include "core/launch.hpp"

namespace atl {

namespace {

/// Sequences one after another, of the table's length.
struct RowInSequence {
  std::size_t length;
  KOKKOS_INLINE_FUNCTION std::size_t operator()(std::size_t row) const { return row % length; }
};
struct GivenPosition {
  View1<const std::int32_t> positions;
  KOKKOS_INLINE_FUNCTION std::size_t operator()(std::size_t row) const {
    return static_cast<std::size_t>(positions(row));
  }
};

/// Rotates row n by the angle of position_of(n).
template <class T, class Position>
void rotate(const Exec& exec, Rotation rotation, const RopeTable<T>& table, std::size_t heads, const View2<T>& x,
            const Position& position_of) {
  using R = Accumulator<T>;
  const int half = static_cast<int>(table.cosine.extent(1)), number = static_cast<int>(heads);
  const std::size_t stride = x.extent(1);
  ATOLL_REQUIRE(heads * 2 * table.cosine.extent(1) <= stride);
  const R sign = rotation == Rotation::forward ? R(1) : R(-1);
  const auto cosines = table.cosine, sines = table.sine;
  for_each_team(
      "atoll::rope", exec, x.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank()), position = position_of(row);
        const R* const c = cosines.data() + position * half;
        const R* const s = sines.data() + position * half;
        for (int head = 0; head < number; ++head) {
          T* const low = x.data() + row * stride + static_cast<std::size_t>(head) * 2 * half;
          T* const high = low + half;
          team_for(member, half, [&](const int d) {
            const R a = low[d], b = high[d], sine = sign * s[d];
            low[d] = T(a * c[d] - b * sine);
            high[d] = T(b * c[d] + a * sine);
          });
        }
      });
}

}  // namespace

template <class T>
RopeTable<T> make_rope_table(const std::vector<double>& frequencies, std::size_t length) {
  using R = Accumulator<T>;
  const std::size_t half = frequencies.size();
  std::vector<R> cosine(length * half), sine(length * half);
  for (std::size_t t = 0; t < length; ++t)
    for (std::size_t d = 0; d < half; ++d) {
      const double angle = static_cast<double>(t) * frequencies[d];
      cosine[t * half + d] = static_cast<R>(std::cos(angle));
      sine[t * half + d] = static_cast<R>(std::sin(angle));
    }
  RopeTable<T> table{allocate<R>("atoll::rope_cosine", length, half), allocate<R>("atoll::rope_sine", length, half)};
  copy_to_device(cosine, flat(table.cosine));
  copy_to_device(sine, flat(table.sine));
  return table;
}

template <class T>
void rope(const Exec& exec, Rotation rotation, const RopeTable<T>& table, std::size_t heads, View2<T> x) {
  rotate(exec, rotation, table, heads, x, RowInSequence{table.cosine.extent(0)});
}

template <class T>
void rope(const Exec& exec, View1<const std::int32_t> positions, const RopeTable<T>& table, std::size_t heads,
          View2<T> x) {
  ATOLL_REQUIRE(positions.extent(0) == x.extent(0));
  rotate(exec, Rotation::forward, table, heads, x, GivenPosition{positions});
}

#define ATOLL_INSTANTIATE(T)                                                                \
  template RopeTable<T> make_rope_table<T>(const std::vector<double>&, std::size_t);        \
  template void rope<T>(const Exec&, Rotation, const RopeTable<T>&, std::size_t, View2<T>); \
  template void rope<T>(const Exec&, View1<const std::int32_t>, const RopeTable<T>&, std::size_t, View2<T>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
