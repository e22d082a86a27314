/// Made-up models of groups, and their mean made on the host: for tests. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/model/tiny_run.hpp"

namespace atl {

/// Element i of unit u of a group's made-up model.
inline double model_of(int group, std::size_t u, std::size_t i) {
  return random_normal(random_key(static_cast<std::uint64_t>(group), "model") + u, i);
}
template <class T>
void set_models(TinyRun<T>& run) {
  run.set(&ShardedUnit<T>::master, [&](std::size_t u, std::size_t i) { return model_of(run.grid.group(), u, i); });
}
template <class T>
FullUnits<T> whole_model(int group, const LlamaConfig& config) {
  using R = Accumulator<T>;
  FullUnits<T> units;
  for (const UnitSpec& spec : llama_units(config)) {
    const std::size_t u = units.size();
    units.emplace_back(ShardLayout(spec, 1).size());
    for (std::size_t i = 0; i < units[u].size(); ++i) units[u][i] = static_cast<R>(model_of(group, u, i));
  }
  return units;
}

/// sum_g weights[g] model_g, added in group order.
template <class T>
FullUnits<T> weighted_mean(const LlamaConfig& config, const std::vector<double>& weights) {
  using R = Accumulator<T>;
  FullUnits<T> mean;
  for (std::size_t g = 0; g < weights.size(); ++g) {
    FullUnits<T> model = whole_model<T>(static_cast<int>(g), config);
    for (std::size_t u = 0; u < model.size(); ++u)
      for (std::size_t i = 0; i < model[u].size(); ++i) {
        const volatile R product = static_cast<R>(weights[g]) * model[u][i];  // never fused with the addition
        model[u][i] = g == 0 ? product : mean[u][i] + product;
      }
    mean = std::move(model);
  }
  return mean;
}

template <class R>
double distance(const std::vector<std::vector<R>>& a, const std::vector<std::vector<R>>& b) {
  double squares = 0;
  for (std::size_t u = 0; u < a.size(); ++u)
    for (std::size_t i = 0; i < a[u].size(); ++i)
      squares += std::pow(static_cast<double>(a[u][i]) - static_cast<double>(b[u][i]), 2);
  return std::sqrt(squares);
}

/// 300, 100, none, then 500, 600, ... target tokens: 3:1 between two groups, and a third one that counts for nothing.
inline std::vector<double> tokens_of(int groups) {
  std::vector<double> tokens;
  for (int g = 0; g < groups; ++g) tokens.push_back(g == 0 ? 300 : g == 1 ? 100 : g == 2 ? 0 : 200 + 100 * g);
  return tokens;
}
inline std::vector<double> shares(std::vector<double> tokens) {
  double total = 0;
  for (const double n : tokens) total += n;
  for (double& n : tokens) n /= total;
  return tokens;
}

}  // namespace atl
