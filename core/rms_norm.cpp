/// SPDX-License-Identifier: Apache-2.0
#include "core/rms_norm.hpp"

#include "core/launch.hpp"

namespace atl {

namespace {
// Rows are summed for dw in this many interleaved parts, a team each, whatever the number of threads: the same bits on
// every host. A device needs more teams to be busy.
constexpr int row_parts = kernels_on_host ? 32 : 512;
}  // namespace

std::size_t rms_norm_workspace(std::size_t hidden_size) { return row_parts * hidden_size; }

template <class T>
void rms_norm(const Exec& exec, View2<const T> x, View1<const T> w, double eps, View2<T> y, View1<Accumulator<T>> r,
              View2<T> residual) {
  using R = Accumulator<T>;
  const int columns = static_cast<int>(x.extent(1));
  ATOLL_REQUIRE(residual.size() == 0 || residual.size() == x.size());
  for_each_team(
      "atoll::rms_norm", exec, x.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank()) * columns;
        const T* const in = x.data() + row;
        const T* const weight = w.data();
        T* const out = y.data() + row;
        const R squares = team_sum<R>(member, columns, [&](const int c) {
          const R value = in[c];
          return value * value;
        });
        const R reciprocal = R(1) / math::sqrt(squares / R(columns) + R(eps));
        if (member.team_rank() == 0) r(member.league_rank()) = reciprocal;
        team_for(member, columns, [&](const int c) { out[c] = T(R(weight[c]) * (R(in[c]) * reciprocal)); });
        if (residual.data() == nullptr) return;
        T* const copy = residual.data() + row;
        team_for(member, columns, [&](const int c) { copy[c] = in[c]; });
      });
}

template <class T>
void rms_norm_backward(const Exec& exec, View2<const T> x, View1<const T> w, View1<const Accumulator<T>> r, View2<T> dy,
                       View2<T> dx, View1<Accumulator<T>> dw, View1<Accumulator<T>> partial) {
  using R = Accumulator<T>;
  const int rows = static_cast<int>(x.extent(0)), columns = static_cast<int>(x.extent(1));
  ATOLL_REQUIRE(partial.extent(0) >= rms_norm_workspace(x.extent(1)));
  for_each_team(
      "atoll::rms_norm_backward", exec, row_parts, KOKKOS_LAMBDA(const TeamMember& member) {
        R* const sums = partial.data() + static_cast<std::size_t>(member.league_rank()) * columns;
        const T* const weight = w.data();
        team_for(member, columns, [&](const int c) { sums[c] = 0; });
        for (int row = member.league_rank(); row < rows; row += row_parts) {
          const std::size_t offset = static_cast<std::size_t>(row) * columns;
          const T* const in = x.data() + offset;
          T* const gradient = dy.data() + offset;
          T* const out = dx.data() + offset;
          const R reciprocal = r(row);
          const R dot =
              team_sum<R>(member, columns, [&](const int c) { return R(gradient[c]) * R(weight[c]) * R(in[c]); });
          const R factor = dot * reciprocal * reciprocal / R(columns);
          team_for(member, columns, [&](const int c) {
            const R g = gradient[c], v = in[c];
            sums[c] += g * v * reciprocal;
            out[c] = T(R(out[c]) + reciprocal * (g * R(weight[c]) - v * factor));
            gradient[c] = T(R(weight[c]) * (v * reciprocal));  // to the bit that of rms_norm
          });
        }
      });
  for_each(
      "atoll::rms_norm_backward_sum", exec, columns, KOKKOS_LAMBDA(const std::int64_t c) {
        R sum = 0;
        for (int part = 0; part < row_parts; ++part) sum += partial(static_cast<std::size_t>(part) * columns + c);
        dw(c) = sum;
      });
}

#define ATOLL_INSTANTIATE(T)                                                                                      \
  template void rms_norm<T>(const Exec&, View2<const T>, View1<const T>, double, View2<T>, View1<Accumulator<T>>, \
                            View2<T>);                                                                            \
  template void rms_norm_backward<T>(const Exec&, View2<const T>, View1<const T>, View1<const Accumulator<T>>,    \
                                     View2<T>, View2<T>, View1<Accumulator<T>>, View1<Accumulator<T>>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
