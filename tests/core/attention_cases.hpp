/// Problems of attention, and attention of host vectors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/attention.hpp"
#include "tests/core/host_values.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace atl::test {

using Shape = AttentionShape;

inline std::size_t rows(const Shape& n) { return n.sequences * n.length; }
inline std::size_t out_width(const Shape& n) { return n.query_heads * n.head_size; }
inline std::string text(const Shape& n) {
  return "B " + std::to_string(n.sequences) + " T " + std::to_string(n.length) + " H " + std::to_string(n.query_heads) +
         " K " + std::to_string(n.key_value_heads) + " D " + std::to_string(n.head_size);
}

template <class T>
struct Attended {
  std::vector<T> out;
  std::vector<Accumulator<T>> lse;
};

/// Empty, or for each row the first key that it sees.
using FirstKeys = std::vector<std::int32_t>;
inline View1<const std::int32_t> on_device(const FirstKeys& first_keys) {
  return first_keys.empty() ? View1<const std::int32_t>() : View1<const std::int32_t>(device(first_keys));
}

template <class T>
Attended<T> forward(const Shape& n, const std::vector<T>& qkv, const FirstKeys& first_keys = {}) {
  // NaN where nothing may be read.
  const auto out = device(std::vector<T>(rows(n) * out_width(n), T(nan<float>)), rows(n), out_width(n));
  const auto lse = device(std::vector<Accumulator<T>>(rows(n) * n.query_heads, nan<float>));
  attention<T>(Exec(), n, device(qkv, rows(n), n.width()), out, lse, on_device(first_keys));
  return {host(out), host(lse)};
}

template <class T>
std::vector<T> backward(const Shape& n, const std::vector<T>& qkv, const std::vector<T>& dout,
                        const FirstKeys& first_keys = {}) {
  const auto y = forward(n, qkv, first_keys);
  const auto dqkv = device(std::vector<T>(qkv.size(), T(nan<float>)), rows(n), n.width());
  const auto workspace = device(std::vector<Accumulator<T>>(attention_workspace<T>(n), nan<float>));
  attention_backward<T>(Exec(), n, device(qkv, rows(n), n.width()), device(y.out, rows(n), out_width(n)),
                        device(dout, rows(n), out_width(n)), device(y.lse), dqkv, workspace, on_device(first_keys));
  return host(dqkv);
}

template <class T>
std::vector<T> random_qkv(const Shape& n, double scale = 1) {
  return random_values<T>(1, rows(n) * n.width(), scale);
}
template <class T>
std::vector<T> random_dout(const Shape& n) {
  return random_values<T>(2, rows(n) * out_width(n));
}

/// Documents packed into sequences, as lengths that fill each one; none: every sequence is one document.
struct Packed {
  Shape shape;
  std::vector<std::vector<std::size_t>> documents;  // of each sequence

  FirstKeys first_keys() const {
    FirstKeys all;
    for (const auto& lengths : documents) {
      std::int32_t begin = 0;
      for (const std::size_t length : lengths) {
        all.insert(all.end(), length, begin);
        begin += static_cast<std::int32_t>(length);
      }
    }
    return all;
  }
};

}  // namespace atl::test
