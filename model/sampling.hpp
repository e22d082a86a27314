/// Choosing the next token from logits, on the host. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/errors.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace atl {

struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: greedy
  std::int64_t top_k = 0;  ///< only the k most probable tokens; 0: all
  double top_p = 1;        ///< only the fewest most probable tokens whose probabilities sum to at least p, in (0, 1]
  std::uint64_t seed = 1;
  bool operator==(const SamplingOptions&) const = default;
};

/// ConfigError for a value that cannot be, named as the option of `atoll generate`.
void check(const SamplingOptions& options);

/// The token of the largest logit; of equal ones the lowest. Error where a logit is not finite.
template <class R>
std::int32_t greedy_token(std::span<const R> logits);

/// A token drawn from softmax(logits / temperature) of those that top_k, then top_p, leave (arXiv:1904.09751). Of
/// equally probable tokens the lowest come first. The random number is a pure function of (seed, sample, position): so
/// is the text of a sample, whatever is generated beside it.
template <class R>
std::int32_t sample_token(std::span<const R> logits, const SamplingOptions& options, std::int64_t sample,
                          std::int64_t position);

}  // namespace atl
