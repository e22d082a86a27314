/// The tokenizers of Hugging Face's tokenizer.json, for byte-pair encodings. SPDX-License-Identifier: Apache-2.0
///
/// Read are byte-level models (GPT-2, Llama 3, SmolLM) and SentencePiece-like ones with byte fallback (Llama 2). Tokens
/// are those of the `tokenizers` library, one for one; what is not supported is refused by the key that asks for it.
#pragma once

#include "io/tokenizer/added_tokens.hpp"
#include "io/tokenizer/bpe.hpp"
#include "io/tokenizer/decoder.hpp"
#include "io/tokenizer/normalizer.hpp"
#include "io/tokenizer/pre_tokenizer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// What decoding does with tokens that are marked special.
enum class SpecialTokens { keep, leave_out };

/// Immutable: threads may share one, each with an Encoder of its own.
class Tokenizer {
 public:
  /// DataErrors name the file and the key.
  static Tokenizer read(const std::string& path);
  /// The bytes of such a file, for parse. DataError where they cannot be read.
  static std::string read_file(const std::string& path);
  /// `name` stands for the file in messages.
  static Tokenizer parse(std::string_view json, const std::string& name);

  std::int64_t vocab_size() const { return static_cast<std::int64_t>(tokens_.size()); }  ///< the largest id + 1
  /// "xxh3-64:" and 16 hexadecimal digits, of the bytes of the file.
  const std::string& checksum() const { return checksum_; }
  /// The id of a token as tokenizer.json writes it ("<|endoftext|>"), or nothing.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// The token of an id as tokenizer.json writes it. DataError outside of the vocabulary.
  const std::string& token(std::int64_t id) const;
  /// Tokens that the post-processor's template puts before and after a text; encoding never adds them by itself.
  std::optional<std::int32_t> begin_of_document() const { return begin_; }
  std::optional<std::int32_t> end_of_document() const { return end_; }
  /// Tokens after which nothing comes any more: the template's, and "<|end_of_text|>", "</s>", "<|endoftext|>" where
  /// they are added tokens; in an ordinary vocabulary they are text.
  std::vector<std::int32_t> end_tokens() const;
  /// Names of the tokens marked special, for messages.
  std::vector<std::string> special_tokens() const;

  /// Valid UTF-8; bytes that are no characters become U+FFFD. DataError for an id outside of the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens, SpecialTokens special) const;
  /// Bytes of text that the token stands for as the first one of a document.
  std::int64_t bytes_at_start(std::int32_t id) const {
    return static_cast<std::int64_t>(decoder_.bytes_at_start(token(id)));
  }

 private:
  friend class Encoder;
  Tokenizer(const JsonObject& object, std::string checksum);
  void read_added_tokens(const JsonObject& object);
  void read_post_processor(const JsonObject& object);
  void read_template(const JsonObject& object);
  void name_tokens(const JsonObject& object);

  std::string name_, checksum_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  Decoder decoder_;
  std::vector<AddedToken> added_;
  AddedTokenFinder as_written_, as_normalized_;
  std::vector<std::string> tokens_;
  std::vector<bool> special_;
  std::optional<std::int32_t> begin_, end_;
};

/// Text to tokens, for one thread. Refers to the tokenizer, which must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  /// Appends the tokens of a whole document, without tokens for its begin and end. Tokens that the text spells out
  /// ("<|endoftext|>") are recognised, as `tokenizers` does. DataError where the text is not valid UTF-8.
  void append(std::string_view text, std::vector<std::int32_t>& tokens);
  std::vector<std::int32_t> encode(std::string_view text) {
    std::vector<std::int32_t> tokens;
    append(text, tokens);
    return tokens;
  }

  /// Calls `visit` with the words that the model would encode; tokens that are spelled out are passed over.
  void words(std::string_view text, const PreTokenizer::Visit& visit);

 private:
  void walk(std::string_view text, const PreTokenizer::Visit& word, const std::function<void(std::int32_t)>& added);

  const Tokenizer* tokenizer_;
  PreTokenizer::Scratch scratch_;
  BpeModel::Scratch words_;
  std::string normalized_;
};

}  // namespace atl
