/// Products of bf16, by whichever rule is in force: ctest runs this with the processor's instructions, and without.
/// SPDX-License-Identifier: Apache-2.0
#include "core/gemm.hpp"
#include "tests/core/host_values.hpp"

#include <cstdlib>

namespace atl::test {
namespace {

struct Product {
  Transpose a_op, b_op;
  std::size_t m, n, k;
};

template <class C>
std::vector<C> multiplied(const Product& p, const std::vector<bf16>& a, const std::vector<bf16>& b, float beta,
                          const std::vector<C>& c) {
  const bool ta = p.a_op == Transpose::yes, tb = p.b_op == Transpose::yes;
  const auto out = device(c, p.m, p.n);
  gemm<bf16>(Exec(), p.a_op, p.b_op, device(a, ta ? p.k : p.m, ta ? p.m : p.k),
             device(b, tb ? p.n : p.k, tb ? p.k : p.n), beta, out);
  return host(out);
}

/// Element (i, j) in fp64.
template <class C>
double exact(const Product& p, const std::vector<bf16>& a, const std::vector<bf16>& b, float beta,
             const std::vector<C>& c, std::size_t i, std::size_t j) {
  double sum = 0;
  for (std::size_t l = 0; l < p.k; ++l)
    sum += static_cast<double>(p.a_op == Transpose::yes ? a[l * p.m + i] : a[i * p.k + l]) *
           static_cast<double>(p.b_op == Transpose::yes ? b[j * p.k + l] : b[l * p.n + j]);
  return beta == 0 ? sum : sum + static_cast<double>(beta) * static_cast<double>(c[i * p.n + j]);
}

template <class C>
std::vector<float> exact(const Product& p, const std::vector<bf16>& a, const std::vector<bf16>& b, float beta,
                         const std::vector<C>& c) {
  std::vector<float> out(p.m * p.n);
  for (std::size_t i = 0; i < p.m; ++i)
    for (std::size_t j = 0; j < p.n; ++j) out[i * p.n + j] = static_cast<float>(exact(p, a, b, beta, c, i, j));
  return out;
}

constexpr Transpose both[] = {Transpose::no, Transpose::yes};

template <class C>
class GemmBf16 : public ::testing::Test {};
using Results = ::testing::Types<bf16, float>;
TYPED_TEST_SUITE(GemmBf16, Results);

// Whole numbers below 2^24: every order of fp32 sums gives the same, and what is rounded is rounded once, to nearest.
TYPED_TEST(GemmBf16, WholeNumbersAreExactAndRoundedOnce) {
  using C = TypeParam;
  for (const Transpose a_op : both)
    for (const Transpose b_op : both)
      for (const std::size_t m : {1u, 3u, 17u, 65u})
        for (const std::size_t n : {1u, 3u, 17u, 65u})
          for (const std::size_t k : {0u, 1u, 3u, 17u, 65u}) {
            const Product p{a_op, b_op, m, n, k};
            const auto a = random_integers<bf16>(1, m * k), b = random_integers<bf16>(2, k * n);
            const auto c = random_integers<C>(3, m * n);
            for (const float beta : {0.0f, 1.0f, -2.0f})
              ASSERT_EQ(converted<float>(multiplied(p, a, b, beta, c)),
                        converted<float>(converted<C>(exact(p, a, b, beta, c))))
                  << m << " x " << k << " x " << n << ", transposed " << (a_op == Transpose::yes)
                  << (b_op == Transpose::yes) << ", beta " << beta;
          }
}

TYPED_TEST(GemmBf16, BetaZeroOverwritesWhateverWasThere) {
  using C = TypeParam;
  for (const Transpose a_op : both)
    for (const Transpose b_op : both)
      for (const std::size_t k : {0u, 1u, 17u, 300u}) {
        const Product p{a_op, b_op, 17, 33, k};
        const auto a = random_integers<bf16>(1, p.m * k), b = random_integers<bf16>(2, k * p.n);
        const std::vector<C> c(p.m * p.n, C(nan<float>));
        EXPECT_EQ(converted<float>(multiplied(p, a, b, 0, c)), converted<float>(converted<C>(exact(p, a, b, 0, c))))
            << k;
      }
}

TYPED_TEST(GemmBf16, SumsAreInFp32) {
  using C = TypeParam;
  for (const Transpose a_op : both)
    for (const Transpose b_op : both) {
      const Product p{a_op, b_op, 130, 257, 300};
      const auto a = converted<bf16>(random_values<float>(1, p.m * p.k)),
                 b = converted<bf16>(random_values<float>(2, p.k * p.n));
      const auto c = converted<C>(random_values<float>(3, p.m * p.n));
      // Products of two bf16 are exact in fp32. Sums of 300 of them are off by half an ulp of fp32 for each addition at
      // the very most, in practice by a tenth of it; relative to the largest element. Sums in bf16, which has 8 bits,
      // would be off by 1e-2; to round once takes half of 2^-7.
      const double sums = 300 * 0x1p-24 / 10, rounding = std::is_same_v<C, bf16> ? 0x1p-8 : 0;
      EXPECT_LT(relative_error(multiplied(p, a, b, 0.5f, c), exact(p, a, b, 0.5f, c)), sums + rounding);
      EXPECT_EQ(converted<float>(multiplied(p, a, b, 0.5f, c)), converted<float>(multiplied(p, a, b, 0.5f, c)))
          << "the same bits again";
    }
}

// Larger than a block of 1024, and than the 2^31 multiplications that are one call of oneDNN: in every direction.
TYPED_TEST(GemmBf16, LargeProductsAreWhole) {
  using C = TypeParam;
  for (const Product& p : {Product{Transpose::no, Transpose::yes, 1100, 1500, 2100},
                           Product{Transpose::no, Transpose::no, 1100, 1500, 2100},
                           Product{Transpose::yes, Transpose::no, 2100, 1100, 1500}}) {
    const auto a = random_integers<bf16>(1, p.m * p.k), b = random_integers<bf16>(2, p.k * p.n);
    const auto c = random_integers<C>(3, p.m * p.n);
    const auto product = multiplied(p, a, b, 2, c);
    for (const std::size_t i :
         {std::size_t(0), std::size_t(639), std::size_t(640), std::size_t(1023), std::size_t(1024), p.m - 1})
      for (std::size_t j = 0; j < p.n; j += 37)
        ASSERT_EQ(static_cast<float>(product[i * p.n + j]),
                  static_cast<float>(C(static_cast<float>(exact(p, a, b, 2, c, i, j)))))
            << i << ", " << j;
  }
}

TYPED_TEST(GemmBf16, RefusesShapesThatDoNotFit) {
  using C = TypeParam;
  const auto a = allocate<bf16>("atoll::test", 2, 3), b = allocate<bf16>("atoll::test", 3, 4);
  const auto c = allocate<C>("atoll::test", 2, 4);
  EXPECT_NO_THROW(gemm<bf16>(Exec(), Transpose::no, Transpose::no, a, b, 0, c));
  EXPECT_THROW(gemm<bf16>(Exec(), Transpose::yes, Transpose::no, a, b, 0, c), Error);
  EXPECT_THROW(gemm<bf16>(Exec(), Transpose::no, Transpose::yes, a, b, 0, c), Error);
}

TEST(GemmBf16Library, SaysWhatItDoes) {
  const std::string name = gemm_library(Element::bf16), warning = gemm_warning(Element::bf16);
  const bool converts = name.find("converted to fp32") != std::string::npos;
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) {
    EXPECT_TRUE(converts) << name;
  }
  EXPECT_EQ(converts, warning.find("no time") != std::string::npos) << warning;
  if (!kernels_on_host) GTEST_SKIP() << "kernels run on a device";
  EXPECT_EQ(gemm_workspace_bytes(Element::bf16), converts ? 3u * 1024 * 1024 * 4 : 0u);
  EXPECT_EQ(gemm_workspace_bytes(Element::f32), 0u);
}

}  // namespace
}  // namespace atl::test
