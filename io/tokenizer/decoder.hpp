/// `decoder` of tokenizer.json: tokens back to text. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokenizer/json_object.hpp"

#include <string>
#include <vector>

namespace atl {

/// ByteLevel, Replace (of a text), ByteFallback, Fuse, Strip, Metaspace and Sequence. Without any, tokens are joined by
/// spaces, as the `tokenizers` library does.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(const JsonObject& object) { add(object); }

  /// The text of tokens, as tokenizer.json writes them. Valid UTF-8: bytes that are no characters become U+FFFD.
  std::string decode(std::vector<std::string> tokens) const;
  /// Bytes of text that a token stands for as the first one of a document; it may end inside a character.
  std::size_t bytes_at_start(const std::string& token) const;

 private:
  enum class Kind { byte_level, replace, byte_fallback, fuse, strip, metaspace };
  struct Step {
    Kind kind;
    std::string from, to;                   // replace; strip: the character; metaspace: the replacement
    std::int64_t at_start = 0, at_end = 0;  // strip: how many at most
    bool drops_first = false;               // metaspace: the first token loses its replacements
  };
  void add(const JsonObject& object);
  static std::vector<std::string> apply(const Step& step, std::vector<std::string> tokens);

  std::vector<Step> steps_;
};

}  // namespace atl
