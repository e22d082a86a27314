/// Vectors of AVX-512 with its bf16 instructions, for kernels whose products take bf16 and sum in fp32.
/// SPDX-License-Identifier: Apache-2.0
///
/// A word is two bf16, the first one in its low half: what the instruction multiplies and adds to one fp32 sum. Here
/// where the code is compiled for such a processor (-march=native on one); elsewhere ATOLL_BF16_VECTORS is not defined.
#pragma once

#include "core/tile.hpp"

#if defined(ATOLL_HOST_VECTORS) && defined(__AVX512BF16__) && defined(__AVX512BW__)
#define ATOLL_BF16_VECTORS

#include <immintrin.h>

namespace atl::bf16_vectors {

using Word = std::uint32_t;
inline constexpr int lanes = 16;  ///< fp32 numbers, or words, of a vector

/// 2^x, to 1.5 ulp of fp32; 0 below -150, also for -infinity.
inline __m512 exp2(__m512 x) {
  // 2^f on [-1/2, 1/2]: least largest relative error with the first coefficient 1, below 3e-9.
  x = _mm512_max_ps(x, _mm512_set1_ps(-200.0f));
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.53457945e-4f);
  for (const float coefficient : {1.33999311e-3f, 9.61848902e-3f, 5.55032878e-2f, 2.40226469e-1f, 6.93147206e-1f, 1.0f})
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(coefficient));
  return _mm512_scalef_ps(p, n);
}

/// Words of two vectors of fp32, rounded to nearest: (x[l], y[l]).
inline __m512i words(__m512 x, __m512 y) {
  const __m512i packed = (__m512i)_mm512_cvtne2ps_pbh(y, x);
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, packed);
}

/// 32 bf16 from two vectors of fp32, in their order.
inline __m512i narrow(__m512 x, __m512 y) { return (__m512i)_mm512_cvtne2ps_pbh(y, x); }

/// 32 bf16 of a row from column d on; zeros from column `known` on, which are not read.
inline __m512i part_of_row(const bf16* row, int d, int known) {
  const int left = known - d;
  const __mmask32 mask = left >= 32 ? ~0u : left <= 0 ? 0u : (1u << left) - 1u;
  return _mm512_maskz_loadu_epi16(mask, row + d);
}

/// Rows of bf16, `rows` x `columns` (multiples of 2 and 32), to words of two rows each: word (i / 2, d) holds (i, d)
/// and (i + 1, d).
inline void pair_rows(int rows, int columns, const Word* from, Word* to) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0),
                high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int i = 0; i < rows; i += 2)
    for (int d = 0; d < columns; d += 32) {
      const __m512i x = _mm512_loadu_si512(from + (i * columns + d) / 2),
                    y = _mm512_loadu_si512(from + ((i + 1) * columns + d) / 2);
      Word* const out = to + i / 2 * columns + d;
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(x, low, y));
      _mm512_storeu_si512(out + lanes, _mm512_permutex2var_epi16(x, high, y));
    }
}

/// Words (rows, columns) to (columns, rows).
inline void transpose(int rows, int columns, const Word* from, Word* to) {
  for (int l = 0; l < columns; ++l)
    for (int i = 0; i < rows; ++i) to[l * rows + i] = from[i * columns + l];
}

enum class Sum { fresh, add, scale_and_add };

/// c = a b, + c, or + factor(i) c(i, .): c (m, n) in fp32 with rows c_row apart, m and n multiples of 8 and 32. a and b
/// hold words: a(i, l) at a[i a_row + l a_column], both halves of its word and of b(l, j)'s belonging together.
template <Sum sum>
inline void product(int m, int n, int words, const Word* a, int a_row, int a_column, const Word* b, int b_row, float* c,
                    int c_row, const float* factor = nullptr) {
  constexpr int rows = 8;
  for (int i0 = 0; i0 < m; i0 += rows)
    for (int j0 = 0; j0 < n; j0 += 2 * lanes) {
      __m512 low[rows], high[rows];
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        float* const row = c + (i0 + i) * c_row + j0;
        low[i] = sum == Sum::fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(row);
        high[i] = sum == Sum::fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(row + lanes);
        if constexpr (sum == Sum::scale_and_add) {
          const __m512 by = _mm512_set1_ps(factor[i0 + i]);
          low[i] = _mm512_mul_ps(low[i], by);
          high[i] = _mm512_mul_ps(high[i], by);
        }
      }
      const Word* const left = a + i0 * a_row;
      const Word* const right = b + j0;
      for (int l = 0; l < words; ++l) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(right + l * b_row),
                       b1 = (__m512bh)_mm512_loadu_si512(right + l * b_row + lanes);
        const Word* const al = left + l * a_column;
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
          const __m512bh ai = (__m512bh)_mm512_set1_epi32(static_cast<int>(al[i * a_row]));
          low[i] = _mm512_dpbf16_ps(low[i], ai, b0);
          high[i] = _mm512_dpbf16_ps(high[i], ai, b1);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        float* const row = c + (i0 + i) * c_row + j0;
        _mm512_storeu_ps(row, low[i]);
        _mm512_storeu_ps(row + lanes, high[i]);
      }
    }
}

}  // namespace atl::bf16_vectors

#endif
