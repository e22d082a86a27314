/// SPDX-License-Identifier: Apache-2.0
#include "core/swiglu.hpp"

#include "core/launch.hpp"

namespace atl {

template <class T>
void swiglu(const Exec& exec, View2<const T> gate_up, View2<T> y) {
  using R = Accumulator<T>;
  const int columns = static_cast<int>(y.extent(1));
  ATOLL_REQUIRE(gate_up.extent(1) == 2 * y.extent(1));
  for_each_team(
      "atoll::swiglu", exec, y.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank());
        const T* const gate = gate_up.data() + row * 2 * columns;
        const T* const up = gate + columns;
        T* const out = y.data() + row * columns;
        team_for(member, columns, [&](const int f) {
          const R g = gate[f];
          out[f] = T(g / (R(1) + fast_exp(-g)) * R(up[f]));
        });
      });
}

template <class T>
void swiglu_backward(const Exec& exec, View2<T> dy, View2<T> gate_up) {
  using R = Accumulator<T>;
  const int columns = static_cast<int>(dy.extent(1));
  ATOLL_REQUIRE(gate_up.extent(1) == 2 * dy.extent(1));
  for_each_team(
      "atoll::swiglu_backward", exec, dy.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank());
        T* const gate = gate_up.data() + row * 2 * columns;
        T* const up = gate + columns;
        T* const gradient = dy.data() + row * columns;
        team_for(member, columns, [&](const int f) {
          const R g = gate[f], u = up[f], d = gradient[f];
          const R divisor = R(1) + fast_exp(-g), sigmoid = R(1) / divisor;
          gate[f] = T(d * u * sigmoid * (R(1) + g * (R(1) - sigmoid)));
          up[f] = T(d * g * sigmoid);
          gradient[f] = T(g / divisor * u);  // to the bit that of swiglu
        });
      });
}

#define ATOLL_INSTANTIATE(T)                                      \
  template void swiglu<T>(const Exec&, View2<const T>, View2<T>); \
  template void swiglu_backward<T>(const Exec&, View2<T>, View2<T>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
