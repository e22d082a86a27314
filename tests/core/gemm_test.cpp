/// SPDX-License-Identifier: Apache-2.0
#include "core/gemm.hpp"

#include "tests/core/host_values.hpp"

namespace atl::test {
namespace {

struct Product {
  Transpose a_op, b_op;
  std::size_t m, n, k;
};

template <class T>
std::vector<T> multiplied(const Product& p, const std::vector<T>& a, const std::vector<T>& b, T beta,
                          const std::vector<T>& c) {
  const bool ta = p.a_op == Transpose::yes, tb = p.b_op == Transpose::yes;
  const auto out = device(c, p.m, p.n);
  gemm<T>(Exec(), p.a_op, p.b_op, device(a, ta ? p.k : p.m, ta ? p.m : p.k), device(b, tb ? p.n : p.k, tb ? p.k : p.n),
          beta, out);
  return host(out);
}

template <class T>
std::vector<double> naive(const Product& p, const std::vector<T>& a, const std::vector<T>& b, T beta,
                          const std::vector<T>& c) {
  std::vector<double> out(p.m * p.n, 0);
  for (std::size_t i = 0; i < p.m; ++i)
    for (std::size_t j = 0; j < p.n; ++j) {
      double& sum = out[i * p.n + j];
      for (std::size_t l = 0; l < p.k; ++l)
        sum += static_cast<double>(p.a_op == Transpose::yes ? a[l * p.m + i] : a[i * p.k + l]) *
               static_cast<double>(p.b_op == Transpose::yes ? b[j * p.k + l] : b[l * p.n + j]);
      if (beta != T(0)) sum += static_cast<double>(beta) * static_cast<double>(c[i * p.n + j]);
    }
  return out;
}

constexpr Transpose both[] = {Transpose::no, Transpose::yes};

template <class T>
class Gemm : public ::testing::Test {};
TYPED_TEST_SUITE(Gemm, Floats);

// Whole numbers, so that every order of summation gives the same: a wrong element cannot hide in a tolerance.
TYPED_TEST(Gemm, WholeNumbersAreExact) {
  using T = TypeParam;
  for (const Transpose a_op : both)
    for (const Transpose b_op : both)
      for (const std::size_t m : {1u, 3u, 17u, 65u})
        for (const std::size_t n : {1u, 3u, 17u, 65u})
          for (const std::size_t k : {0u, 1u, 3u, 17u, 65u}) {
            const Product p{a_op, b_op, m, n, k};
            const auto a = random_integers<T>(1, m * k), b = random_integers<T>(2, k * n),
                       c = random_integers<T>(3, m * n);
            for (const T beta : {T(0), T(1), T(-2)})
              ASSERT_EQ(multiplied(p, a, b, beta, c), converted<T>(naive(p, a, b, beta, c)))
                  << m << " x " << k << " x " << n << ", transposed " << (a_op == Transpose::yes)
                  << (b_op == Transpose::yes) << ", beta " << beta;
          }
}

TYPED_TEST(Gemm, BetaZeroOverwritesWhateverWasThere) {
  using T = TypeParam;
  for (const Transpose a_op : both)
    for (const Transpose b_op : both)
      for (const std::size_t k : {0u, 1u, 17u, 300u}) {
        const Product p{a_op, b_op, 17, 33, k};
        const auto a = random_integers<T>(1, p.m * k), b = random_integers<T>(2, k * p.n);
        const std::vector<T> c(p.m * p.n, nan<T>);
        EXPECT_EQ(multiplied(p, a, b, T(0), c), converted<T>(naive(p, a, b, T(0), c))) << k;
      }
}

TYPED_TEST(Gemm, LargerProductsAreAccurate) {
  using T = TypeParam;
  for (const Transpose a_op : both)
    for (const Transpose b_op : both) {
      const Product p{a_op, b_op, 130, 257, 300};
      const auto a = random_values<T>(1, p.m * p.k), b = random_values<T>(2, p.k * p.n),
                 c = random_values<T>(3, p.m * p.n);
      // Sums of 300 products of size 1: 300 additions of half an ulp at the very most, in practice a tenth of it.
      const double tolerance = 300 * 0.5 * static_cast<double>(std::numeric_limits<T>::epsilon()) / 10;
      EXPECT_LT(relative_error(multiplied(p, a, b, T(0.5), c), naive(p, a, b, T(0.5), c)), tolerance);
      EXPECT_EQ(multiplied(p, a, b, T(0.5), c), multiplied(p, a, b, T(0.5), c)) << "the same bits again";
    }
}

TYPED_TEST(Gemm, EmptyResultsAreFine) {
  using T = TypeParam;
  const Product p{Transpose::no, Transpose::yes, 0, 5, 3};
  EXPECT_EQ(multiplied<T>(p, {}, std::vector<T>(15, T(1)), T(0), {}), std::vector<T>());
}

TYPED_TEST(Gemm, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  const auto a = allocate<T>("atoll::test", 2, 3), b = allocate<T>("atoll::test", 3, 4),
             c = allocate<T>("atoll::test", 2, 4);
  EXPECT_NO_THROW(gemm<T>(Exec(), Transpose::no, Transpose::no, a, b, T(0), c));
  EXPECT_THROW(gemm<T>(Exec(), Transpose::yes, Transpose::no, a, b, T(0), c), Error);
  EXPECT_THROW(gemm<T>(Exec(), Transpose::no, Transpose::yes, a, b, T(0), c), Error);
  EXPECT_THROW(gemm<T>(Exec(), Transpose::no, Transpose::no, a, b, T(0), b), Error);
}

TEST(GemmLibrary, HasANameAndTakesThreads) {
  for (const Element element : {Element::f32, Element::f64}) {
    EXPECT_FALSE(gemm_library(element).empty());
    const std::string warning = gemm_warning(element);
    EXPECT_TRUE(warning.empty() || warning.find("OPENBLAS_CORETYPE") != std::string::npos)
        << "names its fix: " << warning;
  }
  set_gemm_threads(1);
  const Product p{Transpose::no, Transpose::no, 65, 65, 65};
  const auto a = random_integers<float>(1, 65 * 65);
  EXPECT_EQ(multiplied(p, a, a, 0.0f, a), converted<float>(naive(p, a, a, 0.0f, a)));
}

// Products above 2^28 multiplications, which the host computes in parts: 256 rows of c at once, or 256 terms of its
// sums.
TYPED_TEST(Gemm, LargeProductsAreWhole) {
  using T = TypeParam;
  for (const Product& p :
       {Product{Transpose::no, Transpose::yes, 300, 1000, 1000}, Product{Transpose::no, Transpose::no, 300, 1000, 1000},
        Product{Transpose::yes, Transpose::no, 1000, 1000, 300}}) {
    const auto a = random_integers<T>(1, p.m * p.k), b = random_integers<T>(2, p.k * p.n),
               c = random_integers<T>(3, p.m * p.n);
    const std::vector<T> product = multiplied(p, a, b, T(2), c);
    for (const std::size_t i : {std::size_t(0), std::size_t(255), std::size_t(256), p.m - 1})
      for (std::size_t j = 0; j < p.n; j += 37) {
        double sum = 2 * static_cast<double>(c[i * p.n + j]);
        for (std::size_t l = 0; l < p.k; ++l)
          sum += static_cast<double>(p.a_op == Transpose::yes ? a[l * p.m + i] : a[i * p.k + l]) *
                 static_cast<double>(p.b_op == Transpose::yes ? b[j * p.k + l] : b[l * p.n + j]);
        ASSERT_EQ(static_cast<double>(product[i * p.n + j]), sum) << i << ", " << j;
      }
  }
}

TEST(GemmTf32, IsAnErrorWhereTheLibraryHasNone) {
  EXPECT_NO_THROW(set_gemm_tf32(false));
  if (!kernels_on_host) GTEST_SKIP() << "kernels run on a device";
  EXPECT_THROW(set_gemm_tf32(true), ConfigError);
}

}  // namespace
}  // namespace atl::test
