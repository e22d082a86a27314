/// Sums: exact where they can be, and the same bits wherever the array lies. SPDX-License-Identifier: Apache-2.0
#include "core/norm.hpp"

#include "tests/core/host_values.hpp"

namespace atl::test {
namespace {

// Around 16 lanes and around blocks of 8192 elements.
constexpr std::size_t lengths[] = {0, 1, 15, 16, 17, 8191, 8192, 8193, 16384, 50001};

template <class T>
double squares(const std::vector<T>& x) {
  return sum_of_squares<T>(Exec(), device(x));
}

template <class T>
class Norm : public ::testing::Test {};
TYPED_TEST_SUITE(Norm, Floats);

TYPED_TEST(Norm, WholeNumbersAreExact) {
  using T = TypeParam;
  for (const std::size_t n : lengths) {
    const auto x = random_integers<T>(1, n), y = random_integers<T>(2, n);
    double all = 0, all_squares = 0, differences = 0;
    for (std::size_t i = 0; i < n; ++i) {
      all += static_cast<double>(x[i]);
      all_squares += static_cast<double>(x[i] * x[i]);
      differences += static_cast<double>((x[i] - y[i]) * (x[i] - y[i]));
    }
    EXPECT_EQ(sum<T>(Exec(), device(x)), all) << n;
    EXPECT_EQ(squares(x), all_squares) << n;
    EXPECT_EQ(sum_of_squared_differences<T>(Exec(), device(x), device(y)), differences) << n;
  }
}

TYPED_TEST(Norm, IsAccurate) {
  using T = TypeParam;
  for (const std::size_t n : lengths) {
    if (n == 0) continue;
    const auto x = random_values<T>(1, n), y = random_values<T>(2, n);
    long double exact = 0, differences = 0;
    for (std::size_t i = 0; i < n; ++i) {
      exact += static_cast<long double>(x[i]) * static_cast<long double>(x[i]);
      const long double d = static_cast<long double>(x[i]) - static_cast<long double>(y[i]);
      differences += d * d;
    }
    EXPECT_NEAR(static_cast<double>(squares(x) / exact), 1, 1e-14) << n;
    EXPECT_NEAR(static_cast<double>(sum_of_squared_differences<T>(Exec(), device(x), device(y)) / differences), 1,
                1e-14)
        << n;
  }
}

TEST(NormFp32, SquaresAreTakenInFp64) {
  EXPECT_DOUBLE_EQ(squares(std::vector<float>{1e30f, 1e30f}),
                   2 * static_cast<double>(1e30f) * static_cast<double>(1e30f));
  EXPECT_DOUBLE_EQ(squares(std::vector<float>{1e-30f}), static_cast<double>(1e-30f) * static_cast<double>(1e-30f));
  // Two floats that differ in the last place: their difference is not rounded either.
  const std::vector<float> x{1.0f}, y{std::nextafter(1.0f, 2.0f)};
  EXPECT_EQ(sum_of_squared_differences<float>(Exec(), device(x), device(y)), 0x1p-46);
}

TYPED_TEST(Norm, DoesNotDependOnWhereTheArrayLies) {
  using T = TypeParam;
  for (const std::size_t n : lengths) {
    const auto x = random_values<T>(1, n);
    const double expected = squares(x), expected_sum = sum<T>(Exec(), device(x));
    for (std::size_t offset = 1; offset < 9; ++offset) {
      const auto around = device(std::vector<T>(n + 20, nan<T>));
      const auto inside = part(around, offset, n);
      copy_to_device(x, inside);
      EXPECT_EQ(sum_of_squares<T>(Exec(), inside), expected) << n << " at " << offset;
      EXPECT_EQ(sum<T>(Exec(), inside), expected_sum) << n << " at " << offset;
    }
    EXPECT_EQ(squares(x), expected) << "again";
  }
}

TYPED_TEST(Norm, NanAndInfinityReachTheResult) {
  using T = TypeParam;
  for (const std::size_t at : {std::size_t(0), std::size_t(17), std::size_t(8192), std::size_t(8999)}) {
    std::vector<T> x(9000, T(1));
    const std::vector<T> y(9000, T(2));
    x[at] = nan<T>;
    EXPECT_TRUE(std::isnan(squares(x)));
    EXPECT_TRUE(std::isnan(sum<T>(Exec(), device(x))));
    EXPECT_TRUE(std::isnan(sum_of_squared_differences<T>(Exec(), device(x), device(y))));
    x[at] = -std::numeric_limits<T>::infinity();
    EXPECT_EQ(squares(x), INFINITY);
    EXPECT_EQ(sum<T>(Exec(), device(x)), -INFINITY);
    EXPECT_EQ(sum_of_squared_differences<T>(Exec(), device(x), device(y)), INFINITY);
  }
}

TEST(Norm, RefusesDifferentLengths) {
  EXPECT_THROW(
      sum_of_squared_differences<float>(Exec(), allocate<float>("atoll::test", 2), allocate<float>("atoll::test", 3)),
      Error);
}

}  // namespace
}  // namespace atl::test
