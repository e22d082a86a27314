/// What token data hold: document lengths, ids. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_source.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace atl {

/// Counts of lengths, and their quantiles: exact below 65536, above it up to 1/128 (the smallest length that the count
/// may stand for). Constant memory.
class LengthHistogram {
 public:
  LengthHistogram() : counts_(exact + 48 * steps) {}
  void add(std::int64_t length);
  std::int64_t count() const { return count_; }
  std::int64_t least() const { return least_; }
  std::int64_t most() const { return most_; }
  double mean() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }
  /// The smallest length that at least the share q of all do not exceed; 0 where there are none.
  std::int64_t quantile(double q) const;

 private:
  static constexpr std::int64_t exact = 65536, steps = 128;
  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0, sum_ = 0, least_ = 0, most_ = 0;
};

struct TokenStatistics {
  std::int64_t tokens = 0;
  std::optional<LengthHistogram> documents;  ///< nothing: unknown
  bool open_end = false;                     ///< by end_of_document: the last document has no end
  LargestToken largest;
  std::int64_t smallest = -1, distinct = 0;  ///< ids
};

/// Reads everything. Documents are those that the source tells of, or else end with each token `end_of_document` where
/// that is given. `progress` is told tokens done. DataError for ids of 2^31 and more, and for offsets that decrease.
TokenStatistics token_statistics(const TokenSource& source, std::optional<std::int32_t> end_of_document,
                                 const std::function<void(std::int64_t done)>& progress = {});

}  // namespace atl
