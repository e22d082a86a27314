/// Valid and invalid UTF-8. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/utf8.hpp"

#include <cstring>

namespace atl {

namespace {

/// Bytes of the valid character at the start of `text`; 0 where there is none. RFC 3629.
std::size_t valid_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = utf8_length(text[0]);
  if (text.size() < length) return 0;
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

void Utf8Reader::feed(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (needed_ > 0 && byte >= low_ && byte <= high_) {
      waiting_.push_back(c);
      low_ = 0x80, high_ = 0xbf;
      if (--needed_ == 0) {
        out += waiting_;
        waiting_.clear();
      }
    } else {
      if (needed_ > 0) invalid(offset_ - waiting_.size(), out);  // the byte itself starts afresh
      start(byte, out);
    }
    ++offset_;
  }
}

void Utf8Reader::finish(std::string& out) {
  if (needed_ > 0) invalid(offset_ - waiting_.size(), out);
}

void Utf8Reader::start(unsigned char byte, std::string& out) {
  if (byte > 0 && byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  // The second byte's range excludes overlong forms (e0, f0), surrogates (ed) and what lies above U+10FFFF (f4).
  low_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
  high_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
  needed_ = byte >= 0xc2 && byte <= 0xdf ? 1 : byte >= 0xe0 && byte <= 0xef ? 2 : byte >= 0xf0 && byte <= 0xf4 ? 3 : 0;
  if (needed_ > 0) {
    waiting_.push_back(static_cast<char>(byte));
  } else {
    has_zero_byte_ = has_zero_byte_ || byte == 0;
    invalid(offset_, out);
  }
}

void Utf8Reader::invalid(std::uint64_t offset, std::string& out) {
  if (!first_invalid_) first_invalid_ = offset;
  out += "\xef\xbf\xbd";
  waiting_.clear();
  needed_ = 0;
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t eight;
    if (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const std::size_t length = valid_character(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t good = first_invalid_utf8(text).value_or(text.size());
    out += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    Utf8Reader reader;  // of the invalid sequence: its bytes up to the next that can start a character
    std::size_t length = 1;
    while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) ++length;
    reader.feed(text.substr(0, length), out);
    reader.finish(out);
    text.remove_prefix(length);
  }
  return out;
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  }
}

}  // namespace atl
