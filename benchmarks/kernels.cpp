/// Rates of the kernels on one rank: GFLOP/s where arithmetic bounds them, GB/s where memory does.
/// SPDX-License-Identifier: Apache-2.0
///
/// Bytes are those that have to move: every input read once, every output written once. A causal attention counts the
/// products on and below the diagonal only. fp32; threads as OMP_NUM_THREADS says.
#include "core/adamw.hpp"
#include "core/attention.hpp"
#include "core/cross_entropy.hpp"
#include "core/embedding.hpp"
#include "core/gemm.hpp"
#include "core/norm.hpp"
#include "core/random.hpp"
#include "core/rms_norm.hpp"
#include "core/rope.hpp"
#include "core/swiglu.hpp"

#include <benchmark/benchmark.h>
#include <cstdio>

namespace atl {
namespace {

using benchmark::Counter;
using T = float;

template <class View>
View filled(const View& view) {
  std::vector<T> values(view.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(random_normal(1, i));
  copy_to_device(values, View1<T>(view.data(), view.size()));
  return view;
}
View1<T> values(std::size_t n) { return filled(allocate<T>("atoll::benchmark", n)); }
View2<T> values(std::size_t rows, std::size_t columns) {
  return filled(allocate<T>("atoll::benchmark", rows, columns));
}

/// Times `kernel`, with one run before that is not counted. Rates by wall-clock time, since a GEMM may have threads.
template <class F>
void time(benchmark::State& state, const F& kernel) {
  const auto run = [&] {
    kernel(Exec());
    Exec().fence();
  };
  run();
  for (auto _ : state) run();
}
Counter per_second(double amount) { return Counter(amount * 1e-9, Counter::kIsIterationInvariantRate); }
void set_bytes(benchmark::State& state, std::size_t elements) {
  state.counters["GB/s"] = per_second(static_cast<double>(elements * sizeof(T)));
}

// m x n = (m x k) (k x n): what a 20-million-parameter model multiplies for 2048 tokens.
void gemm(benchmark::State& state, Transpose a_op, Transpose b_op) {
  const std::size_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto a = a_op == Transpose::no ? values(m, k) : values(k, m),
             b = b_op == Transpose::no ? values(k, n) : values(n, k);
  const auto c = values(m, n);
  time(state, [&](const Exec& exec) { atl::gemm<T>(exec, a_op, b_op, a, b, T(0), c); });
  state.counters["GFLOP/s"] = per_second(2.0 * static_cast<double>(m * n * k));
}
void gemm_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "n", "k"})
      ->Args({2048, 768, 384})
      ->Args({2048, 2048, 384})
      ->Args({2048, 384, 1024})
      ->Args({512, 8192, 384});
}
void gemm_gradient_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "n", "k"})->Args({768, 384, 2048})->Args({2048, 384, 2048})->Args({8192, 384, 512});
}
BENCHMARK_CAPTURE(gemm, forward, Transpose::no, Transpose::yes)->Apply(gemm_shapes)->UseRealTime();
BENCHMARK_CAPTURE(gemm, input_gradient, Transpose::no, Transpose::no)->Apply(gemm_shapes)->UseRealTime();
BENCHMARK_CAPTURE(gemm, weight_gradient, Transpose::yes, Transpose::no)->Apply(gemm_gradient_shapes)->UseRealTime();

struct AttentionArrays {
  AttentionShape shape;
  View2<T> qkv, out;
  View1<T> lse;
  explicit AttentionArrays(const benchmark::State& state)
      : shape{1, static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)),
              static_cast<std::size_t>(state.range(2)), static_cast<std::size_t>(state.range(3))},
        qkv(values(shape.length, shape.width())),
        out(allocate<T>("atoll::benchmark", shape.length, shape.query_heads * shape.head_size)),
        lse(allocate<T>("atoll::benchmark", shape.length * shape.query_heads)) {
    atl::attention<T>(Exec(), shape, qkv, out, lse);
  }
  /// Of `products` products with the causal half of a T x T matrix.
  Counter rate(double products) const {
    const double length = static_cast<double>(shape.length);
    return per_second(products * 2 * length * (length + 1) / 2 *
                      static_cast<double>(shape.query_heads * shape.head_size));
  }
};
void attention_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"T", "H", "K", "D"})->Unit(benchmark::kMillisecond);
  b->Args({512, 8, 4, 64})
      ->Args({2048, 8, 4, 64})
      ->Args({512, 6, 2, 64})
      ->Args({2048, 6, 2, 64})
      ->Args({2048, 8, 8, 128});
}
void attention_forward(benchmark::State& state) {
  const AttentionArrays a(state);
  time(state, [&](const Exec& exec) { atl::attention<T>(exec, a.shape, a.qkv, a.out, a.lse); });
  state.counters["GFLOP/s"] = a.rate(2);
}
void attention_backward(benchmark::State& state) {
  const AttentionArrays a(state);
  const auto dout = values(a.out.extent(0), a.out.extent(1)), dqkv = values(a.qkv.extent(0), a.qkv.extent(1));
  const auto delta = values(a.lse.extent(0));
  time(state,
       [&](const Exec& exec) { atl::attention_backward<T>(exec, a.shape, a.qkv, a.out, dout, a.lse, dqkv, delta); });
  state.counters["GFLOP/s"] = a.rate(5);
}
BENCHMARK(attention_forward)->Apply(attention_shapes)->UseRealTime();
BENCHMARK(attention_backward)->Apply(attention_shapes)->UseRealTime();

// Arrays larger than the caches of most processors: N rows of C or F columns.
constexpr std::size_t rows = 8192, hidden = 768, intermediate = 2048;

void rms_norm_forward(benchmark::State& state) {
  const auto x = values(rows, hidden), y = values(rows, hidden);
  const auto w = values(hidden), r = values(rows);
  time(state, [&](const Exec& exec) { atl::rms_norm<T>(exec, x, w, 1e-5, y, r); });
  set_bytes(state, 2 * x.size());
}
void rms_norm_backward(benchmark::State& state) {
  const auto x = values(rows, hidden), dy = values(rows, hidden), dx = values(rows, hidden);
  const auto w = values(hidden), r = values(rows), dw = values(hidden), workspace = values(rms_norm_workspace(hidden));
  time(state, [&](const Exec& exec) { atl::rms_norm_backward<T>(exec, x, w, r, dy, dx, dw, workspace); });
  set_bytes(state, 4 * x.size());
}
void swiglu_forward(benchmark::State& state) {
  const auto gate_up = values(rows, 2 * intermediate), y = values(rows, intermediate);
  time(state, [&](const Exec& exec) { atl::swiglu<T>(exec, gate_up, y); });
  set_bytes(state, 3 * y.size());
}
void swiglu_backward(benchmark::State& state) {
  const auto gate_up = values(rows, 2 * intermediate), dy = values(rows, intermediate);
  time(state, [&](const Exec& exec) { atl::swiglu_backward<T>(exec, dy, gate_up); });
  set_bytes(state, 5 * dy.size());
}
void residual_add(benchmark::State& state) {
  const auto x = values(rows, hidden), y = values(rows, hidden);
  time(state, [&](const Exec& exec) { atl::add<T>(exec, x, y); });
  set_bytes(state, 3 * x.size());
}
void rope(benchmark::State& state) {
  const auto x = values(rows, hidden);
  const auto table = make_rope_table<T>(std::vector<double>(32, 0.01), 1024);
  time(state, [&](const Exec& exec) { atl::rope<T>(exec, Rotation::forward, table, hidden / 64, x); });
  set_bytes(state, 2 * x.size());
}
void cross_entropy(benchmark::State& state, LossGradient gradient) {
  const auto logits = values(512, 32000);
  const auto losses = values(512);
  const auto targets = allocate<std::int32_t>("atoll::benchmark", 512);
  // A scale that keeps repeated gradients of gradients from growing.
  time(state, [&](const Exec& exec) { atl::cross_entropy<T>(exec, targets, 1e-3, gradient, logits, losses); });
  set_bytes(state, (gradient == LossGradient::in_place ? 2 : 1) * logits.size());
}
void embedding_forward(benchmark::State& state) {
  const auto table = values(32000, hidden), x = values(rows, hidden);
  std::vector<std::int32_t> tokens(rows);
  for (std::size_t i = 0; i < rows; ++i) tokens[i] = static_cast<std::int32_t>(random_bits(1, i) % 32000);
  const auto device_tokens = to_device("atoll::benchmark", tokens);
  time(state, [&](const Exec& exec) { atl::embedding<T>(exec, table, device_tokens, x); });
  set_bytes(state, 2 * x.size());
}
void embedding_backward(benchmark::State& state) {
  const auto dtable = values(32000, hidden), dx = values(rows, hidden);
  std::vector<std::int32_t> tokens(rows);
  for (std::size_t i = 0; i < rows; ++i) tokens[i] = static_cast<std::int32_t>(random_bits(1, i) % 32000);
  TokenIndex index(rows);
  index.assign(tokens, 32000);
  time(state, [&](const Exec& exec) { atl::embedding_backward<T>(exec, index, dx, dtable); });
  set_bytes(state, 3 * dx.size());
}
BENCHMARK(rms_norm_forward)->UseRealTime();
BENCHMARK(rms_norm_backward)->UseRealTime();
BENCHMARK(swiglu_forward)->UseRealTime();
BENCHMARK(swiglu_backward)->UseRealTime();
BENCHMARK(residual_add)->UseRealTime();
BENCHMARK(rope)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy, loss, LossGradient::none)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy, loss_and_gradient, LossGradient::in_place)->UseRealTime();
BENCHMARK(embedding_forward)->UseRealTime();
BENCHMARK(embedding_backward)->UseRealTime();

constexpr std::size_t parameters = 20'000'000;

void adamw(benchmark::State& state) {
  const auto g = values(parameters), p = values(parameters), m = values(parameters), v = values(parameters);
  AdamwStep step{1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1};
  fill(Exec(), v, T(1));
  time(state, [&](const Exec& exec) {
    atl::adamw<T>(exec, step, g, p, m, v);
    ++step.step;
  });
  set_bytes(state, 7 * parameters);
}
void sum_of_squares(benchmark::State& state) {
  const auto g = values(parameters);
  double sum = 0;
  time(state, [&](const Exec& exec) { benchmark::DoNotOptimize(sum += atl::sum_of_squares<T>(exec, g)); });
  set_bytes(state, parameters);
}
BENCHMARK(adamw)->UseRealTime();
BENCHMARK(sum_of_squares)->UseRealTime();

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  Kokkos::initialize(argc, argv);
  benchmark::Initialize(&argc, argv);
  const bool understood = !benchmark::ReportUnrecognizedArguments(argc, argv);
  if (understood) {
    std::fprintf(stderr, "Kernels on %s; fp32 products by %s\n", atl::Exec::name(),
                 atl::gemm_library(atl::Element::f32).c_str());
    benchmark::RunSpecifiedBenchmarks();
  }
  Kokkos::finalize();
  return understood ? 0 : 2;
}
