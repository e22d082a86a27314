/// The step that all groups take together once their models are averaged. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"
#include "parallel/federation_options.hpp"

#include <string_view>

namespace atl {

std::string_view name_of(FederationOptions::Outer outer);  ///< as in the run configuration: "fedavg"

/// Values in force of an outer optimizer. With x_0 the model at the start of the round, xbar the weighted mean of the
/// groups' models and the pseudo-gradient d = x_0 - xbar, the groups go on from x_1 = x_0 - lr u, where
///   fedavg   x_1 = xbar; x_0 is not kept (arXiv:1602.05629)
///   sgd      m <- momentum m + d;  u = m, or with nesterov u = d + momentum m (DiLoCo, arXiv:2311.08105). No m is kept
///            where momentum is 0.
///   adam     m <- beta1 m + (1 - beta1) d;  v <- beta2 v + (1 - beta2) d^2;  u = m / (sqrt(v) + tau)
///   yogi     the same m and u;  v <- v - (1 - beta2) d^2 sign(v - d^2)
///   adagrad  v <- v + d^2;  u = d / (sqrt(v) + tau)
/// The last three are algorithm 2 of FedOpt (arXiv:2003.00295). As there, nothing is corrected for bias; v starts at
/// tau^2, the least that the algorithm allows; adagrad has no momentum, as in its experiments. Where they are not given
/// sgd has DiLoCo's values (lr 0.7, momentum 0.9, nesterov), adam and yogi FedOpt's betas (0.9, 0.99), and all three
/// its tau (0.001).
struct OuterOptions {
  FederationOptions::Outer kind = FederationOptions::Outer::fedavg;
  double lr = 1, momentum = 0;
  bool nesterov = false;
  double beta1 = 0, beta2 = 0, tau = 0;

  bool has_anchor() const { return kind != FederationOptions::Outer::fedavg; }  ///< needs x_0
  bool has_moment1() const;                                                     ///< m
  bool has_moment2() const;                                                     ///< v
};

/// ConfigError for a key of [federation] that is missing, or has no meaning with the outer optimizer chosen.
OuterOptions outer_options(const FederationOptions& options);

/// One outer step of a slice: `model` is xbar and becomes x_1, `anchor` is x_0 and becomes x_1 too. Empty views where
/// the kind has none. All arithmetic in R, x_1 as xbar - (lr u - d), so that sgd with lr 1 and momentum 0 gives xbar to
/// the bit.
template <class R>
void outer_step(const Exec& exec, const OuterOptions& options, View1<R> model, View1<R> anchor, View1<R> moment1,
                View1<R> moment2);

}  // namespace atl
