/// The table [federation] of a run configuration. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace atl {

struct FederationOptions {
  /// Outer optimizer: what an aggregation does with the mean of the groups' models. fedavg takes it as it is.
  enum class Outer { fedavg };
  /// What a group's model counts for in the mean: its target tokens of the round, or one.
  enum class Weights { tokens, uniform };

  std::int64_t every = 8;  ///< H: optimizer steps of a group between two aggregations
  Outer outer = Outer::fedavg;
  Weights weights = Weights::tokens;
};

}  // namespace atl
