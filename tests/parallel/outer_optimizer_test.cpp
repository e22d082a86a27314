/// Outer steps against an independent reference (tests/fixtures/make_outer_optimizers.py). SPDX-License-Identifier:
/// Apache-2.0
#include "parallel/outer_optimizer.hpp"

#include "tests/core/host_values.hpp"

#include <nlohmann/json.hpp>

#include <cstring>
#include <fstream>
#include <set>

namespace atl::test {
namespace {

using Outer = FederationOptions::Outer;
constexpr Outer kinds[] = {Outer::fedavg, Outer::sgd, Outer::adam, Outer::yogi, Outer::adagrad};

/// A slice under an outer optimizer, as the federation holds it.
template <class T>
struct Slice {
  OuterOptions options;
  View1<T> anchor, m, v;

  Slice(const OuterOptions& outer, const std::vector<T>& start) : options(outer) {
    const std::size_t n = start.size();
    if (options.has_anchor()) anchor = device(start);
    if (options.has_moment1()) m = allocate<T>("atoll::test", n);
    if (options.has_moment2()) v = device(std::vector<T>(n, static_cast<T>(options.tau * options.tau)));
  }
  std::vector<T> step(const std::vector<T>& mean) {
    const View1<T> model = device(mean);
    outer_step<T>(Exec(), options, model, anchor, m, v);
    return host(model);
  }
};

template <class T>
class OuterOptimizer : public ::testing::Test {};
TYPED_TEST_SUITE(OuterOptimizer, Floats);

TYPED_TEST(OuterOptimizer, FollowsTheReferenceForTwelveRounds) {
  using T = TypeParam;
  // fp32: a model of size 3 rounds by 2e-7, which the adaptive kinds multiply by lr / (sqrt(v) + tau) <= 50 a round.
  const double tolerance = std::is_same_v<T, double> ? 1e-12 : 2e-4;
  std::ifstream file(ATOLL_SOURCE_DIR "/tests/fixtures/outer_optimizers.json");
  const auto runs = nlohmann::json::parse(file).at("runs");
  std::set<std::string> seen;
  for (const auto& run : runs) {
    OuterOptions options;
    for (const Outer kind : kinds)
      if (name_of(kind) == run.at("outer").get<std::string>()) options.kind = kind;
    EXPECT_EQ(name_of(options.kind), run.at("outer").get<std::string>());
    seen.insert(run.at("outer").get<std::string>());
    options.lr = run.at("lr"), options.momentum = run.at("momentum"), options.nesterov = run.at("nesterov");
    options.beta1 = run.at("beta1"), options.beta2 = run.at("beta2"), options.tau = run.at("tau");
    std::vector<T> model = converted<T>(run.at("start").get<std::vector<double>>());
    Slice<T> slice(options, model);
    const auto& differences = run.at("differences");
    ASSERT_EQ(differences.size(), 12u);
    for (std::size_t t = 0; t < differences.size(); ++t) {
      std::vector<T> mean = model;
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<T>(differences[t][i].get<double>());
      model = slice.step(mean);
      ASSERT_LT(relative_error(model, run.at("values").at(t).get<std::vector<double>>()), tolerance)
          << run.at("outer") << " lr " << options.lr << ", round " << t;
      if (options.has_anchor()) {
        EXPECT_EQ(host(slice.anchor), model);
      }
    }
  }
  EXPECT_EQ(seen.size(), std::size(kinds));
}

// To the bit, also where the mean is -0, and where d is far larger than the mean.
TYPED_TEST(OuterOptimizer, SgdOfRateOneIsFedavg) {
  using T = TypeParam;
  FederationOptions options;
  options.outer = Outer::sgd;
  options.lr = 1;
  options.momentum = 0;
  const auto start = random_values<T>(1, 1000, 1e3);
  auto mean = random_values<T>(2, 1000);
  mean[3] = -T(0), mean[4] = T(0), mean[5] = start[5];
  Slice<T> slice(outer_options(options), start);
  EXPECT_EQ(slice.m.extent(0), 0u);
  const std::vector<T> next = slice.step(mean);
  EXPECT_EQ(std::memcmp(next.data(), mean.data(), mean.size() * sizeof(T)), 0);
}

// The padding of a shard: zero in all groups, so it must stay zero.
TYPED_TEST(OuterOptimizer, ZeroStaysZero) {
  for (const Outer kind : kinds) {
    FederationOptions options;
    options.outer = kind;
    if (kind != Outer::fedavg) options.lr = 0.3;
    Slice<TypeParam> slice(outer_options(options), std::vector<TypeParam>(5, 0));
    for (int round = 0; round < 3; ++round)
      EXPECT_EQ(slice.step(std::vector<TypeParam>(5, 0)), std::vector<TypeParam>(5, 0)) << name_of(kind);
    EXPECT_EQ(Slice<TypeParam>(outer_options(options), {}).step({}).size(), 0u);
  }
}

TEST(OuterOptions, WhatIsNotGivenHasItsPublishedValue) {
  FederationOptions options;
  EXPECT_FALSE(outer_options(options).has_anchor());
  options.outer = Outer::sgd;
  const OuterOptions sgd = outer_options(options);
  EXPECT_EQ(sgd.lr, 0.7);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_TRUE(sgd.has_anchor() && sgd.has_moment1() && !sgd.has_moment2());
  options.outer = Outer::yogi;
  EXPECT_THROW(outer_options(options), ConfigError);
  options.lr = 0.01;
  const OuterOptions yogi = outer_options(options);
  EXPECT_EQ(yogi.beta1, 0.9);
  EXPECT_EQ(yogi.beta2, 0.99);
  EXPECT_EQ(yogi.tau, 1e-3);
  EXPECT_TRUE(yogi.has_anchor() && yogi.has_moment1() && yogi.has_moment2());
  options.outer = Outer::adagrad;
  EXPECT_TRUE(outer_options(options).has_anchor() && !outer_options(options).has_moment1());
}

}  // namespace
}  // namespace atl::test
