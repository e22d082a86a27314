/// The table [federation] of a run configuration. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace atl {

struct FederationOptions {
  /// Outer optimizer: what an aggregation does with the mean of the groups' models (parallel/outer_optimizer.hpp).
  enum class Outer { fedavg, sgd, adam, yogi, adagrad };
  /// What a group's model counts for in the mean: its target tokens of the round, or one.
  enum class Weights { tokens, uniform };
  /// What becomes of the moments of the groups' own optimizers at an aggregation: each group keeps its own, all get
  /// their mean (weighted as the models), or they start anew.
  enum class InnerState { keep, average, reset };

  std::int64_t every = 8;  ///< H: optimizer steps of a group between two aggregations
  Outer outer = Outer::fedavg;
  // Of the outer optimizer where given; outer_options() has the values in force.
  std::optional<double> lr, momentum;
  std::optional<bool> nesterov;
  std::optional<std::array<double, 2>> betas;
  std::optional<double> tau;
  Weights weights = Weights::tokens;
  InnerState inner_state = InnerState::keep;
};

}  // namespace atl
