/// SPDX-License-Identifier: Apache-2.0
#include "core/gemm_column_major.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace atl::test {
namespace {

/// As the BLAS and cuBLAS define it: element (i, j) of a matrix is x[i + j * leading dimension].
std::vector<double> blas(const ColumnMajorProduct& p) {
  const auto at = [](const void* x, const ColumnMajorMatrix& shape, Transpose op, std::size_t i, std::size_t j) {
    if (op == Transpose::yes) std::swap(i, j);
    EXPECT_LT(i, shape.rows);
    EXPECT_LT(j, shape.columns);
    return static_cast<const double*>(x)[i + j * shape.rows];
  };
  std::vector<double> c(p.c_shape.rows * p.c_shape.columns, 0);
  for (std::size_t i = 0; i < p.m; ++i)
    for (std::size_t j = 0; j < p.n; ++j)
      for (std::size_t l = 0; l < p.k; ++l)
        c[i + j * p.c_shape.rows] +=
            at(p.first, p.first_shape, p.first_op, i, l) * at(p.second, p.second_shape, p.second_op, l, j);
  return c;
}

TEST(GemmColumnMajor, GivesTheRowMajorProduct) {
  const std::size_t m = 3, n = 5, k = 4;
  std::vector<double> a(m * k), b(k * n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i * i % 11);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i * 7 % 13);
  for (const Transpose a_op : {Transpose::no, Transpose::yes})
    for (const Transpose b_op : {Transpose::no, Transpose::yes}) {
      std::vector<double> c(m * n), expected(m * n, 0);
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j)
          for (std::size_t l = 0; l < k; ++l)
            expected[i * n + j] += (a_op == Transpose::no ? a[i * k + l] : a[l * m + i]) *
                                   (b_op == Transpose::no ? b[l * n + j] : b[j * k + l]);
      EXPECT_EQ(blas(as_column_major({a_op, b_op, m, n, k, a.data(), b.data(), c.data(), Element::f64, Element::f64})),
                expected)
          << (a_op == Transpose::yes) << (b_op == Transpose::yes);
    }
}

TEST(GemmColumnMajor, Alignments) {
  alignas(512) static char memory[512];
  EXPECT_EQ(alignment_of(memory), 256u);
  EXPECT_EQ(alignment_of(memory + 128), 128u);
  EXPECT_EQ(alignment_of(memory + 12), 4u);
  EXPECT_EQ(alignment_of(memory + 1), 1u);
}

}  // namespace
}  // namespace atl::test
