/// Optimizer updates of one shard: a single pass over parameters, gradient and moments. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "core/array.hpp"

namespace atl {

struct AdamwStep {
  double lr, beta1, beta2, eps, weight_decay;
  double gradient_scale;  ///< clipping: multiplies the gradient
  std::int64_t step;      ///< 1 for the first update
};

/// AdamW with decoupled weight decay (arXiv:1711.05101), in the order PyTorch computes it:
///   p <- p (1 - lr weight_decay);  m <- m + (1 - beta1) (g - m);  v <- beta2 v + (1 - beta2) g^2;
///   p <- p - lr / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + eps).
/// All of one length; T: fp32 or fp64.
template <class T>
void adamw(const Exec& exec, const AdamwStep& step, View1<const T> gradient, View1<T> parameter, View1<T> m,
           View1<T> v);
/// The same, and in the same pass weight = p rounded to bf16: what the model computes with.
void adamw(const Exec& exec, const AdamwStep& step, View1<const float> gradient, View1<float> parameter, View1<float> m,
           View1<float> v, View1<bf16> weight);

/// p <- p (1 - lr weight_decay) - lr gradient_scale g.
template <class T>
void sgd(const Exec& exec, double lr, double weight_decay, double gradient_scale, View1<const T> gradient,
         View1<T> parameter);
void sgd(const Exec& exec, double lr, double weight_decay, double gradient_scale, View1<const float> gradient,
         View1<float> parameter, View1<bf16> weight);

}  // namespace atl
