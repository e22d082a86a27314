/// One micro-batch of one rank: tokens and targets. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace atl {

/// A target that does not count: padding, or a token the loss ignores.
inline constexpr std::int32_t ignored_target = -1;

/// How the documents of the data share sequences. concatenate: one after another, and attention goes back to the start
/// of the sequence. documents: attention, and so every number, is that of each document alone.
enum class Packing { concatenate, documents };

/// B sequences of T positions, row-major (B, T). targets[i] is the token that follows tokens[i], or ignored_target.
/// Host memory: io fills it, the model copies it to the device.
struct Batch {
  std::int64_t sequences = 0;  ///< B
  std::int64_t length = 0;     ///< T
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  /// Where in its sequence the document of tokens[i] begins (0 where that was before the sequence); never decreasing
  /// along a sequence. Empty with Packing::concatenate. A token's target is ignored where another document begins.
  std::vector<std::int32_t> document_starts;

  std::int64_t target_count() const {
    std::int64_t n = 0;
    for (const auto t : targets) n += t != ignored_target;
    return n;
  }
};

}  // namespace atl
