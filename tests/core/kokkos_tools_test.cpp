/// Every kernel and allocation carries a label of atoll's, so that profilers show whose it is. SPDX-License-Identifier:
/// Apache-2.0
#include "core/adamw.hpp"
#include "core/attention.hpp"
#include "core/cross_entropy.hpp"
#include "core/embedding.hpp"
#include "core/gemm.hpp"
#include "core/norm.hpp"
#include "core/rms_norm.hpp"
#include "core/rope.hpp"
#include "core/swiglu.hpp"

#include <gtest/gtest.h>

#include <set>

namespace atl::test {
namespace {

std::set<std::string>& heard() {
  static std::set<std::string> labels;
  return labels;
}
void on_kernel(const char* label, std::uint32_t, std::uint64_t* id) {
  *id = 0;
  heard().insert(label);
}
void on_allocation(Kokkos::Profiling::SpaceHandle, const char* label, const void*, std::uint64_t) {
  heard().insert(label);
}

/// Labels of all kernels and allocations of its lifetime. An attached profiler hears nothing meanwhile.
class Listener {
 public:
  Listener() {
    heard().clear();
    using namespace Kokkos::Tools::Experimental;
    set_begin_parallel_for_callback(on_kernel);
    set_begin_parallel_reduce_callback(on_kernel);
    set_begin_parallel_scan_callback(on_kernel);
    set_allocate_data_callback(on_allocation);
  }
  ~Listener() {
    using namespace Kokkos::Tools::Experimental;
    set_begin_parallel_for_callback(nullptr);
    set_begin_parallel_reduce_callback(nullptr);
    set_begin_parallel_scan_callback(nullptr);
    set_allocate_data_callback(nullptr);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
};

template <class T>
View2<T> make(std::size_t rows, std::size_t columns) {
  return allocate<T>("atoll::test", rows, columns);
}
template <class T>
View1<T> make(std::size_t n) {
  return allocate<T>("atoll::test", n);
}

constexpr std::size_t n = 8, c = 16, vocabulary = 32;

template <class T>
void run_kernels_of_all_types() {
  using R = Accumulator<T>;
  const Exec exec;
  const auto x = make<T>(n, c), y = make<T>(n, c);
  const auto w = make<T>(c);
  rms_norm<T>(exec, x, w, 1e-5, y, make<R>(n));
  rms_norm_backward<T>(exec, x, w, make<R>(n), y, x, make<R>(c), make<R>(rms_norm_workspace(c)));
  swiglu<T>(exec, make<T>(n, 2 * c), y);
  swiglu_backward<T>(exec, y, make<T>(n, 2 * c));
  rope<T>(exec, Rotation::forward, make_rope_table<T>({1.0, 0.1}, n), 2, x);
  attention<T>(exec, {1, n, 2, 1, 8}, make<T>(n, 32), make<T>(n, 16), make<R>(2 * n));
  TokenIndex index(n);
  index.assign(std::vector<std::int32_t>(n, 3), vocabulary);
  embedding<T>(exec, make<T>(vocabulary, c), make<std::int32_t>(n), x);
  embedding_backward<T>(exec, index, x, make<R>(vocabulary, c));
  attention_backward<T>(exec, {1, n, 2, 1, 8}, make<T>(n, 32), make<T>(n, 16), make<T>(n, 16), make<R>(2 * n),
                        make<T>(n, 32), make<R>(attention_workspace<T>({1, n, 2, 1, 8})));
  for (const std::size_t k : {std::size_t(0), c})
    gemm<T>(exec, Transpose::no, Transpose::no, make<T>(n, k), make<T>(k, c), R(0), make<T>(n, c));
}

template <class T>
void run_kernels_of_floats() {
  const Exec exec;
  cross_entropy<T>(exec, make<std::int32_t>(n), 1, LossGradient::in_place, make<T>(n, vocabulary), make<T>(n));
  adamw<T>(exec, {1e-3, 0.9, 0.95, 1e-8, 0, 1, 1}, make<T>(n), make<T>(n), make<T>(n), make<T>(n));
  sgd<T>(exec, 1e-3, 0, 1, make<T>(n), make<T>(n));
  sum<T>(exec, make<T>(n));
  sum_of_squares<T>(exec, make<T>(n));
  sum_of_squared_differences<T>(exec, make<T>(n), make<T>(n));
}

bool starts_with(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

TEST(KokkosTools, EveryLabelIsAtolls) {
  std::set<std::string> labels;
  {
    Listener listener;
    run_kernels_of_all_types<float>();
    run_kernels_of_all_types<double>();
    run_kernels_of_all_types<bf16>();
    run_kernels_of_floats<float>();
    run_kernels_of_floats<double>();
    cross_entropy<bf16>(Exec(), make<std::int32_t>(n), 1, make<float>(n, vocabulary), make<bf16>(n, vocabulary),
                        make<float>(n));
    adamw(Exec(), {1e-3, 0.9, 0.95, 1e-8, 0, 1, 1}, make<float>(n), make<float>(n), make<float>(n), make<float>(n),
          make<bf16>(n));
    to_device("atoll::test_copy", to_host(make<float>(n)));
    Exec().fence();
    labels = heard();
  }
  for (const std::string& label : labels) {
    // Kokkos' own scratch memory of teams, which its OpenMP of 3.4 does not label (an array without a label is called
    // "", so it does not pass for this), and Kokkos Kernels' own product where no vendor's library makes it.
    const bool foreign = starts_with(label, "Kokkos::") || label == "[unlabeled]" || starts_with(label, "KokkosBlas::");
    EXPECT_TRUE(foreign || starts_with(label, "atoll::")) << "'" << label << "'";
  }
  for (const char* kernel : {"fill",
                             "rms_norm",
                             "rms_norm_backward",
                             "rms_norm_backward_sum",
                             "swiglu",
                             "swiglu_backward",
                             "rope",
                             "attention",
                             "attention_backward",
                             "attention_backward_delta",
                             "attention_backward_queries",
                             "embedding",
                             "embedding_backward",
                             "cross_entropy",
                             "gemm_empty",
                             "adamw",
                             "sgd",
                             "sum",
                             "sum_of_squares",
                             "sum_of_squared_differences"})
    EXPECT_TRUE(labels.count(std::string("atoll::") + kernel))
        << kernel << " was not heard of: does the listener work?";
  for (const char* array : {"partial_sums", "rope_cosine", "token_positions", "test_copy"})
    EXPECT_TRUE(labels.count(std::string("atoll::") + array)) << array << " was not heard of: does the listener work?";
}

// A function of its own: nvcc wants no kernel in the private body of a test.
void run_kernel_of_another(const Kokkos::View<int*, Memory>& view) {
  Kokkos::parallel_for(
      "someone else's kernel", view.extent(0), KOKKOS_LAMBDA(const int i) { view(i) = i; });
}

// The listener itself notices kernels and arrays without a label.
TEST(KokkosTools, ListenerHearsOthers) {
  Listener listener;
  const Kokkos::View<int*, Memory> other("someone else's array", 5);
  run_kernel_of_another(other);
  Exec().fence();
  EXPECT_TRUE(heard().count("someone else's array"));
  EXPECT_TRUE(heard().count("someone else's kernel"));
}

}  // namespace
}  // namespace atl::test
