/// SPDX-License-Identifier: Apache-2.0
#include "core/cross_entropy.hpp"

#include "tests/core/finite_differences.hpp"

namespace atl::test {
namespace {

constexpr double scale = 0.125;

struct Size {
  std::size_t rows, vocabulary;
};
constexpr Size sizes[] = {{1, 1}, {3, 7}, {9, 16}, {5, 257}, {2, 4099}};

// fp32: a sum of V exponentials within 2 ulp in 16 lanes, and a logarithm. Relative to the largest loss or gradient.
template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-12 : 2e-6;

/// Random targets, every fourth ignored.
std::vector<std::int32_t> random_targets(Size n) {
  std::vector<std::int32_t> targets(n.rows);
  for (std::size_t i = 0; i < n.rows; ++i)
    targets[i] = i % 4 == 1 ? -100 : static_cast<std::int32_t>(random_bits(5, i) % n.vocabulary);
  targets[0] = static_cast<std::int32_t>(n.vocabulary - 1);
  return targets;
}

template <class T>
struct Result {
  std::vector<T> logits;  ///< or their gradient
  std::vector<T> losses;
};
template <class T>
Result<T> run(Size n, const std::vector<std::int32_t>& targets, const std::vector<T>& logits, LossGradient gradient) {
  const auto z = device(logits, n.rows, n.vocabulary);
  const auto losses = device(std::vector<T>(n.rows, nan<T>));
  cross_entropy<T>(Exec(), device(targets), scale, gradient, z, losses);
  return {host(z), host(losses)};
}

template <class T>
Result<double> naive(Size n, const std::vector<std::int32_t>& targets, const std::vector<T>& logits) {
  Result<double> result{std::vector<double>(logits.size(), 0), std::vector<double>(n.rows, 0)};
  for (std::size_t row = 0; row < n.rows; ++row) {
    if (targets[row] < 0) continue;
    const T* const z = logits.data() + row * n.vocabulary;
    const double largest = static_cast<double>(*std::max_element(z, z + n.vocabulary));
    double sum = 0;
    for (std::size_t v = 0; v < n.vocabulary; ++v) sum += std::exp(static_cast<double>(z[v]) - largest);
    const std::size_t target = static_cast<std::size_t>(targets[row]);
    result.losses[row] = largest + std::log(sum) - static_cast<double>(z[target]);
    for (std::size_t v = 0; v < n.vocabulary; ++v)
      result.logits[row * n.vocabulary + v] =
          scale * (std::exp(static_cast<double>(z[v]) - largest) / sum - (v == target ? 1.0 : 0.0));
  }
  return result;
}

template <class T>
std::vector<T> random_logits(Size n) {
  return random_values<T>(1, n.rows * n.vocabulary, 3);
}

template <class T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, Floats);

TYPED_TEST(CrossEntropy, MatchesNaive) {
  for (const Size n : sizes) {
    const auto targets = random_targets(n);
    const auto logits = random_logits<TypeParam>(n);
    const auto expected = naive(n, targets, logits);
    const auto with = run(n, targets, logits, LossGradient::in_place),
               without = run(n, targets, logits, LossGradient::none);
    const double unit = tolerance<TypeParam>;
    for (std::size_t row = 0; row < n.rows; ++row) {
      EXPECT_NEAR(static_cast<double>(with.losses[row]), expected.losses[row],
                  unit * std::max(1.0, expected.losses[row]));
      EXPECT_NEAR(static_cast<double>(without.losses[row]), expected.losses[row],
                  unit * std::max(1.0, expected.losses[row]));
    }
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(static_cast<double>(with.logits[i]), expected.logits[i], scale * unit) << n.vocabulary << " at " << i;
    EXPECT_EQ(without.logits, logits) << "untouched";
  }
}

TYPED_TEST(CrossEntropy, IgnoredRowsAreZero) {
  using T = TypeParam;
  const Size n{4, 7};
  auto logits = random_logits<T>(n);
  for (std::size_t v = 0; v < 7; ++v) logits[7 + v] = nan<T>;  // not even read
  for (const auto gradient : {LossGradient::none, LossGradient::in_place}) {
    const auto result = run<T>(n, {3, -100, -1, 6}, logits, gradient);
    EXPECT_EQ(result.losses[1], T(0));
    EXPECT_EQ(result.losses[2], T(0));
    EXPECT_GT(result.losses[0], T(0));
    EXPECT_GT(result.losses[3], T(0));
    if (gradient == LossGradient::in_place) {
      EXPECT_EQ(std::vector<T>(result.logits.begin() + 7, result.logits.begin() + 21), std::vector<T>(14, T(0)));
    }
  }
}

TYPED_TEST(CrossEntropy, HugeLogitsStayFinite) {
  using T = TypeParam;
  const Size n{4, 20};
  std::vector<T> logits(80, T(0));
  logits[3] = T(1e4);                                            // target 3: loss 0
  logits[20 + 3] = T(1e4);                                       // target 4: loss 1e4
  for (std::size_t v = 0; v < 20; ++v) logits[40 + v] = T(1e4);  // all equal: loss log 20
  for (std::size_t v = 0; v < 20; ++v) logits[60 + v] = T(-1e4);
  const auto result = run<T>(n, {3, 4, 5, 19}, logits, LossGradient::in_place);
  const double expected[] = {0, 1e4, std::log(20.0), std::log(20.0)};
  for (std::size_t row = 0; row < 4; ++row)
    EXPECT_NEAR(static_cast<double>(result.losses[row]), expected[row], tolerance<T> * std::max(1.0, expected[row]));
  std::vector<double> gradient(80, 0);
  gradient[20 + 3] = scale, gradient[20 + 4] = -scale;
  for (std::size_t v = 0; v < 40; ++v) gradient[40 + v] = scale * (0.05 - (v == 5 || v == 39 ? 1 : 0));
  EXPECT_LT(relative_error(result.logits, gradient), tolerance<T>);
}

TYPED_TEST(CrossEntropy, NanAndInfinityReachTheLoss) {
  using T = TypeParam;
  const Size n{1, 40};
  for (const T bad : {nan<T>, std::numeric_limits<T>::infinity()})
    for (const std::size_t at : {0u, 17u, 39u}) {
      auto logits = random_logits<T>(n);
      logits[at] = bad;
      EXPECT_FALSE(std::isfinite(run<T>(n, {5}, logits, LossGradient::none).losses[0])) << bad << " at " << at;
      EXPECT_FALSE(std::isfinite(run<T>(n, {5}, logits, LossGradient::in_place).losses[0])) << bad << " at " << at;
    }
}

TYPED_TEST(CrossEntropy, RowsOfTheGradientSumToZero) {
  using T = TypeParam;
  for (const Size n : sizes) {
    const auto result = run(n, random_targets(n), random_logits<T>(n), LossGradient::in_place);
    for (std::size_t row = 0; row < n.rows; ++row) {
      double sum = 0;
      for (std::size_t v = 0; v < n.vocabulary; ++v) sum += static_cast<double>(result.logits[row * n.vocabulary + v]);
      EXPECT_NEAR(sum, 0, scale * tolerance<T>);
    }
  }
}

TEST(CrossEntropyGradient, MatchesFiniteDifferences) {
  for (const Size n : sizes) {
    const auto targets = random_targets(n);
    const auto logits = random_logits<double>(n);
    const auto loss = [&](const std::vector<double>& moved) {
      const auto losses = run(n, targets, moved, LossGradient::none).losses;
      return scale * std::accumulate(losses.begin(), losses.end(), 0.0);
    };
    if (n.vocabulary > 1) expect_gradient(loss, logits, run(n, targets, logits, LossGradient::in_place).logits);
  }
}

TEST(CrossEntropyBf16, GradientIsThatOfFp32RoundedOnce) {
  for (const Size n : sizes) {
    const auto targets = random_targets(n);
    const auto logits = random_logits<float>(n);
    const auto exact = run(n, targets, logits, LossGradient::in_place);
    const auto gradient = device(std::vector<bf16>(logits.size(), bf16(nan<float>)), n.rows, n.vocabulary);
    const auto losses = device(std::vector<float>(n.rows, nan<float>));
    cross_entropy<bf16>(Exec(), device(targets), scale, device(logits, n.rows, n.vocabulary), gradient, losses);
    EXPECT_EQ(host(losses), exact.losses);
    EXPECT_EQ(converted<float>(host(gradient)), rounded_to_bf16(exact.logits));
  }
}

TEST(CrossEntropy, RefusesShapesThatDoNotFit) {
  const auto logits = allocate<float>("atoll::test", 3, 7);
  EXPECT_THROW(cross_entropy<float>(Exec(), allocate<std::int32_t>("atoll::test", 2), 1, LossGradient::none, logits,
                                    allocate<float>("atoll::test", 3)),
               Error);
  EXPECT_THROW(cross_entropy<float>(Exec(), allocate<std::int32_t>("atoll::test", 3), 1, LossGradient::none, logits,
                                    allocate<float>("atoll::test", 2)),
               Error);
  EXPECT_THROW(cross_entropy<bf16>(Exec(), allocate<std::int32_t>("atoll::test", 3), 1, logits,
                                   allocate<bf16>("atoll::test", 3, 6), allocate<float>("atoll::test", 3)),
               Error);
}

}  // namespace
}  // namespace atl::test
