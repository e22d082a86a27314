/// The federated algorithm, group after group on one rank, as its definition says: for tests. SPDX-License-Identifier:
/// Apache-2.0
///
/// Nothing of parallel/ but what a run on one rank needs to give a gradient. Updates, means and outer steps are loops
/// over plain vectors, in the order of the definition.
#pragma once

#include "tests/model/tiny_run.hpp"

namespace atl {

class FederatedReference {
 public:
  using Units = FullUnits<double>;

  FederatedReference(const LlamaConfig& config, const TinyOptions& options, int groups)
      : options_(options),
        layouts_(layouts(config)),
        one_(MPI_COMM_SELF, config, grid_of(Strategy::fsdp), gradient_only(options)),
        start_(one_.masters()) {
    for (int g = 0; g < groups; ++g) groups_.push_back({start_, zeros(), zeros(), 0, 0});
    outer_m_ = outer_v_ = zeros();
    const double tau = options.federation.tau.value_or(1e-3);
    for (auto& unit : outer_v_)
      for (double& v : unit) v = tau * tau;
  }

  /// One optimizer step of a group on these sequences, at once.
  void step(int group, Range which, double lr) {
    Group& g = groups_[static_cast<std::size_t>(group)];
    one_.set(&ShardedUnit<double>::master, [&](std::size_t u, std::size_t i) { return g.x[u][i]; });
    const StepResult result =
        training_step<double>(one_.exec, one_.model, one_.optimizer, one_.communicators.group, {one_.batch(which)}, 0);
    g.tokens += static_cast<double>(result.tokens);
    update(g, one_.gradients(), lr);
  }

  void aggregate() {
    const std::vector<double> w = weights();
    Units mean = mean_of(&Group::x, w);
    outer_step(mean);
    if (options_.federation.inner_state == FederationOptions::InnerState::average) {
      const Units m = mean_of(&Group::m, w), v = mean_of(&Group::v, w);
      for (Group& g : groups_) g.m = m, g.v = v;
    }
    for (Group& g : groups_) {
      g.x = mean;
      g.tokens = 0;
      if (options_.federation.inner_state == FederationOptions::InnerState::reset) g.m = g.v = zeros(), g.updates = 0;
    }
    start_ = mean;
  }

  const Units& model(int group) const { return groups_[static_cast<std::size_t>(group)].x; }

 private:
  struct Group {
    Units x, m, v;
    int updates;
    double tokens;
  };

  static std::vector<ShardLayout> layouts(const LlamaConfig& config) {
    std::vector<ShardLayout> all;
    for (const UnitSpec& unit : llama_units(config)) all.emplace_back(unit, 1);
    return all;
  }
  static TinyOptions gradient_only(TinyOptions options) {
    options.optimizer = with_sgd().optimizer;
    options.federation = {};
    return options;
  }
  Units zeros() const {
    Units units;
    for (const ShardLayout& layout : layouts_) units.emplace_back(layout.size(), 0.0);
    return units;
  }

  void update(Group& g, const Units& gradient, double lr) const {
    const OptimizerOptions& o = options_.optimizer;
    double squares = 0;
    for (const auto& unit : gradient)
      for (const double d : unit) squares += d * d;
    const double norm = std::sqrt(squares), scale = o.clip_norm > 0 && norm > o.clip_norm ? o.clip_norm / norm : 1;
    ++g.updates;
    for (std::size_t u = 0; u < layouts_.size(); ++u)
      for (std::size_t t = 0; t < layouts_[u].unit().tensors.size(); ++t) {
        const double decay = layouts_[u].unit().tensors[t].decay ? o.weight_decay : 0;
        for (std::size_t i = layouts_[u].tensor(t).begin; i < layouts_[u].tensor(t).end; ++i) {
          const double d = scale * gradient[u][i];
          double direction = d;
          if (o.kind == OptimizerOptions::Kind::adamw) {
            g.m[u][i] = o.beta1 * g.m[u][i] + (1 - o.beta1) * d;
            g.v[u][i] = o.beta2 * g.v[u][i] + (1 - o.beta2) * d * d;
            direction = g.m[u][i] / (1 - std::pow(o.beta1, g.updates)) /
                        (std::sqrt(g.v[u][i] / (1 - std::pow(o.beta2, g.updates))) + o.eps);
          }
          g.x[u][i] -= lr * decay * g.x[u][i] + lr * direction;
        }
      }
  }

  std::vector<double> weights() const {
    double total = 0;
    for (const Group& g : groups_) total += g.tokens;
    const bool uniform = options_.federation.weights == FederationOptions::Weights::uniform || total == 0;
    std::vector<double> w;
    for (const Group& g : groups_) w.push_back(uniform ? 1.0 / static_cast<double>(groups_.size()) : g.tokens / total);
    return w;
  }

  Units mean_of(Units Group::*values, const std::vector<double>& w) const {
    Units mean = zeros();
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t u = 0; u < mean.size(); ++u)
        for (std::size_t i = 0; i < mean[u].size(); ++i) mean[u][i] += w[g] * (groups_[g].*values)[u][i];
    return mean;
  }

  /// `x` is the mean, and becomes x_1.
  void outer_step(Units& x) {
    using Outer = FederationOptions::Outer;
    const FederationOptions& o = options_.federation;
    const double momentum = o.momentum.value_or(0.9), tau = o.tau.value_or(1e-3);
    const bool nesterov = o.nesterov.value_or(true);
    const auto betas = o.betas.value_or(std::array<double, 2>{0.9, 0.99});
    if (o.outer == Outer::fedavg) return;
    const double lr = o.lr.value_or(0.7);
    for (std::size_t u = 0; u < x.size(); ++u)
      for (std::size_t i = 0; i < x[u].size(); ++i) {
        const double d = start_[u][i] - x[u][i];
        double &m = outer_m_[u][i], &v = outer_v_[u][i], step = 0;
        if (o.outer == Outer::sgd) {
          m = momentum * m + d;
          step = nesterov ? d + momentum * m : m;
        } else if (o.outer == Outer::adagrad) {
          v += d * d;
          step = d / (std::sqrt(v) + tau);
        } else {
          m = betas[0] * m + (1 - betas[0]) * d;
          const double sign = v > d * d ? 1 : v < d * d ? -1 : 0;
          v = o.outer == Outer::adam ? betas[1] * v + (1 - betas[1]) * d * d : v - (1 - betas[1]) * d * d * sign;
          step = m / (std::sqrt(v) + tau);
        }
        x[u][i] = start_[u][i] - lr * step;
      }
  }

  TinyOptions options_;
  std::vector<ShardLayout> layouts_;
  TinyRun<double> one_;
  Units start_;  // x_0
  std::vector<Group> groups_;
  Units outer_m_, outer_v_;
};

}  // namespace atl
