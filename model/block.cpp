/// SPDX-License-Identifier: Apache-2.0
#include "model/block.hpp"

#include "core/gemm.hpp"
#include "core/rms_norm.hpp"
#include "core/swiglu.hpp"

namespace atl {

namespace {

constexpr auto plain = Transpose::no, transposed = Transpose::yes;

struct Sizes {
  explicit Sizes(const LlamaConfig& config)
      : c(static_cast<std::size_t>(config.hidden_size)),
        f(static_cast<std::size_t>(config.intermediate_size)),
        q(static_cast<std::size_t>(config.query_size())),
        qkv(static_cast<std::size_t>(config.query_size() + 2 * config.key_value_size())),
        heads(static_cast<std::size_t>(config.num_attention_heads)) {}
  std::size_t c, f, q, qkv, heads;
};

// The first rows of a buffer that was allocated for the largest micro-batch.
template <class E>
View2<E> rows_of(const View2<E>& m, std::size_t n) {
  return row_block(m, 0, n);
}

}  // namespace

template <class T>
BlockActivations<T>::BlockActivations(const LlamaConfig& config, std::size_t rows) {
  const Sizes n(config);
  attention_reciprocal = allocate<R>("atoll::attention_reciprocal", rows);
  qkv = allocate<T>("atoll::qkv", rows, n.qkv);
  attended = allocate<T>("atoll::attended", rows, n.q);
  lse = allocate<R>("atoll::attention_lse", rows * n.heads);
  middle = allocate<T>("atoll::residual_middle", rows, n.c);
  mlp_reciprocal = allocate<R>("atoll::mlp_reciprocal", rows);
  gate_up = allocate<T>("atoll::gate_up", rows, 2 * n.f);
}

template <class T>
BlockScratch<T>::BlockScratch(const LlamaConfig& config, std::size_t rows) {
  const Sizes n(config);
  normed = allocate<T>("atoll::normed", rows, n.c);
  activated = allocate<T>("atoll::activated", rows, n.f);
}

template <class T>
BlockWorkspace<T>::BlockWorkspace(const LlamaConfig& config, std::size_t rows) : BlockScratch<T>(config, rows) {
  const Sizes n(config);
  dattended = allocate<T>("atoll::dattended", rows, n.q);
  dqkv = allocate<T>("atoll::dqkv", rows, n.qkv);
  attention = allocate<R>("atoll::attention_workspace", attention_workspace<T>({1, rows, n.heads, 1, n.q / n.heads}));
  norm_partial = allocate<R>("atoll::norm_partial", rms_norm_workspace(n.c));
}

template <class T>
void block_forward(const Exec& exec, const BlockContext<T>& context, const BlockTensors<const T>& weights,
                   View2<const T> x, const BlockActivations<T>& saved, const BlockScratch<T>& scratch, View2<T> y) {
  const std::size_t n = context.rows();
  const auto qkv = rows_of(saved.qkv, n), attended = rows_of(saved.attended, n);
  const auto middle = rows_of(saved.middle, n), gate_up = rows_of(saved.gate_up, n);
  const auto normed = rows_of(scratch.normed, n), activated = rows_of(scratch.activated, n);
  const double eps = context.config.rms_norm_eps;

  rms_norm<T>(exec, x, weights.attention_norm, eps, normed, saved.attention_reciprocal, middle);
  gemm<T>(exec, plain, transposed, normed, weights.qkv, 0, qkv);
  rope<T>(exec, Rotation::forward, context.rope, context.attention.query_heads + context.attention.key_value_heads,
          qkv);
  attention<T>(exec, context.attention, qkv, attended, saved.lse, context.first_keys);
  gemm<T>(exec, plain, transposed, attended, weights.o, 1, middle);

  rms_norm<T>(exec, middle, weights.mlp_norm, eps, normed, saved.mlp_reciprocal, y);
  gemm<T>(exec, plain, transposed, normed, weights.gate_up, 0, gate_up);
  swiglu<T>(exec, gate_up, activated);
  gemm<T>(exec, plain, transposed, activated, weights.down, 1, y);
}

template <class T>
void block_backward(const Exec& exec, const BlockContext<T>& context, const BlockTensors<const T>& weights,
                    View2<const T> x, const BlockActivations<T>& saved, const BlockWorkspace<T>& workspace, View2<T> dx,
                    const BlockTensors<Accumulator<T>>& gradients) {
  const std::size_t n = context.rows();
  const auto qkv = rows_of(saved.qkv, n), attended = rows_of(saved.attended, n);
  const auto middle = rows_of(saved.middle, n), gate_up = rows_of(saved.gate_up, n);
  const auto dqkv = rows_of(workspace.dqkv, n), dattended = rows_of(workspace.dattended, n);
  // First the gradient of what norm or SwiGLU made; their backward makes that itself there.
  const auto normed = rows_of(workspace.normed, n), activated = rows_of(workspace.activated, n);

  // mlp: y = middle + down(swiglu(gate_up(norm(middle))))
  gemm<T>(exec, plain, plain, dx, weights.down, 0, activated);
  swiglu_backward<T>(exec, activated, gate_up);
  const View2<T>& dgate_up = gate_up;
  gemm<T>(exec, transposed, plain, dx, activated, 0, gradients.down);
  gemm<T>(exec, plain, plain, dgate_up, weights.gate_up, 0, normed);
  rms_norm_backward<T>(exec, middle, weights.mlp_norm, saved.mlp_reciprocal, normed, dx, gradients.mlp_norm,
                       workspace.norm_partial);
  gemm<T>(exec, transposed, plain, dgate_up, normed, 0, gradients.gate_up);

  // attention: middle = x + o(attention(rope(qkv(norm(x)))))
  gemm<T>(exec, plain, plain, dx, weights.o, 0, dattended);
  gemm<T>(exec, transposed, plain, dx, attended, 0, gradients.o);
  attention_backward<T>(exec, context.attention, qkv, attended, dattended, saved.lse, dqkv, workspace.attention,
                        context.first_keys);
  rope<T>(exec, Rotation::inverse, context.rope, context.attention.query_heads + context.attention.key_value_heads,
          dqkv);
  gemm<T>(exec, plain, plain, dqkv, weights.qkv, 0, normed);
  rms_norm_backward<T>(exec, x, weights.attention_norm, saved.attention_reciprocal, normed, dx,
                       gradients.attention_norm, workspace.norm_partial);
  gemm<T>(exec, transposed, plain, dqkv, normed, 0, gradients.qkv);
}

#define ATOLL_INSTANTIATE(T)                                                                                         \
  template struct BlockActivations<T>;                                                                               \
  template struct BlockScratch<T>;                                                                                   \
  template struct BlockWorkspace<T>;                                                                                 \
  template void block_forward<T>(const Exec&, const BlockContext<T>&, const BlockTensors<const T>&, View2<const T>,  \
                                 const BlockActivations<T>&, const BlockScratch<T>&, View2<T>);                      \
  template void block_backward<T>(const Exec&, const BlockContext<T>&, const BlockTensors<const T>&, View2<const T>, \
                                  const BlockActivations<T>&, const BlockWorkspace<T>&, View2<T>,                    \
                                  const BlockTensors<Accumulator<T>>&);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
