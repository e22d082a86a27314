/// One micro-batch of one rank: tokens and targets. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace atl {

/// A target that does not count: padding, or a token the loss ignores.
inline constexpr std::int32_t ignored_target = -1;

/// B sequences of T positions, row-major (B, T). targets[i] is the token that follows tokens[i], or ignored_target.
/// Host memory: io fills it, the model copies it to the device.
struct Batch {
  std::int64_t sequences = 0;  ///< B
  std::int64_t length = 0;     ///< T
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;

  std::int64_t target_count() const {
    std::int64_t n = 0;
    for (const auto t : targets) n += t != ignored_target;
    return n;
  }
};

}  // namespace atl
