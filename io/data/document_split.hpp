/// Which documents are for evaluation. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/random.hpp"

#include <algorithm>
#include <cstdint>

namespace atl {

/// Which documents are for evaluation: a pure function of (seed, number), but that each side has one.
class DocumentSplit {
 public:
  /// Of `documents`; the only one, of `bytes`, is cut.
  DocumentSplit(double fraction, std::uint64_t seed, std::int64_t documents, std::int64_t bytes)
      : fraction_(fraction), key_(random_key(seed, "tokenize/split")) {
    if (fraction_ == 0) return;
    if (documents == 1) {
      cut_ = bytes - std::max<std::int64_t>(1, static_cast<std::int64_t>(fraction_ * static_cast<double>(bytes)));
      return;
    }
    std::int64_t lowest = 0, highest = 0, chosen = 0;
    for (std::int64_t i = 0; i < documents; ++i) {
      chosen += draw(i) < fraction_;
      if (draw(i) < draw(lowest)) lowest = i;
      if (draw(i) > draw(highest)) highest = i;
    }
    if (chosen == 0) exception_ = lowest;
    if (chosen == documents) exception_ = highest;
  }
  bool is_eval(std::int64_t document) const { return (draw(document) < fraction_) != (document == exception_); }
  /// The byte from which on the only document is for evaluation; -1: it is not cut.
  std::int64_t cut() const { return cut_; }

 private:
  double draw(std::int64_t document) const { return random_uniform(key_, static_cast<std::uint64_t>(document)); }

  double fraction_;
  std::uint64_t key_;
  std::int64_t exception_ = -1, cut_ = -1;
};

}  // namespace atl
