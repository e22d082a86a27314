/// Rates of the kernels on one rank, in fp32 and bf16: GFLOP/s where arithmetic bounds them, GB/s where memory does,
/// beside the machine's own peak: its best matrix product of that type and its copy of large arrays, measured first.
/// SPDX-License-Identifier: Apache-2.0
///
/// Bytes are those that have to move: every input read once, every output written once. A causal attention counts the
/// products on and below the diagonal only. Threads as OMP_NUM_THREADS says.
#include "benchmarks/common/gemm_peak.hpp"
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
#include "core/timer.hpp"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdio>

namespace atl {
namespace {

using benchmark::Counter;
template <class View>
View filled(const View& view) {
  using T = typename View::value_type;
  std::vector<T> values(view.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(static_cast<float>(random_normal(1, i)));
  copy_to_device(values, View1<T>(view.data(), view.size()));
  return view;
}
template <class T>
View1<T> values(std::size_t n) {
  return filled(allocate<T>("atoll::benchmark", n));
}
template <class T>
View2<T> values(std::size_t rows, std::size_t columns) {
  return filled(allocate<T>("atoll::benchmark", rows, columns));
}

/// Of this machine, on this rank; 1e9 a second.
struct Peaks {
  double copy, fp32, bf16;
  template <class T>
  double gemm() const {
    return std::is_same_v<T, atl::bf16> ? bf16 : fp32;
  }
} peaks{1, 1, 1};

void measure_peaks() {
  const auto from = values<float>(std::size_t(1) << 25), to = values<float>(std::size_t(1) << 25);
  double seconds = INFINITY;
  for (int i = 0; i < 8; ++i) {
    const Stopwatch watch;
    Kokkos::deep_copy(Exec(), to, from);
    Exec().fence();
    seconds = std::min(seconds, watch.seconds());
  }
  peaks = {2e-9 * static_cast<double>(from.size() * sizeof(float)) / seconds, gemm_peak<float>(), gemm_peak<bf16>()};
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
void set_rate(benchmark::State& state, const char* name, double amount, double peak) {
  state.counters[name] = Counter(amount * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["% of peak"] = Counter(100 * amount * 1e-9 / peak, Counter::kIsIterationInvariantRate);
}
void set_bytes(benchmark::State& state, std::size_t bytes) {
  set_rate(state, "GB/s", static_cast<double>(bytes), peaks.copy);
}
template <class T>
void set_operations(benchmark::State& state, double operations) {
  set_rate(state, "GFLOP/s", operations, peaks.gemm<T>());
}

// m x n = (m x k) (k x n): what a 20-million-parameter model multiplies for 2048 tokens.
template <class T, Transpose a_op, Transpose b_op>
void gemm(benchmark::State& state) {
  const std::size_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto a = a_op == Transpose::no ? values<T>(m, k) : values<T>(k, m),
             b = b_op == Transpose::no ? values<T>(k, n) : values<T>(n, k);
  const auto c = values<T>(m, n);
  time(state, [&](const Exec& exec) { atl::gemm<T>(exec, a_op, b_op, a, b, 0, c); });
  set_operations<T>(state, 2.0 * static_cast<double>(m * n * k));
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
#define ATOLL_BENCHMARK_GEMM(T)                                                                  \
  BENCHMARK_TEMPLATE(gemm, T, Transpose::no, Transpose::yes)->Apply(gemm_shapes)->UseRealTime(); \
  BENCHMARK_TEMPLATE(gemm, T, Transpose::no, Transpose::no)->Apply(gemm_shapes)->UseRealTime();  \
  BENCHMARK_TEMPLATE(gemm, T, Transpose::yes, Transpose::no)->Apply(gemm_gradient_shapes)->UseRealTime();
ATOLL_BENCHMARK_GEMM(float)
ATOLL_BENCHMARK_GEMM(bf16)

template <class T>
struct AttentionArrays {
  AttentionShape shape;
  View2<T> qkv, out;
  View1<Accumulator<T>> lse;
  explicit AttentionArrays(const benchmark::State& state)
      : shape{1, static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)),
              static_cast<std::size_t>(state.range(2)), static_cast<std::size_t>(state.range(3))},
        qkv(values<T>(shape.length, shape.width())),
        out(allocate<T>("atoll::benchmark", shape.length, shape.query_heads * shape.head_size)),
        lse(allocate<Accumulator<T>>("atoll::benchmark", shape.length * shape.query_heads)) {
    atl::attention<T>(Exec(), shape, qkv, out, lse);
  }
  /// Of `products` products with the causal half of a T x T matrix.
  double operations(double products) const {
    const double length = static_cast<double>(shape.length);
    return products * length * (length + 1) * static_cast<double>(shape.query_heads * shape.head_size);
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
template <class T>
void attention_forward(benchmark::State& state) {
  const AttentionArrays<T> a(state);
  time(state, [&](const Exec& exec) { atl::attention<T>(exec, a.shape, a.qkv, a.out, a.lse); });
  set_operations<T>(state, a.operations(2));
}
template <class T>
void attention_backward(benchmark::State& state) {
  const AttentionArrays<T> a(state);
  const auto dout = values<T>(a.out.extent(0), a.out.extent(1)), dqkv = values<T>(a.qkv.extent(0), a.qkv.extent(1));
  const auto workspace = values<Accumulator<T>>(attention_workspace<T>(a.shape));
  time(state, [&](const Exec& exec) {
    atl::attention_backward<T>(exec, a.shape, a.qkv, a.out, dout, a.lse, dqkv, workspace);
  });
  set_operations<T>(state, a.operations(5));
}
BENCHMARK_TEMPLATE(attention_forward, float)->Apply(attention_shapes)->UseRealTime();
BENCHMARK_TEMPLATE(attention_forward, bf16)->Apply(attention_shapes)->UseRealTime();
BENCHMARK_TEMPLATE(attention_backward, float)->Apply(attention_shapes)->UseRealTime();
BENCHMARK_TEMPLATE(attention_backward, bf16)->Apply(attention_shapes)->UseRealTime();

// Arrays larger than the caches of most processors: N rows of C or F columns.
constexpr std::size_t rows = 8192, hidden = 768, intermediate = 2048;

template <class T>
void rms_norm_forward(benchmark::State& state) {
  const auto x = values<T>(rows, hidden), y = values<T>(rows, hidden);
  const auto w = values<T>(hidden);
  const auto r = values<Accumulator<T>>(rows);
  time(state, [&](const Exec& exec) { atl::rms_norm<T>(exec, x, w, 1e-5, y, r); });
  set_bytes(state, 2 * x.size() * sizeof(T));
}
template <class T>
void rms_norm_backward(benchmark::State& state) {
  const auto x = values<T>(rows, hidden), dy = values<T>(rows, hidden), dx = values<T>(rows, hidden);
  const auto w = values<T>(hidden);
  using R = Accumulator<T>;
  const auto r = values<R>(rows), dw = values<R>(hidden), workspace = values<R>(rms_norm_workspace(hidden));
  time(state, [&](const Exec& exec) { atl::rms_norm_backward<T>(exec, x, w, r, dy, dx, dw, workspace); });
  set_bytes(state, 5 * x.size() * sizeof(T));
}
template <class T>
void swiglu_forward(benchmark::State& state) {
  const auto gate_up = values<T>(rows, 2 * intermediate), y = values<T>(rows, intermediate);
  time(state, [&](const Exec& exec) { atl::swiglu<T>(exec, gate_up, y); });
  set_bytes(state, 3 * y.size() * sizeof(T));
}
template <class T>
void swiglu_backward(benchmark::State& state) {
  const auto gate_up = values<T>(rows, 2 * intermediate), dy = values<T>(rows, intermediate);
  time(state, [&](const Exec& exec) { atl::swiglu_backward<T>(exec, dy, gate_up); });
  set_bytes(state, 6 * dy.size() * sizeof(T));
}
template <class T>
void rope(benchmark::State& state) {
  const auto x = values<T>(rows, hidden);
  const auto table = make_rope_table<T>(std::vector<double>(32, 0.01), 1024);
  time(state, [&](const Exec& exec) { atl::rope<T>(exec, Rotation::forward, table, hidden / 64, x); });
  set_bytes(state, 2 * x.size() * sizeof(T));
}
void cross_entropy(benchmark::State& state, LossGradient gradient) {
  const auto logits = values<float>(512, 32000);
  const auto losses = values<float>(512);
  const auto targets = allocate<std::int32_t>("atoll::benchmark", 512);
  // A scale that keeps repeated gradients of gradients from growing.
  time(state, [&](const Exec& exec) { atl::cross_entropy<float>(exec, targets, 1e-3, gradient, logits, losses); });
  set_bytes(state, (gradient == LossGradient::in_place ? 2 : 1) * logits.size() * sizeof(float));
}
template <class T>
void embedding_forward(benchmark::State& state) {
  const auto table = values<T>(32000, hidden), x = values<T>(rows, hidden);
  std::vector<std::int32_t> tokens(rows);
  for (std::size_t i = 0; i < rows; ++i) tokens[i] = static_cast<std::int32_t>(random_bits(1, i) % 32000);
  const auto device_tokens = to_device("atoll::benchmark", tokens);
  time(state, [&](const Exec& exec) { atl::embedding<T>(exec, table, device_tokens, x); });
  set_bytes(state, 2 * x.size() * sizeof(T));
}
template <class T>
void embedding_backward(benchmark::State& state) {
  const auto dtable = values<Accumulator<T>>(32000, hidden);
  const auto dx = values<T>(rows, hidden);
  std::vector<std::int32_t> tokens(rows);
  for (std::size_t i = 0; i < rows; ++i) tokens[i] = static_cast<std::int32_t>(random_bits(1, i) % 32000);
  TokenIndex index(rows);
  index.assign(tokens, 32000);
  time(state, [&](const Exec& exec) { atl::embedding_backward<T>(exec, index, dx, dtable); });
  set_bytes(state, dx.size() * (sizeof(T) + 2 * sizeof(Accumulator<T>)));
}
BENCHMARK_TEMPLATE(rms_norm_forward, float)->UseRealTime();
BENCHMARK_TEMPLATE(rms_norm_forward, bf16)->UseRealTime();
BENCHMARK_TEMPLATE(rms_norm_backward, float)->UseRealTime();
BENCHMARK_TEMPLATE(rms_norm_backward, bf16)->UseRealTime();
BENCHMARK_TEMPLATE(swiglu_forward, float)->UseRealTime();
BENCHMARK_TEMPLATE(swiglu_forward, bf16)->UseRealTime();
BENCHMARK_TEMPLATE(swiglu_backward, float)->UseRealTime();
BENCHMARK_TEMPLATE(swiglu_backward, bf16)->UseRealTime();
BENCHMARK_TEMPLATE(rope, float)->UseRealTime();
BENCHMARK_TEMPLATE(rope, bf16)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy, loss, LossGradient::none)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy, loss_and_gradient, LossGradient::in_place)->UseRealTime();
BENCHMARK_TEMPLATE(embedding_forward, float)->UseRealTime();
BENCHMARK_TEMPLATE(embedding_forward, bf16)->UseRealTime();
BENCHMARK_TEMPLATE(embedding_backward, float)->UseRealTime();
BENCHMARK_TEMPLATE(embedding_backward, bf16)->UseRealTime();

constexpr std::size_t parameters = 20'000'000;

void adamw(benchmark::State& state) {
  const auto g = values<float>(parameters), p = values<float>(parameters), m = values<float>(parameters),
             v = values<float>(parameters);
  AdamwStep step{1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1};
  fill(Exec(), v, 1.0f);
  time(state, [&](const Exec& exec) {
    atl::adamw<float>(exec, step, g, p, m, v);
    ++step.step;
  });
  set_bytes(state, 7 * parameters * sizeof(float));
}
void sum_of_squares(benchmark::State& state) {
  const auto g = values<float>(parameters);
  double sum = 0;
  time(state, [&](const Exec& exec) { benchmark::DoNotOptimize(sum += atl::sum_of_squares<float>(exec, g)); });
  set_bytes(state, parameters * sizeof(float));
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
    atl::measure_peaks();
    std::fprintf(stderr, "Kernels on %s; peaks: copy %.1f GB/s, fp32 %.0f GFLOP/s by %s, bf16 %.0f GFLOP/s by %s\n",
                 atl::Exec::name(), atl::peaks.copy, atl::peaks.fp32, atl::gemm_library(atl::Element::f32).c_str(),
                 atl::peaks.bf16, atl::gemm_library(atl::Element::bf16).c_str());
    benchmark::RunSpecifiedBenchmarks();
  }
  Kokkos::finalize();
  return understood ? 0 : 2;
}
