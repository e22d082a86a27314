/// Bytes to tokens and back; UTF-8. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/tokenizer.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

namespace atl {

void ByteTokenizer::append(std::string_view text, std::vector<std::int32_t>& tokens) {
  tokens.reserve(tokens.size() + text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
}

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size() + 2);
  tokens.push_back(begin_of_document);
  append(text, tokens);
  tokens.push_back(end_of_document);
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      throw DataError(fmt::format("token {} at position {} is outside the vocabulary of {} of the tokenizer '{}'",
                                  tokens[i], i, vocab_size, name));
    }
    if (tokens[i] < 256) text.push_back(static_cast<char>(tokens[i]));
  }
  return text;
}

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

}  // namespace atl
