/// AdamW against PyTorch (tests/fixtures/make_adamw.py), SGD against its formula. SPDX-License-Identifier: Apache-2.0
#include "core/adamw.hpp"

#include "tests/core/host_values.hpp"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <string>

namespace atl::test {
namespace {

nlohmann::json fixture() {
  const char* const moved = std::getenv("ATOLL_SOURCE_DIR");  // by scripts/device-check
  std::ifstream file(std::string(moved != nullptr ? moved : ATOLL_SOURCE_DIR) + "/tests/fixtures/adamw.json");
  return nlohmann::json::parse(file);
}

/// One tensor under AdamW; its moments start at zero.
template <class T>
struct Optimized {
  View1<T> parameter, m, v;

  explicit Optimized(const std::vector<double>& start)
      : parameter(device(converted<T>(start))),
        m(allocate<T>("atoll::test", start.size())),
        v(allocate<T>("atoll::test", start.size())) {}
  void step(const AdamwStep& options, const std::vector<double>& gradient) {
    adamw<T>(Exec(), options, device(converted<T>(gradient)), parameter, m, v);
  }
};

template <class T>
class Adamw : public ::testing::Test {};
TYPED_TEST_SUITE(Adamw, Floats);

TYPED_TEST(Adamw, FollowsPyTorchForFiftySteps) {
  using T = TypeParam;
  // fp32: parameters of size 1 round by 6e-8 in each of 50 steps; rounded gradients add as much again.
  const double tolerance = std::is_same_v<T, double> ? 1e-12 : 2e-6;
  const nlohmann::json runs = fixture().at("runs");
  ASSERT_FALSE(runs.empty());
  for (const auto& run : runs)
    for (const std::string group : {"decay", "no_decay"}) {
      SCOPED_TRACE(run.at("name").get<std::string>() + ", group " + group);
      AdamwStep options{};
      options.beta1 = run.at("beta1"), options.beta2 = run.at("beta2"), options.eps = run.at("eps");
      options.weight_decay = group == "decay" ? run.at("weight_decay").get<double>() : 0.0;
      options.gradient_scale = 1;
      const auto& data = run.at(group);
      Optimized<T> tensor(data.at("start"));
      const auto& gradients = data.at("gradients");
      ASSERT_GE(gradients.size(), 50u);
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        options.lr = run.at("lr").at(i);
        options.step = static_cast<std::int64_t>(i) + 1;
        tensor.step(options, gradients[i]);
        ASSERT_LT(relative_error(host(tensor.parameter), data.at("values").at(i).get<std::vector<double>>()), tolerance)
            << "step " << options.step;
      }
    }
}

TYPED_TEST(Adamw, ScaleMultipliesTheGradient) {
  using T = TypeParam;
  const auto start = random_values<double>(1, 130), gradient = random_values<double>(2, 130);
  std::vector<double> half(gradient);
  for (double& g : half) g *= 0.5;
  AdamwStep options{1e-2, 0.9, 0.95, 1e-3, 0.1, 1.0, 1};
  Optimized<T> plain(start), scaled(start);
  for (options.step = 1; options.step < 4; ++options.step) {
    options.gradient_scale = 1;
    plain.step(options, half);
    options.gradient_scale = 0.5;  // exact, so the same bits
    scaled.step(options, gradient);
    EXPECT_EQ(host(plain.parameter), host(scaled.parameter));
    EXPECT_EQ(host(plain.v), host(scaled.v));
  }
}

TYPED_TEST(Adamw, FirstStepMovesByTheLearningRate) {
  // m / sqrt(v) is the gradient's sign after the first step, whatever its size: bias correction works.
  const std::vector<double> gradient{1e-3, -10, 1, -1e3};
  Optimized<TypeParam> tensor(std::vector<double>(4, 0.0));
  tensor.step({0.25, 0.9, 0.999, 0, 0.1, 1, 1}, gradient);
  EXPECT_LT(relative_error(host(tensor.parameter), std::vector<double>{-0.25, 0.25, -0.25, 0.25}),
            8 * static_cast<double>(std::numeric_limits<TypeParam>::epsilon()));
}

TYPED_TEST(Adamw, ZeroGradientOnlyDecays) {
  const auto start = random_values<double>(1, 17);
  Optimized<TypeParam> tensor(start);
  tensor.step({0.5, 0.9, 0.95, 1e-8, 0.25, 1, 1}, std::vector<double>(17, 0.0));
  auto expected = converted<TypeParam>(start);
  for (auto& p : expected) p *= TypeParam(0.875);
  EXPECT_EQ(host(tensor.parameter), expected);
}

TYPED_TEST(Adamw, EmptyShardsAreFine) {
  Optimized<TypeParam> tensor(std::vector<double>{});
  EXPECT_NO_THROW(tensor.step({1, 0.9, 0.95, 1e-8, 0.1, 1, 1}, {}));
}

// One pass: the master parameters as without it, and what they round to.
TEST(AdamwBf16, WritesRoundedWeightsBesideTheSameMasters) {
  const auto start = random_values<double>(1, 1003), gradient = random_values<double>(2, 1003);
  AdamwStep options{1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 1};
  Optimized<float> plain(start), with(start);
  const auto weight = device(std::vector<bf16>(start.size(), bf16(nan<float>)));
  for (; options.step < 4; ++options.step) {
    plain.step(options, gradient);
    adamw(Exec(), options, device(converted<float>(gradient)), with.parameter, with.m, with.v, weight);
    EXPECT_EQ(host(with.parameter), host(plain.parameter));
    EXPECT_EQ(host(with.m), host(plain.m));
    EXPECT_EQ(host(with.v), host(plain.v));
    EXPECT_EQ(converted<float>(host(weight)), rounded_to_bf16(host(plain.parameter)));
  }
  sgd<float>(Exec(), 0.1, 0.2, 0.5, device(converted<float>(gradient)), plain.parameter);
  sgd(Exec(), 0.1, 0.2, 0.5, device(converted<float>(gradient)), with.parameter, weight);
  EXPECT_EQ(host(with.parameter), host(plain.parameter));
  EXPECT_EQ(converted<float>(host(weight)), rounded_to_bf16(host(plain.parameter)));
}

TYPED_TEST(Adamw, SgdIsItsFormula) {
  using T = TypeParam;
  const auto start = random_values<T>(1, 130), gradient = random_values<T>(2, 130);
  const auto p = device(start);
  sgd<T>(Exec(), 0.1, 0.2, 0.5, device(gradient), p);
  std::vector<double> expected;
  for (std::size_t i = 0; i < 130; ++i)
    expected.push_back(static_cast<double>(start[i]) * (1 - 0.1 * 0.2) - 0.1 * 0.5 * static_cast<double>(gradient[i]));
  EXPECT_LT(relative_error(host(p), expected), 2 * static_cast<double>(std::numeric_limits<T>::epsilon()));
}

}  // namespace
}  // namespace atl::test
