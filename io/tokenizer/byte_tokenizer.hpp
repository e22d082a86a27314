/// The tokenizer of bytes. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// A byte of text is a token; two more mark where documents begin and end.
struct ByteTokenizer {
  static constexpr const char* name = "bytes";
  static constexpr std::int32_t begin_of_document = 256;
  static constexpr std::int32_t end_of_document = 257;
  static constexpr std::int64_t vocab_size = 258;

  /// Appends a token per byte, without marks, so that long documents can come in pieces.
  static void append(std::string_view text, std::vector<std::int32_t>& tokens);
  /// A whole document with its marks.
  static std::vector<std::int32_t> encode(std::string_view text);
  /// The text again; marks are left out. DataError for an id outside the vocabulary.
  static std::string decode(std::span<const std::int32_t> tokens);
};

}  // namespace atl
