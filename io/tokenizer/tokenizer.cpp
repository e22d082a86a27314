/// The way from text to tokens and back. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/tokenizer.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/core.h>

namespace atl {

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : added_) {
    if (added.content == token) return added.id;
  }
  const std::int32_t id = model_.id_of(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

const std::string& Tokenizer::token(std::int64_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw DataError(
        fmt::format("token {} is outside the vocabulary of {} of the tokenizer {}", id, vocab_size(), name_));
  }
  return tokens_[static_cast<std::size_t>(id)];
}

std::vector<std::string> Tokenizer::special_tokens() const {
  std::vector<std::string> names;
  for (const AddedToken& added : added_) {
    if (added.special) names.push_back(added.content);
  }
  return names;
}

std::vector<std::int32_t> Tokenizer::end_tokens() const {
  std::vector<std::int32_t> ends;
  if (end_) ends.push_back(*end_);
  for (const std::string_view name : {"<|end_of_text|>", "</s>", "<|endoftext|>"})
    for (const AddedToken& added : added_)
      if (added.content == name && added.id != end_) ends.push_back(added.id);
  return ends;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens, SpecialTokens special) const {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const std::int32_t id : tokens) {
    const std::string& text = token(id);
    const bool passed = text.empty() || (special == SpecialTokens::leave_out && special_[static_cast<std::size_t>(id)]);
    if (!passed) texts.push_back(text);
  }
  return decoder_.decode(std::move(texts));
}

void Encoder::walk(std::string_view text, const PreTokenizer::Visit& word,
                   const std::function<void(std::int32_t)>& added) {
  if (const auto invalid = first_invalid_utf8(text)) {
    throw DataError(fmt::format("byte {} of the text is not valid UTF-8", *invalid));
  }
  const Tokenizer& t = *tokenizer_;
  t.as_written_.split(text, [&](std::int32_t id, TextRange outer) {
    if (id >= 0) return added(id);
    const std::string_view part =
        t.normalizer_.apply(text.substr(outer.begin, outer.end - outer.begin), scratch_.pattern, normalized_);
    t.as_normalized_.split(part, [&](std::int32_t inner_id, TextRange inner) {
      if (inner_id >= 0) return added(inner_id);
      t.pre_tokenizer_.split(part.substr(inner.begin, inner.end - inner.begin), outer.begin + inner.begin == 0,
                             scratch_, word);
    });
  });
}

void Encoder::append(std::string_view text, std::vector<std::int32_t>& tokens) {
  walk(
      text, [&](std::string_view word) { tokenizer_->model_.encode(word, words_, tokens); },
      [&](std::int32_t id) { tokens.push_back(id); });
}

void Encoder::words(std::string_view text, const PreTokenizer::Visit& visit) {
  walk(text, visit, [](std::int32_t) {});
}

}  // namespace atl
