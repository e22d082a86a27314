/// SPDX-License-Identifier: Apache-2.0
#include "model/loss.hpp"

#include "core/cross_entropy.hpp"
#include "core/gemm.hpp"
#include "core/norm.hpp"
#include "core/rms_norm.hpp"

#include <algorithm>

namespace atl {

template <class T>
Loss<T>::Loss(const LlamaConfig& config, std::size_t rows, std::size_t chunk)
    : eps_(config.rms_norm_eps), chunk_(std::min(chunk, rows)) {
  const auto c = static_cast<std::size_t>(config.hidden_size), v = static_cast<std::size_t>(config.vocab_size);
  normed_ = allocate<T>("atoll::final_normed", rows, c);
  dnormed_ = allocate<T>("atoll::final_dnormed", rows, c);
  logits_ = allocate<R>("atoll::logits", logit_rows(chunk_), v);
  if constexpr (std::is_same_v<T, R>)
    dlogits_ = logits_;
  else
    dlogits_ = allocate<T>("atoll::dlogits", chunk_, v);
  reciprocal_ = allocate<R>("atoll::final_reciprocal", rows);
  losses_ = allocate<R>("atoll::losses", rows);
  norm_partial_ = allocate<R>("atoll::final_norm_partial", rms_norm_workspace(c));
  partial_sums_ = allocate<double>("atoll::partial_sums", sum_workspace);
}

template <class T>
std::size_t Loss<T>::logit_rows(std::size_t chunk) {
  if constexpr (std::is_same_v<T, R>) return chunk;
  return std::min(chunk, std::max<std::size_t>(128, chunk / 4));
}

template <class T>
View2<T> Loss<T>::normalised(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x) {
  const View2<T> normed = row_block(normed_, 0, x.extent(0));
  rms_norm<T>(exec, x, head.norm, eps_, normed, reciprocal_);
  return normed;
}

template <class T>
View2<const T> Loss<T>::logit_gradients(const Exec& exec, const HeadTensors<const T>& head, View2<const T> normed,
                                        View1<const std::int32_t> targets, double scale, View1<R> losses) {
  const std::size_t rows = normed.extent(0), most = logits_.extent(0);
  for (std::size_t begin = 0; begin < rows; begin += most) {
    const std::size_t n = std::min(most, rows - begin);
    const View2<R> logits = row_block(logits_, 0, n);
    const auto wanted = part(targets, begin, n);
    const auto found = part(losses, begin, n);
    gemm<T>(exec, Transpose::no, Transpose::yes, row_block(normed, begin, n), head.weight, 0, logits);
    if constexpr (std::is_same_v<T, R>)
      cross_entropy<T>(exec, wanted, scale, LossGradient::in_place, logits, found);
    else
      cross_entropy<T>(exec, wanted, scale, logits, row_block(dlogits_, begin, n), found);
  }
  return row_block(dlogits_, 0, rows);
}

template <class T>
double Loss<T>::forward(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x,
                        View1<const std::int32_t> targets) {
  const View2<T> normed = normalised(exec, head, x);
  const std::size_t rows = x.extent(0), most = logits_.extent(0);
  for (std::size_t begin = 0; begin < rows; begin += most) {
    const std::size_t n = std::min(most, rows - begin);
    const View2<R> logits = row_block(logits_, 0, n);
    gemm<T>(exec, Transpose::no, Transpose::yes, row_block(normed, begin, n), head.weight, 0, logits);
    cross_entropy<R>(exec, part(targets, begin, n), 0, LossGradient::none, logits, part(losses_, begin, n));
  }
  return sum(exec, as_const(part(losses_, 0, rows)), partial_sums_);
}

template <class T>
double Loss<T>::forward_backward(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x,
                                 View1<const std::int32_t> targets, double scale, View2<T> dx,
                                 const HeadTensors<R>& gradients) {
  const View2<T> normed = normalised(exec, head, x);
  const std::size_t rows = x.extent(0);
  for (std::size_t begin = 0; begin < rows; begin += chunk_) {
    const std::size_t n = std::min(chunk_, rows - begin);
    const View2<T> chunk = row_block(normed, begin, n);
    const View2<const T> dlogits =
        logit_gradients(exec, head, chunk, part(targets, begin, n), scale, part(losses_, begin, n));
    gemm<T>(exec, Transpose::no, Transpose::no, dlogits, head.weight, 0, row_block(dnormed_, begin, n));
    gemm<T>(exec, Transpose::yes, Transpose::no, dlogits, chunk, begin == 0 ? 0 : 1, gradients.weight);
  }
  fill(exec, flat(dx), T(0));
  rms_norm_backward<T>(exec, x, head.norm, reciprocal_, row_block(dnormed_, 0, rows), dx, gradients.norm,
                       norm_partial_);
  return sum(exec, as_const(part(losses_, 0, rows)), partial_sums_);
}

template <class T>
View2<Accumulator<T>> Loss<T>::logits(const Exec& exec, const HeadTensors<const T>& head, View2<const T> x) {
  const View2<R> all = allocate<R>("atoll::all_logits", x.extent(0), head.weight.extent(0));
  gemm<T>(exec, Transpose::no, Transpose::yes, normalised(exec, head, x), head.weight, 0, all);
  return all;
}

template class Loss<float>;
template class Loss<double>;
template class Loss<bf16>;

}  // namespace atl
