/// SPDX-License-Identifier: Apache-2.0
#include "model/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace atl {
namespace {

const std::vector<double> logits{0.5, 2.0, -1.0, 2.0, 1.0, 0.0};

/// Shares of the tokens among many draws.
std::map<std::int32_t, double> shares(const SamplingOptions& options, std::int64_t draws = 200000) {
  std::map<std::int32_t, double> counts;
  for (std::int64_t i = 0; i < draws; ++i) counts[sample_token<double>(logits, options, 0, i)] += 1.0;
  for (auto& [token, count] : counts) count /= static_cast<double>(draws);
  return counts;
}

void expect_softmax(const SamplingOptions& options, const std::vector<std::int32_t>& tokens) {
  double sum = 0;
  for (const auto t : tokens) sum += std::exp(logits[static_cast<std::size_t>(t)] / options.temperature);
  const auto found = shares(options);
  EXPECT_EQ(found.size(), tokens.size());
  for (const auto t : tokens) {
    const double p = std::exp(logits[static_cast<std::size_t>(t)] / options.temperature) / sum;
    // Five standard deviations of 200 000 draws.
    EXPECT_NEAR(found.count(t) ? found.at(t) : 0.0, p, 5 * std::sqrt(p * (1 - p) / 200000)) << t;
  }
}

TEST(Sampling, DrawsFromTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 2.0}) expect_softmax({.temperature = temperature}, {0, 1, 2, 3, 4, 5});
}

TEST(Sampling, TopKKeepsTheMostProbable) {
  expect_softmax({.top_k = 1}, {1});  // of equal ones the lowest
  expect_softmax({.top_k = 2}, {1, 3});
  expect_softmax({.top_k = 4}, {0, 1, 3, 4});
  expect_softmax({.top_k = 100}, {0, 1, 2, 3, 4, 5});
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  // Probabilities: 1 and 3 have 0.354 each, 4 has 0.130, 0 has 0.079, 5 has 0.048, 2 has 0.018.
  expect_softmax({.top_p = 0.3}, {1});
  expect_softmax({.top_p = 0.5}, {1, 3});
  expect_softmax({.top_p = 0.8}, {1, 3, 4});
  expect_softmax({.top_p = 0.999}, {0, 1, 2, 3, 4, 5});
  expect_softmax({.top_k = 3, .top_p = 0.9}, {1, 3, 4});  // p is of what top_k left: 0.422, 0.422, 0.155
  expect_softmax({.top_k = 3, .top_p = 0.8}, {1, 3});
  expect_softmax({.temperature = 0.1, .top_p = 0.9}, {1, 3});  // after the temperature
}

TEST(Sampling, IsAPureFunctionOfSeedSampleAndPosition) {
  const auto text = [](std::uint64_t seed, std::int64_t sample) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < 50; ++i) tokens.push_back(sample_token<double>(logits, {.seed = seed}, sample, i));
    return tokens;
  };
  EXPECT_EQ(text(1, 0), text(1, 0));
  EXPECT_NE(text(1, 0), text(1, 1));
  EXPECT_NE(text(1, 0), text(2, 0));
}

TEST(Sampling, TemperatureZeroIsGreedy) {
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(sample_token<double>(logits, {.temperature = 0}, 0, i), 1);
}

TEST(Sampling, RefusesWhatCannotBe) {
  EXPECT_THROW(check(SamplingOptions{.temperature = -1}), ConfigError);
  EXPECT_THROW(check(SamplingOptions{.temperature = NAN}), ConfigError);
  EXPECT_THROW(check(SamplingOptions{.top_k = -1}), ConfigError);
  EXPECT_THROW(check(SamplingOptions{.top_p = 0}), ConfigError);
  EXPECT_THROW(check(SamplingOptions{.top_p = 1.5}), ConfigError);
  EXPECT_NO_THROW(check(SamplingOptions{}));
  EXPECT_THROW(greedy_token<double>(std::vector<double>{1.0, NAN}), Error);
}

}  // namespace
}  // namespace atl
