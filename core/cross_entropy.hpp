/// Softmax cross-entropy over a chunk of logits, gradient in place. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"

#include <cstdint>

namespace atl {

enum class LossGradient { none, in_place };

/// losses(n) = logsumexp(logits(n,:)) - logits(n, target), in fp32 or better; 0 where targets(n) is negative (ignored).
/// With in_place, logits (n, V) become scale (softmax(logits) - onehot(target)), zero rows where ignored.
template <class T>
void cross_entropy(const Exec& exec, View1<const std::int32_t> targets, double scale, LossGradient gradient,
                   View2<T> logits, View1<T> losses);

/// The same with the gradient, rounded once, in an array of its own (n, V); the logits are workspace afterwards. For
/// bf16: its logits are fp32.
template <class T>
void cross_entropy(const Exec& exec, View1<const std::int32_t> targets, double scale, View2<Accumulator<T>> logits,
                   View2<T> gradient, View1<Accumulator<T>> losses);

}  // namespace atl
