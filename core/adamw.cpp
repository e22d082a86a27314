/// SPDX-License-Identifier: Apache-2.0
#include "core/adamw.hpp"

#include "core/launch.hpp"

namespace atl {

namespace {

// nvcc takes no `if constexpr` in a kernel itself.
template <class T, class W>
KOKKOS_INLINE_FUNCTION void store_weight([[maybe_unused]] W* weight, [[maybe_unused]] std::int64_t i,
                                         [[maybe_unused]] T value) {
  if constexpr (!std::is_same_v<T, W>) weight[i] = W(value);
}

// W: of the weights beside the master parameters; the same as T where there are none.
template <class T, class W>
void adamw_pass(const Exec& exec, const AdamwStep& step, const View1<const T>& gradient, const View1<T>& parameter,
                const View1<T>& m, const View1<T>& v, [[maybe_unused]] W* weight) {
  const double correction1 = 1.0 - std::pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = std::sqrt(1.0 - std::pow(step.beta2, static_cast<double>(step.step)));
  const T keep = T(1.0 - step.lr * step.weight_decay), rate = T(step.lr / correction1);
  const T rest1 = T(1.0 - step.beta1), beta2 = T(step.beta2), rest2 = T(1.0 - step.beta2);
  const T inverse2 = T(1.0 / correction2), eps = T(step.eps), scale = T(step.gradient_scale);
  const T* const g = gradient.data();
  T* const p = parameter.data();
  T* const first = m.data();
  T* const second = v.data();
  for_each(
      "atoll::adamw", exec, parameter.extent(0), KOKKOS_LAMBDA(const std::int64_t i) {
        const T gi = g[i] * scale;
        const T mi = first[i] + rest1 * (gi - first[i]);
        const T vi = beta2 * second[i] + rest2 * gi * gi;
        first[i] = mi;
        second[i] = vi;
        const T pi = p[i] * keep - rate * (mi / (math::sqrt(vi) * inverse2 + eps));
        p[i] = pi;
        store_weight(weight, i, pi);
      });
}

template <class T, class W>
void sgd_pass(const Exec& exec, double lr, double weight_decay, double gradient_scale, const View1<const T>& gradient,
              const View1<T>& parameter, [[maybe_unused]] W* weight) {
  const T keep = T(1.0 - lr * weight_decay), rate = T(lr * gradient_scale);
  const T* const g = gradient.data();
  T* const p = parameter.data();
  for_each(
      "atoll::sgd", exec, parameter.extent(0), KOKKOS_LAMBDA(const std::int64_t i) {
        const T pi = p[i] * keep - rate * g[i];
        p[i] = pi;
        store_weight(weight, i, pi);
      });
}

}  // namespace

template <class T>
void adamw(const Exec& exec, const AdamwStep& step, View1<const T> gradient, View1<T> parameter, View1<T> m,
           View1<T> v) {
  adamw_pass<T, T>(exec, step, gradient, parameter, m, v, nullptr);
}

void adamw(const Exec& exec, const AdamwStep& step, View1<const float> gradient, View1<float> parameter, View1<float> m,
           View1<float> v, View1<bf16> weight) {
  ATOLL_REQUIRE(weight.extent(0) == parameter.extent(0));
  adamw_pass(exec, step, gradient, parameter, m, v, weight.data());
}

template <class T>
void sgd(const Exec& exec, double lr, double weight_decay, double gradient_scale, View1<const T> gradient,
         View1<T> parameter) {
  sgd_pass<T, T>(exec, lr, weight_decay, gradient_scale, gradient, parameter, nullptr);
}

void sgd(const Exec& exec, double lr, double weight_decay, double gradient_scale, View1<const float> gradient,
         View1<float> parameter, View1<bf16> weight) {
  ATOLL_REQUIRE(weight.extent(0) == parameter.extent(0));
  sgd_pass(exec, lr, weight_decay, gradient_scale, gradient, parameter, weight.data());
}

#define ATOLL_INSTANTIATE(T)                                                                           \
  template void adamw<T>(const Exec&, const AdamwStep&, View1<const T>, View1<T>, View1<T>, View1<T>); \
  template void sgd<T>(const Exec&, double, double, double, View1<const T>, View1<T>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
#undef ATOLL_INSTANTIATE

}  // namespace atl
