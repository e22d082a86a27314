/// The machine's best matrix product, which benchmarks hold kernels and steps against. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "core/gemm.hpp"
#include "core/timer.hpp"

#include <algorithm>
#include <array>

namespace atl {

/// Best GFLOP/s of products of 2048 tokens with weights of usual shapes, on this rank.
template <class T>
double gemm_peak() {
  double best = 0;
  for (const auto& [m, n, k] : {std::array<std::size_t, 3>{2048, 1024, 512}, {2048, 768, 2048}, {2048, 2048, 1024}}) {
    const auto a = allocate<T>("atoll::benchmark", m, k), b = allocate<T>("atoll::benchmark", n, k),
               c = allocate<T>("atoll::benchmark", m, n);
    fill(Exec(), flat(a), T(0.5));
    fill(Exec(), flat(b), T(0.5));
    for (int i = 0; i < 5; ++i) {
      const Stopwatch watch;
      gemm<T, T>(Exec(), Transpose::no, Transpose::yes, a, b, 0, c);
      Exec().fence();
      best = std::max(best, 2e-9 * static_cast<double>(m * n * k) / watch.seconds());
    }
  }
  return best;
}

}  // namespace atl
