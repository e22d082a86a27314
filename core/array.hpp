/// Views of one kind everywhere: row-major, in the memory of the execution space. SPDX-License-Identifier: Apache-2.0
///
/// Letters of all shapes: B sequences, T positions, N = B T tokens, C hidden size, F intermediate size, V vocabulary,
/// H query heads, K key-value heads, D head size, S shards of a unit.
#pragma once

#include "core/element.hpp"
#include "core/errors.hpp"

#include <string>
#include <vector>

namespace atl {

template <class T>
using View1 = Kokkos::View<T*, Kokkos::LayoutRight, Memory>;
template <class T>
using View2 = Kokkos::View<T**, Kokkos::LayoutRight, Memory>;

/// Every element becomes `value`.
template <class T>
void fill(const Exec& exec, const View1<T>& view, T value) {
  if (view.extent(0) == 0) return;
  T* const data = view.data();
  Kokkos::parallel_for(
      "atoll::fill", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, view.extent(0)),
      KOKKOS_LAMBDA(const std::int64_t i) { data[i] = value; });
}

/// n elements, zero. The label appears in Kokkos Tools.
template <class T>
View1<T> allocate(const std::string& label, std::size_t n) {
  View1<T> view(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), n);
  fill(Exec(), view, T(0));
  Exec().fence();
  return view;
}

/// rows x columns elements, zero.
template <class T>
View2<T> allocate(const std::string& label, std::size_t rows, std::size_t columns) {
  View2<T> view(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), rows, columns);
  fill(Exec(), View1<T>(view.data(), view.size()), T(0));
  Exec().fence();
  return view;
}

/// Elements [begin, begin + size) of a flat array; does not own them.
template <class T>
View1<T> part(const View1<T>& flat, std::size_t begin, std::size_t size) {
  ATOLL_REQUIRE(begin + size <= flat.extent(0));
  return View1<T>(flat.data() + begin, size);
}

/// The flat elements from `begin` on as a matrix; does not own them.
template <class T>
View2<T> matrix(const View1<T>& flat, std::size_t begin, std::size_t rows, std::size_t columns) {
  ATOLL_REQUIRE(begin + rows * columns <= flat.extent(0));
  return View2<T>(flat.data() + begin, rows, columns);
}

/// Rows [begin, begin + rows) of a matrix; does not own them.
template <class T>
View2<T> row_block(const View2<T>& m, std::size_t begin, std::size_t rows) {
  ATOLL_REQUIRE(begin + rows <= m.extent(0));
  return View2<T>(m.data() + begin * m.extent(1), rows, m.extent(1));
}

template <class T>
View1<const T> as_const(const View1<T>& view) {
  return view;
}
template <class T>
View2<const T> as_const(const View2<T>& view) {
  return view;
}

/// All elements of a matrix as a flat array; does not own them.
template <class T>
View1<T> flat(const View2<T>& m) {
  return View1<T>(m.data(), m.size());
}

/// Copies between host vectors and device arrays of equal size; complete on return.
template <class T>
void copy_to_device(const std::vector<T>& from, const View1<T>& to) {
  ATOLL_REQUIRE(from.size() == to.extent(0));
  Kokkos::deep_copy(to, Kokkos::View<const T*, Kokkos::LayoutRight, Kokkos::HostSpace>(from.data(), from.size()));
}

template <class T>
View1<T> to_device(const std::string& label, const std::vector<T>& from) {
  View1<T> view(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), from.size());
  copy_to_device(from, view);
  return view;
}

template <class T>
std::vector<std::remove_const_t<T>> to_host(const View1<T>& from) {
  std::vector<std::remove_const_t<T>> values(from.extent(0));
  Kokkos::deep_copy(
      Kokkos::View<std::remove_const_t<T>*, Kokkos::LayoutRight, Kokkos::HostSpace>(values.data(), values.size()),
      from);
  return values;
}

}  // namespace atl
