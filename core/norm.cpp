/// SPDX-License-Identifier: Apache-2.0
#include "core/norm.hpp"

#include "core/launch.hpp"

namespace atl {

namespace {

constexpr std::int64_t block = 8192;  // elements that one team sums; blocks are added in order on the host

std::size_t blocks_of(std::size_t n) { return (n + block - 1) / block; }

template <class F>
double blocked_sum(const std::string& label, const Exec& exec, std::size_t n, const F& term) {
  if (n == 0) return 0;
  const std::size_t blocks = blocks_of(n);
  View1<double> partial(Kokkos::view_alloc("atoll::partial_sums", Kokkos::WithoutInitializing), blocks);
  const std::int64_t size = static_cast<std::int64_t>(n);
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
  for (const double value : to_host(partial)) total += value;
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

std::size_t sum_workspace_bytes(std::size_t n) { return blocks_of(n) * sizeof(double); }

template <class T>
double sum_of_squares(const Exec& exec, View1<const T> x) {
  return blocked_sum("atoll::sum_of_squares", exec, x.extent(0), Square<T>{x.data()});
}
template <class T>
double sum_of_squared_differences(const Exec& exec, View1<const T> x, View1<const T> y) {
  ATOLL_REQUIRE(x.extent(0) == y.extent(0));
  return blocked_sum("atoll::sum_of_squared_differences", exec, x.extent(0), SquaredDifference<T>{x.data(), y.data()});
}
template <class T>
double sum(const Exec& exec, View1<const T> x) {
  return blocked_sum("atoll::sum", exec, x.extent(0), Value<T>{x.data()});
}

#define ATOLL_INSTANTIATE(T)                                                                  \
  template double sum_of_squares<T>(const Exec&, View1<const T>);                             \
  template double sum_of_squared_differences<T>(const Exec&, View1<const T>, View1<const T>); \
  template double sum<T>(const Exec&, View1<const T>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
#undef ATOLL_INSTANTIATE

}  // namespace atl
