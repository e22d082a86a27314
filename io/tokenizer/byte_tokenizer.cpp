/// Bytes to tokens and back. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/byte_tokenizer.hpp"

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

}  // namespace atl
