/// SPDX-License-Identifier: Apache-2.0
#include "model/optimizer.hpp"

#include "core/adamw.hpp"
#include "core/norm.hpp"

#include <fmt/format.h>

#include <cmath>

namespace atl {

template <class T>
Optimizer<T>::Optimizer(const OptimizerOptions& options, ShardedParameters<T>& parameters, const Communicator& shard)
    : options_(options),
      parameters_(parameters),
      shard_(shard),
      partial_sums_(allocate<double>("atoll::partial_sums", sum_workspace)) {
  parameters.allocate_moments(options.kind == OptimizerOptions::Kind::adamw ? 2 : 0);
}

template <class T>
double Optimizer<T>::step(const Exec& exec, double lr) {
  using R = Accumulator<T>;
  double squares = 0;
  for (std::size_t u = 0; u < parameters_.number_of_units(); ++u)
    squares += sum_of_squares(exec, as_const(parameters_.unit(u).gradient), partial_sums_);
  const double norm = std::sqrt(shard_.sum(squares));
  if (!std::isfinite(norm))
    throw GradientError(
        fmt::format("the gradient of optimizer step {}{} is not finite (norm {}): lower optimizer.lr, or set "
                    "optimizer.clip_norm",
                    steps_ + 1, reset_ ? " after the last reset" : "", norm));
  const double scale = options_.clip_norm > 0 && norm > options_.clip_norm ? options_.clip_norm / norm : 1.0;

  ++steps_;
  for (std::size_t u = 0; u < parameters_.number_of_units(); ++u) {
    auto& unit = parameters_.unit(u);
    const auto& tensors = unit.layout.unit().tensors;
    // Tensor by tensor, as weight decay differs; the padding is never touched.
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Range mine = unit.owned_of(i);
      if (mine.empty()) continue;
      const double decay = tensors[i].decay ? options_.weight_decay : 0.0;
      const View1<const R> gradient = unit.local(unit.gradient, mine);
      const View1<R> values = unit.local(unit.master, mine);
      [[maybe_unused]] const View1<T> weights = part(unit.weights, mine.begin - unit.owned.begin, mine.size());
      if (options_.kind == OptimizerOptions::Kind::adamw) {
        const AdamwStep update{lr, options_.beta1, options_.beta2, options_.eps, decay, scale, steps_};
        const View1<R> first = unit.local(unit.moment1, mine), second = unit.local(unit.moment2, mine);
        if constexpr (std::is_same_v<T, R>)
          adamw<R>(exec, update, gradient, values, first, second);
        else
          adamw(exec, update, gradient, values, first, second, weights);
      } else {
        if constexpr (std::is_same_v<T, R>)
          sgd<R>(exec, lr, decay, scale, gradient, values);
        else
          sgd(exec, lr, decay, scale, gradient, values, weights);
      }
    }
    unit.weights_current = true;
  }
  return norm;
}

template <class T>
void Optimizer<T>::reset(const Exec& exec) {
  steps_ = 0;
  reset_ = true;
  for (std::size_t u = 0; u < parameters_.number_of_units(); ++u) {
    const auto& unit = parameters_.unit(u);
    fill(exec, unit.moment1, Accumulator<T>(0));
    fill(exec, unit.moment2, Accumulator<T>(0));
  }
}

template class Optimizer<float>;
template class Optimizer<double>;
template class Optimizer<bf16>;

}  // namespace atl
