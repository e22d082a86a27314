/// fast_exp and the reductions of a team, run in kernels. SPDX-License-Identifier: Apache-2.0
#include "core/launch.hpp"
#include "tests/core/host_values.hpp"

#include <bit>

namespace atl::test {
namespace {

std::vector<float> fast_exp_of(const std::vector<float>& x) {
  const auto in = device(x);
  const auto out = allocate<float>("atoll::test", x.size());
  for_each(
      "atoll::test_exp", Exec(), x.size(), KOKKOS_LAMBDA(const std::int64_t i) { out(i) = fast_exp(in(i)); });
  return host(out);
}

/// Sum and largest of x by one team.
template <class T>
std::pair<T, T> team_reductions(const std::vector<T>& x) {
  const auto in = device(x);
  const auto out = allocate<T>("atoll::test", 2);
  const int n = static_cast<int>(x.size());
  for_each_team(
      "atoll::test_team", Exec(), 1, KOKKOS_LAMBDA(const TeamMember& member) {
        const T sum = team_sum<T>(member, n, [&](const int i) { return in(i); });
        const T largest = team_max<T>(member, n, [&](const int i) { return in(i); });
        if (member.team_rank() == 0) {
          out(0) = sum;
          out(1) = largest;
        }
      });
  const auto result = host(out);
  return {result[0], result[1]};
}

/// How often team_for visits each of n indices.
std::vector<int> visits(int n) {
  const auto count = allocate<int>("atoll::test", static_cast<std::size_t>(n));
  for_each_team(
      "atoll::test_team_for", Exec(), 1,
      KOKKOS_LAMBDA(const TeamMember& member) { team_for(member, n, [&](const int i) { count(i) += 1; }); });
  return host(count);
}

TEST(FastExp, StaysWithinTwoUlpOfExp) {
  // Every 97th float of [-87, 88], of both signs, down to the smallest normal one.
  std::vector<float> x;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(0x1p-126f); bits <= std::bit_cast<std::uint32_t>(88.0f);
       bits += 97) {
    const float value = std::bit_cast<float>(bits);
    x.push_back(value);
    if (value <= 87.0f) x.push_back(-value);
  }
  x.insert(x.end(), {0.0f, -0.0f, 88.0f, -87.0f});
  const auto y = fast_exp_of(x);
  double worst = 0;
  float worst_at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const float nearest = static_cast<float>(exact);
    // The distance of two floats at this magnitude.
    const double ulp = static_cast<double>(nearest) - static_cast<double>(std::nextafter(nearest, 0.0f));
    const double error = std::fabs(static_cast<double>(y[i]) - exact) / ulp;
    if (!(error <= worst)) {
      worst = error;
      worst_at = x[i];
    }
  }
  RecordProperty("largest_error_in_ulp", std::to_string(worst));
  EXPECT_LE(worst, 2.0) << "at " << worst_at;
  EXPECT_EQ(fast_exp_of({0.0f}), std::vector<float>{1.0f});
}

TEST(FastExp, ExtremesAndNan) {
  const auto y =
      fast_exp_of({-87.5f, -1e4f, -std::numeric_limits<float>::max(), -INFINITY, nan<float>, 89.0f, INFINITY});
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_GE(y[5], 1.6e38f);
  EXPECT_GE(y[6], 1.6e38f);
  EXPECT_EQ(y[3], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_TRUE(std::isfinite(y[6])) << "clamped, so that 0 times it is 0";
}

template <class T>
class Team : public ::testing::Test {};
TYPED_TEST_SUITE(Team, Floats);

TYPED_TEST(Team, SumsAndMaximaOfAnyLength) {
  using T = TypeParam;
  for (const std::size_t n : {1u, 2u, 15u, 16u, 17u, 31u, 33u, 100u, 1000u}) {
    auto x = random_integers<T>(n, n);
    T sum = 0;
    for (const T value : x) sum += value;
    for (const std::size_t at : {std::size_t(0), n / 2, n - 1}) {
      auto peaked = x;
      peaked[at] += 100;  // so that the largest is at a known place
      const auto [total, largest] = team_reductions(peaked);
      EXPECT_EQ(total, sum + 100) << n;  // whole numbers: exact in any order
      EXPECT_EQ(largest, peaked[at]) << n;
    }
    for (T& value : x) value -= 1000;
    EXPECT_LT(team_reductions(x).second, T(-900)) << "all negative: no zero may slip in";
  }
}

TYPED_TEST(Team, SumsAreAccurateAndRepeat) {
  using T = TypeParam;
  const auto x = random_values<T>(5, 4099);
  long double exact = 0, magnitude = 0;
  for (const T value : x) exact += value, magnitude += std::fabs(value);
  const T sum = team_reductions(x).first;
  // 4099 / 16 additions a lane, each off by half an ulp at most: far less than this in practice.
  EXPECT_LT(std::fabs(static_cast<double>(sum - exact)),
            257 * std::numeric_limits<T>::epsilon() * static_cast<double>(magnitude) / 16);
  EXPECT_EQ(sum, team_reductions(x).first);
}

TEST(TeamFor, VisitsEveryIndexOnce) {
  for (const int n : {1, 7, 64, 129, 1000}) EXPECT_EQ(visits(n), std::vector<int>(static_cast<std::size_t>(n), 1));
}

}  // namespace
}  // namespace atl::test
