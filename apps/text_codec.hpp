/// Prompts to tokens and tokens to text, for `atoll generate`. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace atl {

/// A tokenizer as generation uses it.
struct TextCodec {
  std::vector<std::int32_t> end_tokens;  ///< those that end a document, of the tokenizer itself
  /// A prompt: the text, begun as a document but not ended. ConfigError where it is not text of this kind.
  std::function<std::vector<std::int32_t>(const std::string&)> encode;
  /// Valid UTF-8: bytes that are no characters become U+FFFD. Special tokens, and ids above the vocabulary, are left
  /// out.
  std::function<std::string(std::span<const std::int32_t>)> decode;
};

/// "bytes"; "ids": token ids as decimal numbers; or the path of a tokenizer.json. `vocab_size` is that of the model,
/// which must hold all tokens. ConfigError or DataError otherwise.
TextCodec make_text_codec(const std::string& name, std::int64_t vocab_size);

/// The text of a sequence as it grows, in whole characters.
class TextStream {
 public:
  /// `prompt`: the tokens before, whose text does not belong to it.
  TextStream(const TextCodec& codec, std::vector<std::int32_t> prompt);
  /// What the text is longer by; empty where the token is part of a character.
  std::string add(std::int32_t token);
  /// What is left at its end.
  std::string finish();

 private:
  std::string take();

  const TextCodec& codec_;
  std::vector<std::int32_t> tokens_;
  // tokens_[begin_, told_) have been told; they are decoded again, as the text of a token may depend on those before.
  std::size_t begin_ = 0, told_;
};

}  // namespace atl
