/// Final norm, head and cross-entropy in chunks of tokens: all logits never exist at once. SPDX-License-Identifier:
/// Apache-2.0
///
/// In bf16 the logits are fp32, and so is all that is computed from them; their gradient is rounded once, for the
/// products with it. So fewer rows of logits exist at once than of their gradient, which is added up over a whole
/// chunk.
#pragma once

#include "core/array.hpp"
#include "model/parameters.hpp"

#include <cstdint>

namespace atl {

template <class T>
class Loss {
 public:
  using R = Accumulator<T>;
  /// `rows`: the most tokens of a micro-batch (N); `chunk`: tokens whose logits, or in bf16 gradients of logits,
  /// (chunk, V) exist at once.
  Loss(const LlamaConfig& config, std::size_t rows, std::size_t chunk);

  /// Rows of the logits of a chunk that exist at once: all where their gradient takes their place, else a quarter.
  static std::size_t logit_rows(std::size_t chunk);

  /// Sum over counted targets of -log p(target); x: (N, C) residual stream after the last block.
  double forward(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x,
                 View1<const std::int32_t> targets);

  /// The same, and the gradient of scale times that sum: overwrites dx (N, C) and `gradients`.
  double forward_backward(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x,
                          View1<const std::int32_t> targets, double scale, View2<T> dx,
                          const HeadTensors<R>& gradients);

  /// Logits (N, V) of every position, for tests and generation.
  View2<R> logits(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x);

 private:
  /// Losses of the rows `normed` of a chunk, and the gradient of their logits: in their place where T holds them.
  View2<const T> logit_gradients(const Exec& exec, const HeadTensors<const T>& head, View2<const T> normed,
                                 View1<const std::int32_t> targets, double scale, View1<R> losses);
  View2<T> normalised(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x);

  double eps_;
  std::size_t chunk_;
  View2<T> normed_, dnormed_;  // (N, C)
  View2<R> logits_;            // (logit_rows, V)
  View2<T> dlogits_;           // (chunk, V); in bf16 an array of its own, else the logits
  View1<R> reciprocal_, losses_, norm_partial_;
  View1<double> partial_sums_;
};

}  // namespace atl
