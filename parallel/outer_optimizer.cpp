/// SPDX-License-Identifier: Apache-2.0
#include "parallel/outer_optimizer.hpp"

#include "core/launch.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace atl {

namespace {

using Outer = FederationOptions::Outer;

constexpr std::array<std::pair<Outer, std::string_view>, 5> outer_names{{{Outer::fedavg, "fedavg"},
                                                                         {Outer::sgd, "sgd"},
                                                                         {Outer::adam, "adam"},
                                                                         {Outer::yogi, "yogi"},
                                                                         {Outer::adagrad, "adagrad"}}};

}  // namespace

std::string_view name_of(Outer outer) {
  for (const auto& [value, name] : outer_names) {
    if (value == outer) return name;
  }
  return "?";
}

bool OuterOptions::has_moment1() const {
  return kind == Outer::adam || kind == Outer::yogi || (kind == Outer::sgd && momentum != 0);
}
bool OuterOptions::has_moment2() const { return kind == Outer::adam || kind == Outer::yogi || kind == Outer::adagrad; }

OuterOptions outer_options(const FederationOptions& options) {
  const Outer kind = options.outer;
  const bool sgd = kind == Outer::sgd, moments = kind == Outer::adam || kind == Outer::yogi;
  const bool adaptive = moments || kind == Outer::adagrad;
  const auto only_with = [&](bool given, bool has_meaning, std::string_view key, std::string_view kinds) {
    if (!given || has_meaning) return;
    throw ConfigError(fmt::format("federation.{} has no meaning with federation.outer = \"{}\"; remove it, or use {}",
                                  key, name_of(kind), kinds));
  };
  only_with(options.lr.has_value(), kind != Outer::fedavg, "lr", R"("sgd", "adam", "yogi" or "adagrad")");
  only_with(options.momentum.has_value(), sgd, "momentum", R"("sgd")");
  only_with(options.nesterov.has_value(), sgd, "nesterov", R"("sgd")");
  only_with(options.betas.has_value(), moments, "betas", R"("adam" or "yogi")");
  only_with(options.tau.has_value(), adaptive, "tau", R"("adam", "yogi" or "adagrad")");
  if (adaptive && !options.lr)
    throw ConfigError(
        fmt::format("federation.lr is missing: federation.outer = \"{}\" moves each element by up to about lr a round, "
                    "and no value "
                    "suits all models; search from 0.001 upwards, as arXiv:2003.00295 does",
                    name_of(kind)));

  OuterOptions in_force;
  in_force.kind = kind;
  if (sgd) {
    in_force.lr = options.lr.value_or(0.7);
    in_force.momentum = options.momentum.value_or(0.9);
    in_force.nesterov = options.nesterov.value_or(in_force.momentum != 0);
    if (in_force.nesterov && in_force.momentum == 0)
      throw ConfigError("federation.nesterov = true has no meaning with federation.momentum = 0; remove it");
  } else if (adaptive) {
    in_force.lr = *options.lr;
    in_force.tau = options.tau.value_or(1e-3);
    if (moments) {
      const std::array<double, 2> betas = options.betas.value_or(std::array<double, 2>{0.9, 0.99});
      in_force.beta1 = betas[0], in_force.beta2 = betas[1];
    }
  }
  return in_force;
}

namespace {

/// The frame of every kind: update(i, d) moves the moments and returns u.
template <class R, class Update>
void step_with(const std::string& label, const Exec& exec, double lr, const View1<R>& model, const View1<R>& anchor,
               const Update& update) {
  const R rate = static_cast<R>(lr);
  R* const x = model.data();
  R* const start = anchor.data();
  for_each(
      label, exec, model.extent(0), KOKKOS_LAMBDA(const std::int64_t i) {
        const R mean = x[i], d = start[i] - mean;
        const R next = mean - (rate * update(i, d) - d);
        x[i] = next;
        start[i] = next;
      });
}

template <class R>
struct Sgd {
  R* m;  // null without momentum
  R momentum;
  bool nesterov;
  KOKKOS_INLINE_FUNCTION R operator()(std::int64_t i, R d) const {
    if (m == nullptr) return d;
    m[i] = momentum * m[i] + d;
    return nesterov ? d + momentum * m[i] : m[i];
  }
};

template <class R>
struct Adam {
  R *m, *v;
  R beta1, rest1, beta2, rest2, tau;
  KOKKOS_INLINE_FUNCTION R operator()(std::int64_t i, R d) const {
    m[i] = beta1 * m[i] + rest1 * d;
    v[i] = beta2 * v[i] + rest2 * d * d;
    return m[i] / (math::sqrt(v[i]) + tau);
  }
};

template <class R>
struct Yogi {
  R *m, *v;
  R beta1, rest1, rest2, tau;
  KOKKOS_INLINE_FUNCTION R operator()(std::int64_t i, R d) const {
    const R square = d * d;
    const R sign = static_cast<R>(v[i] > square ? 1 : v[i] < square ? -1 : 0);
    m[i] = beta1 * m[i] + rest1 * d;
    v[i] -= rest2 * square * sign;
    return m[i] / (math::sqrt(v[i]) + tau);
  }
};

template <class R>
struct Adagrad {
  R* v;
  R tau;
  KOKKOS_INLINE_FUNCTION R operator()(std::int64_t i, R d) const {
    v[i] += d * d;
    return d / (math::sqrt(v[i]) + tau);
  }
};

}  // namespace

template <class R>
void outer_step(const Exec& exec, const OuterOptions& options, View1<R> model, View1<R> anchor, View1<R> moment1,
                View1<R> moment2) {
  const std::size_t n = model.extent(0);
  ATOLL_REQUIRE(!options.has_anchor() || anchor.extent(0) == n);
  ATOLL_REQUIRE(!options.has_moment1() || moment1.extent(0) == n);
  ATOLL_REQUIRE(!options.has_moment2() || moment2.extent(0) == n);
  const R beta1 = static_cast<R>(options.beta1), rest1 = static_cast<R>(1 - options.beta1);
  const R beta2 = static_cast<R>(options.beta2), rest2 = static_cast<R>(1 - options.beta2);
  const R tau = static_cast<R>(options.tau), momentum = static_cast<R>(options.momentum);
  R* const m = options.has_moment1() ? moment1.data() : nullptr;
  R* const v = moment2.data();
  switch (options.kind) {
    case Outer::fedavg:
      return;
    case Outer::sgd:
      return step_with("atoll::outer_sgd", exec, options.lr, model, anchor, Sgd<R>{m, momentum, options.nesterov});
    case Outer::adam:
      return step_with("atoll::outer_adam", exec, options.lr, model, anchor,
                       Adam<R>{m, v, beta1, rest1, beta2, rest2, tau});
    case Outer::yogi:
      return step_with("atoll::outer_yogi", exec, options.lr, model, anchor, Yogi<R>{m, v, beta1, rest1, rest2, tau});
    case Outer::adagrad:
      return step_with("atoll::outer_adagrad", exec, options.lr, model, anchor, Adagrad<R>{v, tau});
  }
}

template void outer_step<float>(const Exec&, const OuterOptions&, View1<float>, View1<float>, View1<float>,
                                View1<float>);
template void outer_step<double>(const Exec&, const OuterOptions&, View1<double>, View1<double>, View1<double>,
                                 View1<double>);

}  // namespace atl
