/// Training a byte-level BPE. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokenizer/bpe.hpp"
#include "io/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace atl {

/// Counts the words of documents, then merges the most frequent pair of symbols again and again (arXiv:1508.07909);
/// among equals the one with the smaller ids. Words are those of Llama 3's pattern, except that digits stay alone, and
/// begin as bytes. The same documents, in any order, give the same file. It holds the tokens <|begin_of_text|> and
/// <|end_of_text|>, ids 0 and 1, then the 256 bytes, then the merges.
class BpeTrainer {
 public:
  static constexpr const char* begin_token = "<|begin_of_text|>";
  static constexpr const char* end_token = "<|end_of_text|>";

  BpeTrainer();

  /// ConfigError unless a vocabulary can have so many tokens.
  static void require_size(std::int64_t vocab_size);

  /// Counts the words of a document (or of a piece that ends where words do) of valid UTF-8.
  void add(std::string_view text);
  /// The tokenizer.json: `vocab_size` tokens, or fewer where no pair is left that occurs twice. ConfigError for less
  /// than 258 tokens, or without any text.
  std::string train(std::int64_t vocab_size) const;

 private:
  Tokenizer bytes_;  // without merges: it has the pattern
  Encoder encoder_;
  StringMap<std::uint64_t> words_;
};

}  // namespace atl
