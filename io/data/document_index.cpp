/// SPDX-License-Identifier: Apache-2.0
#include "io/data/document_index.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace atl {

namespace {

constexpr std::int64_t searched = std::int64_t{1} << 24;  // tokens for the first one that ends a document
constexpr std::int64_t block = 512;                       // offsets of one read
constexpr std::size_t most_known = std::size_t{1} << 16;  // offsets that are kept

}  // namespace

DocumentIndex::DocumentIndex(std::shared_ptr<const TokenSource> source, std::optional<std::int64_t> end_of_document)
    : source_(std::move(source)) {
  if (source_->documents() >= 0) return;
  if (!end_of_document)
    throw DataError(
        fmt::format("{}: does not say where its documents begin, as data.packing = \"documents\" needs; give "
                    "data.end_of_document (--end-of-document), the id of the token that ends each, or use "
                    "data.packing = \"concatenate\"",
                    source_->name()));
  end_of_document_ = end_of_document;
  require_end_of_document();
}

void DocumentIndex::require_end_of_document() const {
  const std::int64_t end = std::min(searched, source_->tokens());
  std::vector<std::int32_t> ids;
  for (std::int64_t begin = 0; begin < end; begin += static_cast<std::int64_t>(ids.size())) {
    ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(1 << 16, end - begin)));
    source_->read(begin, ids);
    if (std::find(ids.begin(), ids.end(), *end_of_document_) != ids.end()) return;
  }
  throw DataError(
      fmt::format("{}: has no token {} (data.end_of_document) among its first {} tokens; give the id of the token that "
                  "ends each document: atoll data inspect --end-of-document ID counts them",
                  source_->name(), *end_of_document_, end));
}

/// Where document `document` begins. The first halvings of all searches compare with the same ones, which are kept.
std::uint64_t DocumentIndex::offset(std::int64_t document) const {
  if (const auto found = known_.find(document); found != known_.end()) return found->second;
  std::uint64_t value[1];
  source_->read_offsets(document, value);
  if (known_.size() < most_known) known_[document] = value[0];
  return value[0];
}

/// A document that begins at or before `token`, at most `block` before the first one that begins behind it.
std::int64_t DocumentIndex::search(std::int64_t token) const {
  std::int64_t low = 0, high = source_->documents();
  while (high - low > block) {
    const std::int64_t middle = low + (high - low) / 2;
    (offset(middle) <= static_cast<std::uint64_t>(token) ? low : high) = middle;
  }
  return low;
}

std::vector<std::size_t> DocumentIndex::begins(std::int64_t begin, std::span<const std::int32_t> window) const {
  std::vector<std::size_t> found;
  if (end_of_document_) {
    for (std::size_t i = 1; i < window.size(); ++i)
      if (window[i - 1] == *end_of_document_) found.push_back(i);
    return found;
  }
  const auto first = static_cast<std::uint64_t>(begin), end = first + window.size();
  std::vector<std::uint64_t> offsets;
  for (std::int64_t at = search(begin); at < source_->documents(); at += block) {
    offsets.resize(static_cast<std::size_t>(std::min(block, source_->documents() - at)));
    source_->read_offsets(at, offsets);
    for (const std::uint64_t offset : offsets) {
      if (offset >= end) return found;
      const auto relative = static_cast<std::size_t>(offset - first);
      // Documents without tokens begin where the next one does.
      if (offset > first && (found.empty() || found.back() != relative)) found.push_back(relative);
    }
  }
  return found;
}

}  // namespace atl
