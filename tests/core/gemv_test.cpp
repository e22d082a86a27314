/// SPDX-License-Identifier: Apache-2.0
#include "core/gemv.hpp"

#include "tests/core/host_values.hpp"

namespace atl::test {
namespace {

constexpr std::size_t no_row = static_cast<std::size_t>(-1);

/// y = x w^T + beta y of rows of x; of one row alone where it is given.
template <class T>
std::vector<T> product(const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& y, std::size_t rows,
                       std::size_t columns, std::size_t k, Accumulator<T> beta, std::size_t row = no_row) {
  const auto part = [&](const std::vector<T>& all, std::size_t length) {
    if (row == no_row) return all;
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * length);
    return std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(length));
  };
  const std::size_t n = row == no_row ? rows : 1;
  const auto out = device(part(y, columns), n, columns);
  gemv<T>(Exec(), device(part(x, k), n, k), device(w, columns, k), beta, out);
  return host(out);
}

// Around the numbers of rows and columns that are treated together, and lengths that are no multiple of a vector.
constexpr std::size_t row_counts[] = {1, 2, 3, 4, 5, 7, 8, 11}, column_counts[] = {1, 3, 4, 7, 8, 9, 20},
                      lengths[] = {1, 7, 16, 33, 150};

template <class T>
class Gemv : public ::testing::Test {};
TYPED_TEST_SUITE(Gemv, Floats);

TYPED_TEST(Gemv, MatchesNaiveAndRowsAreTheirOwn) {
  using T = TypeParam;
  for (const std::size_t rows : row_counts)
    for (const std::size_t columns : column_counts)
      for (const std::size_t k : lengths) {
        const auto x = random_values<T>(1, rows * k), w = random_values<T>(2, columns * k);
        for (const T beta : {T(0), T(1), T(0.5)}) {
          const auto before =
              beta == T(0) ? std::vector<T>(rows * columns, nan<T>) : random_values<T>(3, rows * columns);
          std::vector<double> expected;
          for (std::size_t n = 0; n < rows; ++n)
            for (std::size_t m = 0; m < columns; ++m) {
              double sum = beta == T(0) ? 0.0 : double(beta) * double(before[n * columns + m]);
              for (std::size_t i = 0; i < k; ++i) sum += double(x[n * k + i]) * double(w[m * k + i]);
              expected.push_back(sum);
            }
          const auto y = product<T>(x, w, before, rows, columns, k, beta);
          // A few roundings of sums of up to 150 terms.
          ASSERT_LT(relative_error(y, expected), (std::is_same_v<T, double> ? 1e-14 : 3e-6))
              << rows << " x " << columns << " x " << k;
          for (std::size_t n = 0; n < rows; ++n) {
            const auto alone = product<T>(x, w, before, rows, columns, k, beta, n);
            for (std::size_t m = 0; m < columns; ++m) ASSERT_EQ(alone[m], y[n * columns + m]) << n << ", " << m;
          }
        }
      }
}

TEST(GemvBf16, MatchesFp32OnRoundedInputs) {
  const std::size_t rows = 5, columns = 9, k = 50;
  const auto x = rounded_to_bf16(random_values<float>(1, rows * k)),
             w = rounded_to_bf16(random_values<float>(2, columns * k)),
             y = rounded_to_bf16(random_values<float>(3, rows * columns));
  const auto actual = product<bf16>(converted<bf16>(x), converted<bf16>(w), converted<bf16>(y), rows, columns, k, 1);
  EXPECT_LT(relative_error(converted<float>(actual), product<float>(x, w, y, rows, columns, k, 1)), bf16_tolerance);
}

TEST(GemvShapes, AreChecked) {
  const auto m = [](std::size_t rows, std::size_t columns) { return allocate<float>("atoll::test", rows, columns); };
  EXPECT_THROW(gemv<float>(Exec(), m(2, 3), m(4, 5), 0, m(2, 4)), Error);
  EXPECT_THROW(gemv<float>(Exec(), m(2, 3), m(4, 3), 0, m(2, 5)), Error);
}

}  // namespace
}  // namespace atl::test
