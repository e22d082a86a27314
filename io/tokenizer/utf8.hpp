/// UTF-8: checking and mending text, walking over characters. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace atl {

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

/// The offset of the first byte that is not part of a valid character, if there is one. Zero bytes are valid here.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

/// `text` with every invalid sequence replaced by U+FFFD, as Utf8Reader does, but zero bytes stay.
std::string replace_invalid_utf8(std::string_view text);

/// Bytes of the character that starts with `first`, a valid start.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// The code point that starts at `position` of valid text.
inline char32_t code_point_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  switch (utf8_length(text[position])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
}

/// Where the character that ends before `position` (> 0) starts.
inline std::size_t previous_character(std::string_view text, std::size_t position) {
  --position;
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xc0) == 0x80) --position;
  return position;
}

void append_utf8(char32_t code_point, std::string& out);

}  // namespace atl
