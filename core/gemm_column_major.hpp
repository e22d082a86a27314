/// Row-major products for libraries that know column-major matrices only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/gemm.hpp"

namespace atl {

/// One product, row-major and packed, as gemm() takes it; c has elements of type `out`, a and b of type `in`.
struct RowMajorProduct {
  Transpose a_op, b_op;
  std::size_t m, n, k;
  const void* a;
  const void* b;
  void* c;
  Element in, out;
};

/// A packed matrix as it lies in memory, column-major: columns are `rows` elements apart.
struct ColumnMajorMatrix {
  std::size_t rows, columns;
};

/// c = first_op(first) second_op(second), as the BLAS has it.
struct ColumnMajorProduct {
  Transpose first_op, second_op;
  std::size_t m, n, k;  ///< c: (m, n), sums of k terms
  const void* first;
  const void* second;
  ColumnMajorMatrix first_shape, second_shape, c_shape;  ///< as stored, before their op
};

/// A row-major matrix read by columns is its transpose, and c^T = op(b)^T op(a)^T: so b comes first, and both keep
/// their op.
inline ColumnMajorProduct as_column_major(const RowMajorProduct& p) {
  const bool ta = p.a_op == Transpose::yes, tb = p.b_op == Transpose::yes;
  return {p.b_op,
          p.a_op,
          p.n,
          p.m,
          p.k,
          p.b,
          p.a,
          tb ? ColumnMajorMatrix{p.k, p.n} : ColumnMajorMatrix{p.n, p.k},
          ta ? ColumnMajorMatrix{p.m, p.k} : ColumnMajorMatrix{p.k, p.m},
          {p.n, p.m}};
}

/// The largest power of two, at most 256, that divides the address.
inline std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

}  // namespace atl
