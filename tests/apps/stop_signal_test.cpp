/// A signal may come at any time, also inside another library's kernels. SPDX-License-Identifier: Apache-2.0
#include "apps/stop_signal.hpp"

#include "core/gemm.hpp"
#include "tests/core/host_values.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <pthread.h>
#include <thread>

namespace atl::test {
namespace {

// Eight of eight runs died of this with oneDNN 2.6 and a handler on the stack of its kernels.
TEST(StopSignal, MayComeInsideAProduct) {
  const std::size_t m = 512, n = 384, k = 128;
  std::vector<float> a(m * k), b(k * n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
  const auto a_view = device(a, m, k), b_view = device(b, k, n);
  const auto out = device(std::vector<float>(m * n, 0), m, n);
  const auto multiply = [&] {
    gemm<float>(Exec(), Transpose::no, Transpose::no, a_view, b_view, 0.f, out);
    Exec().fence();
  };
  multiply();
  const std::vector<float> expected = host(out);
  const pthread_t main_thread = pthread_self();
  for (int i = 0; i < 200; ++i) {
    const StopSignal signal;  // one signal each: a second one ends the process
    std::thread sender([&, i] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 + 7 * i));
      pthread_kill(main_thread, SIGUSR1);
    });
    while (signal.received() == 0) multiply();
    sender.join();
    ASSERT_EQ(signal.received(), SIGUSR1);
    ASSERT_TRUE(host(out) == expected) << "product " << i;
  }
}

}  // namespace
}  // namespace atl::test
