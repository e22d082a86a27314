/// Products of small matrices in scratch memory, kept in registers: the inner loops of attention.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/launch.hpp"

namespace atl {

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && !defined(KOKKOS_ENABLE_SYCL) && \
    !defined(ATOLL_DEVICE_KERNELS)
#define ATOLL_HOST_VECTORS
#endif

namespace detail {

#ifdef ATOLL_HOST_VECTORS
#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif
// Vectors of the compilers' own extension: GCC, Clang and Intel map them to the registers of any processor.
template <class R>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(vector_bytes), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(vector_bytes), aligned(8), may_alias));
};
#endif

}  // namespace detail

/// Rows and columns of the register tile: sizes of matrices given to tile_product are multiples of these. On the host
/// all sums of a tile, two vectors a row, stay in registers: AVX-512 has 32 of them, others have 16.
#ifdef ATOLL_HOST_VECTORS
inline constexpr int tile_rows = detail::vector_bytes == 64 ? 8 : 4;
template <class R>
inline constexpr int tile_columns = 2 * detail::vector_bytes / static_cast<int>(sizeof(R));
#else
inline constexpr int tile_rows = 4;
template <class R>
inline constexpr int tile_columns = 4;
#endif

enum class Store { overwrite, add };

/// c = a b (+ c): c (m, n) with rows c_row apart, a(i, l) at a[i a_row + l a_column], b (k, n) with rows b_row apart.
/// All members of the team call it; the caller puts barriers around it.
template <class R>
KOKKOS_INLINE_FUNCTION void tile_product(const TeamMember& member, int m, int n, int k, const R* a, int a_row,
                                         int a_column, const R* b, int b_row, Store store, R* c, int c_row) {
  constexpr int columns = tile_columns<R>;
  const int across = n / columns;
  team_for(member, (m / tile_rows) * across, [&](const int tile) {
    const int i0 = (tile / across) * tile_rows, j0 = (tile % across) * columns;
    const R* const left = a + i0 * a_row;
    const R* const right = b + j0;
    R* const out = c + i0 * c_row + j0;
#ifdef ATOLL_HOST_VECTORS
    using Vector = typename detail::VectorOf<R>::type;
    constexpr int width = columns / 2;
    Vector low[tile_rows] = {}, high[tile_rows] = {};
    for (int l = 0; l < k; ++l) {
      const Vector b0 = *reinterpret_cast<const Vector*>(right + l * b_row);
      const Vector b1 = *reinterpret_cast<const Vector*>(right + l * b_row + width);
      const R* const al = left + l * a_column;
#pragma GCC unroll 8
      for (int i = 0; i < tile_rows; ++i) low[i] += al[i * a_row] * b0, high[i] += al[i * a_row] * b1;
    }
#pragma GCC unroll 8
    for (int i = 0; i < tile_rows; ++i) {
      Vector* const to = reinterpret_cast<Vector*>(out + i * c_row);
      Vector* const to_high = reinterpret_cast<Vector*>(out + i * c_row + width);
      *to = store == Store::add ? *to + low[i] : low[i];
      *to_high = store == Store::add ? *to_high + high[i] : high[i];
    }
#else
    R sums[tile_rows][columns] = {};
    for (int l = 0; l < k; ++l)
      for (int i = 0; i < tile_rows; ++i)
        for (int j = 0; j < columns; ++j) sums[i][j] += left[i * a_row + l * a_column] * right[l * b_row + j];
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < columns; ++j) {
        R& to = out[i * c_row + j];
        to = store == Store::add ? to + sums[i][j] : sums[i][j];
      }
#endif
  });
}

}  // namespace atl
