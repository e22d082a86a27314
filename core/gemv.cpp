/// SPDX-License-Identifier: Apache-2.0
#include "core/gemv.hpp"

#include "core/tile.hpp"

#include <algorithm>
#include <cstring>

namespace atl {

namespace {

#ifdef ATOLL_HOST_VECTORS

template <class R>
using Vector = typename detail::VectorOf<R>::type;
template <class R>
constexpr int width = detail::vector_bytes / static_cast<int>(sizeof(R));

template <class T>
Vector<Accumulator<T>> load(const T* from) {
  using R = Accumulator<T>;
  if constexpr (std::is_same_v<T, R>) {
    return *reinterpret_cast<const Vector<T>*>(from);
  } else {  // bf16: the upper half of an fp32 number
    typedef std::uint16_t Bits __attribute__((vector_size(detail::vector_bytes / 2), aligned(2), may_alias));
    typedef std::uint32_t Wide __attribute__((vector_size(detail::vector_bytes)));
    const Wide wide = __builtin_convertvector(*reinterpret_cast<const Bits*>(from), Wide) << 16;
    Vector<R> values;
    std::memcpy(&values, &wide, sizeof(values));
    return values;
  }
}

/// Halves are added until one number is left.
template <int bytes, class R, class V>
R sum_of_lanes(const V& v) {
  if constexpr (bytes == sizeof(R)) {
    R sum;
    std::memcpy(&sum, &v, sizeof(R));
    return sum;
  } else {
    typedef R Half __attribute__((vector_size(bytes / 2)));
    Half low, high;
    std::memcpy(&low, &v, bytes / 2);
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + bytes / 2, bytes / 2);
    return sum_of_lanes<bytes / 2, R>(Half(low + high));
  }
}

/// Products of `across` rows of w with `down` rows of x, each with one vector of partial sums in a register.
template <int across, int down, class T, class Y>
void products(int k, const T* x, const T* w, Accumulator<T> beta, Y* y, std::size_t y_row) {
  using R = Accumulator<T>;
  constexpr int step = width<R>;
  const std::size_t row = static_cast<std::size_t>(k);
  Vector<R> sums[across][down] = {};
  int i = 0;
  for (; i + step <= k; i += step) {
    Vector<R> right[down];
    for (int n = 0; n < down; ++n) right[n] = load(x + static_cast<std::size_t>(n) * row + i);
    for (int m = 0; m < across; ++m) {
      const Vector<R> left = load(w + static_cast<std::size_t>(m) * row + i);
      for (int n = 0; n < down; ++n) sums[m][n] += left * right[n];
    }
  }
  for (int m = 0; m < across; ++m)
    for (int n = 0; n < down; ++n) {
      R sum = sum_of_lanes<detail::vector_bytes, R>(sums[m][n]);
      for (int rest = i; rest < k; ++rest)
        sum += R(w[static_cast<std::size_t>(m) * row + rest]) * R(x[static_cast<std::size_t>(n) * row + rest]);
      Y& to = y[static_cast<std::size_t>(n) * y_row + m];
      to = Y(beta == R(0) ? sum : sum + beta * R(to));
    }
}

/// All rows of x with `across` rows of w, which stay in the first-level cache.
template <int across, class T, class Y>
void all_rows(int rows, int k, const T* x, const T* w, Accumulator<T> beta, Y* y, std::size_t y_row) {
  const std::size_t row = static_cast<std::size_t>(k);
  int n = 0;
  for (; n + 4 <= rows; n += 4) products<across, 4>(k, x + n * row, w, beta, y + n * y_row, y_row);
  x += n * row, y += n * y_row;
  if (rows - n == 3) products<across, 3>(k, x, w, beta, y, y_row);
  if (rows - n == 2) products<across, 2>(k, x, w, beta, y, y_row);
  if (rows - n == 1) products<across, 1>(k, x, w, beta, y, y_row);
}

template <class T, class Y>
struct Product {
  int rows, columns, k;
  const T *x, *w;
  Accumulator<T> beta;
  Y* y;

  // With few rows of x, 8 rows of w at a time: enough independent sums to hide the latency of a multiplication, and as
  // many as the registers hold.
  static constexpr int across = 8, few = detail::vector_bytes == 64 ? 3 : 1;
  static int teams(int columns) { return (columns + across - 1) / across; }

  void operator()(const TeamMember& member) const {
    const std::size_t y_row = static_cast<std::size_t>(columns), row = static_cast<std::size_t>(k);
    int first = member.league_rank() * across;
    const int last = std::min(first + across, columns);
    if (rows <= few && last - first == across) {
      all_rows<across>(rows, k, x, w + first * row, beta, y + first, y_row);
      return;
    }
    for (; first + 4 <= last; first += 4) all_rows<4>(rows, k, x, w + first * row, beta, y + first, y_row);
    for (; first < last; ++first) all_rows<1>(rows, k, x, w + first * row, beta, y + first, y_row);
  }
};

#else

template <class T, class Y>
struct Product {
  using R = Accumulator<T>;
  int rows, columns, k;
  const T *x, *w;
  R beta;
  Y* y;

  static int teams(int columns) { return columns; }

  // A team: a row of w, which the caches keep for all rows of x but the first.
  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int m = member.league_rank();
    const T* const left = w + static_cast<std::size_t>(m) * k;
    for (int n = 0; n < rows; ++n) {
      const T* const right = x + static_cast<std::size_t>(n) * k;
      const R sum = team_sum<R>(member, k, [&](const int i) { return R(left[i]) * R(right[i]); });
      Kokkos::single(Kokkos::PerTeam(member), [&]() {
        Y& to = y[static_cast<std::size_t>(n) * columns + m];
        to = Y(beta == R(0) ? sum : sum + beta * R(to));
      });
    }
  }
};

#endif

}  // namespace

template <class T, class Y>
void gemv(const Exec& exec, View2<const T> x, View2<const T> w, Accumulator<T> beta, View2<Y> y) {
  ATOLL_REQUIRE(x.extent(1) == w.extent(1) && y.extent(0) == x.extent(0) && y.extent(1) == w.extent(0));
  if (y.size() == 0) return;
  const auto number = [](std::size_t n) { return static_cast<int>(n); };
  const Product<T, Y> product{
      number(x.extent(0)), number(w.extent(0)), number(w.extent(1)), x.data(), w.data(), beta, y.data()};
  for_each_team("atoll::gemv", exec, static_cast<std::size_t>(Product<T, Y>::teams(product.columns)), product);
}

template void gemv<float>(const Exec&, View2<const float>, View2<const float>, float, View2<float>);
template void gemv<double>(const Exec&, View2<const double>, View2<const double>, double, View2<double>);
template void gemv<bf16, float>(const Exec&, View2<const bf16>, View2<const bf16>, float, View2<float>);
template void gemv<bf16>(const Exec&, View2<const bf16>, View2<const bf16>, float, View2<bf16>);

}  // namespace atl
