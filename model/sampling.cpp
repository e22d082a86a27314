/// SPDX-License-Identifier: Apache-2.0
#include "model/sampling.hpp"

#include "core/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace atl {

void check(const SamplingOptions& options) {
  if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
    throw ConfigError(fmt::format("--temperature {}: must be 0 (greedy) or positive", options.temperature));
  if (options.top_k < 0) throw ConfigError(fmt::format("--top-k {}: must be positive, or 0 for all", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw ConfigError(fmt::format("--top-p {}: must be above 0 and at most 1 (all tokens)", options.top_p));
}

template <class R>
std::int32_t greedy_token(std::span<const R> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i]))
      throw Error(fmt::format("the logit of token {} is not finite: are the model's weights?", i));
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

template <class R>
std::int32_t sample_token(std::span<const R> logits, const SamplingOptions& options, std::int64_t sample,
                          std::int64_t position) {
  const std::int32_t best = greedy_token(logits);
  if (options.temperature == 0) return best;
  const double largest = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  struct Candidate {
    double weight;  // e^((logit - largest) / temperature)
    std::int32_t token;
  };
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates[i] = {std::exp((static_cast<double>(logits[i]) - largest) / options.temperature),
                     static_cast<std::int32_t>(i)};
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  const auto sum = [&] {
    double total = 0;
    for (const Candidate& candidate : candidates) total += candidate.weight;
    return total;
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + (options.top_k - 1), candidates.end(), before);
    candidates.resize(static_cast<std::size_t>(options.top_k));
    // Whatever order nth_element left: sums, and so draws, are those of ascending tokens.
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
  if (options.top_p < 1) {
    const double wanted = options.top_p * sum();
    // A heap gives the most probable ones in order without sorting all.
    const auto after = [&](const Candidate& a, const Candidate& b) { return before(b, a); };
    std::make_heap(candidates.begin(), candidates.end(), after);
    auto end = candidates.end();
    for (double reached = 0; reached < wanted && end != candidates.begin();) {
      std::pop_heap(candidates.begin(), end, after);
      reached += (--end)->weight;
    }
    candidates.erase(candidates.begin(), end);
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
  const std::uint64_t key = random_key(options.seed, "sample " + std::to_string(sample));
  const double drawn = random_uniform(key, static_cast<std::uint64_t>(position)) * sum();
  double reached = 0;
  for (const Candidate& candidate : candidates)
    if ((reached += candidate.weight) > drawn) return candidate.token;
  return best;  // rounding of the last sum
}

template std::int32_t greedy_token<float>(std::span<const float>);
template std::int32_t greedy_token<double>(std::span<const double>);
template std::int32_t sample_token<float>(std::span<const float>, const SamplingOptions&, std::int64_t, std::int64_t);
template std::int32_t sample_token<double>(std::span<const double>, const SamplingOptions&, std::int64_t, std::int64_t);

}  // namespace atl
