/// Where documents begin in a source of tokens. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_source.hpp"
#include "model/batch.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace atl {

/// data.packing and data.end_of_document of a run.
struct DocumentOptions {
  Packing packing = Packing::concatenate;
  std::optional<std::int64_t> end_of_document;  ///< id of the token that ends a document, of sources without an index
  bool operator==(const DocumentOptions&) const = default;
};

/// The source's own index where it has one (atoll's token files, Megatron); else a document begins behind each token
/// that ends one. Memory does not grow with the source: of its index the entries that every search compares with stay.
class DocumentIndex {
 public:
  /// DataError for a source without an index where no such token is given, or where its first 2^24 tokens have none.
  DocumentIndex(std::shared_ptr<const TokenSource> source, std::optional<std::int64_t> end_of_document);

  /// Positions in [begin + 1, begin + window.size()) of the source where a document begins, less `begin`, ascending,
  /// each once. window: the tokens [begin, begin + window.size()).
  std::vector<std::size_t> begins(std::int64_t begin, std::span<const std::int32_t> window) const;

 private:
  void require_end_of_document() const;
  std::int64_t search(std::int64_t token) const;
  std::uint64_t offset(std::int64_t document) const;

  std::shared_ptr<const TokenSource> source_;
  std::optional<std::int64_t> end_of_document_;  // none: by the index
  mutable std::unordered_map<std::int64_t, std::uint64_t> known_;
};

}  // namespace atl
