/// SPDX-License-Identifier: Apache-2.0
#include "core/norm.hpp"

#include "core/launch.hpp"

#include <algorithm>

namespace atl {

namespace {

// A team sums a block of elements; blocks are added in order on the host.
template <class F>
double blocked_sum(const std::string& label, const Exec& exec, std::size_t n, View1<double> partial, const F& term) {
  if (n == 0) return 0;
  constexpr std::size_t least = 8192;
  if (partial.extent(0) == 0) partial = allocate<double>("atoll::partial_sums", sum_workspace);
  ATOLL_REQUIRE(partial.extent(0) >= sum_workspace);
  const std::int64_t size = static_cast<std::int64_t>(n);
  const auto block = static_cast<std::int64_t>(std::max(least, (n + sum_workspace - 1) / sum_workspace));
  const std::size_t blocks = static_cast<std::size_t>((size + block - 1) / block);
  for_each_team(
      label, exec, blocks, KOKKOS_LAMBDA(const TeamMember& member) {
        const std::int64_t begin = member.league_rank() * block;
        const std::int64_t rest = size - begin;
        const double sum = team_sum<double>(member, static_cast<int>(rest < block ? rest : block),
                                            [&](const int i) { return term(begin + i); });
        if (member.team_rank() == 0) partial(member.league_rank()) = sum;
      });
  exec.fence();
  double total = 0;
  for (const double value : to_host(part(partial, 0, blocks))) total += value;
  return total;
}

template <class T>
struct Square {
  const T* x;
  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t i) const {
    const double value = static_cast<double>(x[i]);
    return value * value;
  }
};
template <class T>
struct SquaredDifference {
  const T *x, *y;
  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t i) const {
    const double value = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    return value * value;
  }
};
template <class T>
struct Value {
  const T* x;
  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t i) const { return static_cast<double>(x[i]); }
};

}  // namespace

template <class T>
double sum_of_squares(const Exec& exec, View1<const T> x, View1<double> partial) {
  return blocked_sum("atoll::sum_of_squares", exec, x.extent(0), partial, Square<T>{x.data()});
}
template <class T>
double sum_of_squared_differences(const Exec& exec, View1<const T> x, View1<const T> y, View1<double> partial) {
  ATOLL_REQUIRE(x.extent(0) == y.extent(0));
  return blocked_sum("atoll::sum_of_squared_differences", exec, x.extent(0), partial,
                     SquaredDifference<T>{x.data(), y.data()});
}
template <class T>
double sum(const Exec& exec, View1<const T> x, View1<double> partial) {
  return blocked_sum("atoll::sum", exec, x.extent(0), partial, Value<T>{x.data()});
}

#define ATOLL_INSTANTIATE(T)                                                                                 \
  template double sum_of_squares<T>(const Exec&, View1<const T>, View1<double>);                             \
  template double sum_of_squared_differences<T>(const Exec&, View1<const T>, View1<const T>, View1<double>); \
  template double sum<T>(const Exec&, View1<const T>, View1<double>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
#undef ATOLL_INSTANTIATE

}  // namespace atl
