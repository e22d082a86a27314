/// The byte-level tokenizer, and UTF-8 checks of its input. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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

/// Checks text for UTF-8 as it arrives, in pieces of any size: RFC 3629, thus no overlong forms, no surrogates, nothing
/// above U+10FFFF. A zero byte counts as invalid too: text has none, and most binary files do.
class Utf8Reader {
 public:
  /// Appends `bytes` to `out`, every invalid sequence replaced by U+FFFD (one per maximal part of a character, as the
  /// Unicode standard recommends). A character cut by the end of `bytes` waits for the next call.
  void feed(std::string_view bytes, std::string& out);
  /// The text ends here: a character that still waits is invalid.
  void finish(std::string& out);

  std::optional<std::uint64_t> first_invalid() const { return first_invalid_; }  ///< offset of its first byte
  bool has_zero_byte() const { return has_zero_byte_; }

 private:
  void invalid(std::uint64_t offset, std::string& out);
  void start(unsigned char byte, std::string& out);

  std::uint64_t offset_ = 0;          // of the next byte
  std::string waiting_;               // bytes of an unfinished character
  int needed_ = 0;                    // how many more it needs
  unsigned char low_ = 0, high_ = 0;  // range of the next of them
  std::optional<std::uint64_t> first_invalid_;
  bool has_zero_byte_ = false;
};

}  // namespace atl
