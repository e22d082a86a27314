/// SPDX-License-Identifier: Apache-2.0
#include "io/data/token_statistics.hpp"

#include <fmt/core.h>

#include <bit>
#include <cmath>

namespace atl {

namespace {

constexpr std::int64_t piece = 1 << 21;  // tokens read at once

void count_documents(const TokenSource& source, LengthHistogram& lengths) {
  std::vector<std::uint64_t> offsets;
  for (std::int64_t first = 0; first < source.documents(); first += piece) {
    offsets.resize(static_cast<std::size_t>(std::min(piece, source.documents() - first)) + 1);
    source.read_offsets(first, offsets);
    for (std::size_t i = 1; i < offsets.size(); ++i) {
      if (offsets[i] < offsets[i - 1])
        throw DataError(fmt::format("{}: document {} ends before it begins", source.name(),
                                    first + static_cast<std::int64_t>(i) - 1));
      lengths.add(static_cast<std::int64_t>(offsets[i] - offsets[i - 1]));
    }
  }
}

}  // namespace

// From 2^16 on, 128 buckets for each power of two.
void LengthHistogram::add(std::int64_t length) {
  std::int64_t at = length;
  if (length >= exact) {
    const int power = std::bit_width(static_cast<std::uint64_t>(length)) - 1;  // 2^power <= length
    at = exact + (power - 16) * steps + ((length >> (power - 7)) - steps);
  }
  ++counts_[static_cast<std::size_t>(at)];
  least_ = count_ == 0 ? length : std::min(least_, length);
  most_ = std::max(most_, length);
  ++count_;
  sum_ += length;
}

std::int64_t LengthHistogram::quantile(double q) const {
  const double share = q * static_cast<double>(count_) * (1 - 1e-14);  // 0.28 * 10000 is a little above 2800
  const auto wanted = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(share)));
  std::int64_t seen = 0;
  for (std::size_t at = 0; at < counts_.size(); ++at) {
    seen += counts_[at];
    if (seen < wanted) continue;
    const auto place = static_cast<std::int64_t>(at);
    if (place < exact) return place;
    const std::int64_t power = (place - exact) / steps + 16;
    return std::min(most_, (steps + (place - exact) % steps) << (power - 7));
  }
  return 0;
}

TokenStatistics token_statistics(const TokenSource& source, std::optional<std::int32_t> end_of_document,
                                 const std::function<void(std::int64_t done)>& progress) {
  TokenStatistics found;
  found.tokens = source.tokens();
  const bool by_token = source.documents() < 0 && end_of_document.has_value();
  if (source.documents() >= 0 || by_token) found.documents.emplace();
  if (source.documents() >= 0) count_documents(source, *found.documents);
  std::vector<std::int32_t> ids;
  std::vector<bool> seen;
  std::int64_t start = 0;
  for (std::int64_t begin = 0; begin < found.tokens; begin += piece) {
    ids.resize(static_cast<std::size_t>(std::min(piece, found.tokens - begin)));
    source.read(begin, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t id = ids[i], position = begin + static_cast<std::int64_t>(i);
      if (id > found.largest.id) found.largest = {id, position};
      if (found.smallest < 0 || id < found.smallest) found.smallest = id;
      if (static_cast<std::size_t>(id) >= seen.size()) seen.resize(static_cast<std::size_t>(id) + 1 + seen.size() / 2);
      if (!seen[static_cast<std::size_t>(id)]) ++found.distinct, seen[static_cast<std::size_t>(id)] = true;
      if (by_token && id == *end_of_document) {
        found.documents->add(position + 1 - start);
        start = position + 1;
      }
    }
    if (progress) progress(begin + static_cast<std::int64_t>(ids.size()));
  }
  if (by_token && start < found.tokens) {
    found.documents->add(found.tokens - start);
    found.open_end = true;
  }
  return found;
}

}  // namespace atl
