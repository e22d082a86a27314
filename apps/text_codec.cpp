/// SPDX-License-Identifier: Apache-2.0
#include "apps/text_codec.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <sstream>

namespace atl {

namespace {

std::vector<std::int32_t> parse_ids(const std::string& text, std::int64_t vocab_size) {
  std::vector<std::int32_t> tokens;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocab_size)
      throw ConfigError(
          fmt::format("prompt: '{}' is not a token id in [0, {}), which --tokenizer ids asks for", word, vocab_size));
    tokens.push_back(id);
  }
  return tokens;
}

TextCodec byte_codec(std::int64_t vocab_size) {
  if (vocab_size < ByteTokenizer::vocab_size)
    throw ConfigError(
        fmt::format("--tokenizer bytes has {} tokens, the model {}: it learnt another one; --tokenizer ids "
                    "takes and prints token ids",
                    ByteTokenizer::vocab_size, vocab_size));
  const auto encode = [](const std::string& text) {
    std::vector<std::int32_t> tokens{ByteTokenizer::begin_of_document};
    ByteTokenizer::append(text, tokens);
    return tokens;
  };
  const auto decode = [](std::span<const std::int32_t> tokens) {
    Utf8Reader reader;
    std::string text;
    for (const std::int32_t token : tokens)
      if (token < 256) reader.feed(std::string(1, static_cast<char>(token)), text);
    reader.finish(text);
    return text;
  };
  return {{ByteTokenizer::end_of_document}, encode, decode};
}

TextCodec tokenizer_codec(const std::string& path, std::int64_t vocab_size) {
  const auto tokenizer = std::make_shared<const Tokenizer>(Tokenizer::read(path));
  if (tokenizer->vocab_size() > vocab_size)
    throw ConfigError(fmt::format("--tokenizer {}: has {} tokens, the model {}: it learnt another one", path,
                                  tokenizer->vocab_size(), vocab_size));
  const std::vector<std::int32_t> ends = tokenizer->end_tokens();
  const auto encode = [tokenizer, ends](const std::string& text) {
    std::vector<std::int32_t> tokens;
    if (const auto begin = tokenizer->begin_of_document()) tokens.push_back(*begin);
    Encoder(*tokenizer).append(text, tokens);
    // A text from nothing begins after the end of another one.
    if (tokens.empty() && !ends.empty()) tokens.push_back(ends.front());
    return tokens;
  };
  const auto decode = [tokenizer](std::span<const std::int32_t> tokens) {
    std::vector<std::int32_t> known;
    for (const std::int32_t token : tokens)
      if (token < tokenizer->vocab_size()) known.push_back(token);
    return tokenizer->decode(known, SpecialTokens::leave_out);
  };
  return {ends, encode, decode};
}

bool ends_unfinished(const std::string& text) {
  constexpr std::string_view mark = "\xef\xbf\xbd";
  return text.size() >= mark.size() && text.compare(text.size() - mark.size(), mark.size(), mark) == 0;
}

}  // namespace

TextCodec make_text_codec(const std::string& name, std::int64_t vocab_size) {
  if (name == ByteTokenizer::name) return byte_codec(vocab_size);
  if (name != "ids") {
    if (!std::filesystem::is_regular_file(name))
      throw ConfigError(fmt::format("--tokenizer {}: no such file; give bytes, ids, or a tokenizer.json", name));
    return tokenizer_codec(name, vocab_size);
  }
  const auto decode = [](std::span<const std::int32_t> tokens) {
    std::string text;
    for (const std::int32_t token : tokens) text += std::to_string(token) + " ";
    return text;
  };
  return {{}, [vocab_size](const std::string& text) { return parse_ids(text, vocab_size); }, decode};
}

TextStream::TextStream(const TextCodec& codec, std::vector<std::int32_t> prompt)
    : codec_(codec), tokens_(std::move(prompt)), told_(tokens_.size()) {}

std::string TextStream::take() {
  const std::span<const std::int32_t> all(tokens_);
  const std::string before = codec_.decode(all.subspan(begin_, told_ - begin_));
  const std::string with = codec_.decode(all.subspan(begin_));
  begin_ = told_;
  told_ = tokens_.size();
  return with.size() > before.size() ? with.substr(before.size()) : "";
}

std::string TextStream::add(std::int32_t token) {
  tokens_.push_back(token);
  return ends_unfinished(codec_.decode(std::span<const std::int32_t>(tokens_).subspan(begin_))) ? "" : take();
}

std::string TextStream::finish() { return told_ < tokens_.size() ? take() : ""; }

}  // namespace atl
