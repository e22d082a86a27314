/// `normalizer` of tokenizer.json: changes of the text before it is split. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokenizer/json_object.hpp"
#include "io/tokenizer/pattern.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// NFC, Prepend, Replace (a text or a regular expression) and Sequence.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const JsonObject& object) { add(object); }

  bool empty() const { return steps_.empty(); }
  /// The normalised form of valid UTF-8 `text`: `text` itself, or in `buffer`. A part is normalised by itself, so that
  /// Prepend puts its text before each of them; empty text stays empty.
  std::string_view apply(std::string_view text, PatternScratch& scratch, std::string& buffer) const;

 private:
  enum class Kind { nfc, prepend, replace };
  struct Step {
    Kind kind;
    std::string content;
    std::vector<Pattern> pattern;  // one, of replace
  };
  void add(const JsonObject& object);

  std::vector<Step> steps_;
};

/// Unicode's normalisation form C of valid UTF-8.
std::string nfc(std::string_view text);

/// The pattern {"String": ...} or {"Regex": ...} at a key.
Pattern read_pattern(const JsonObject& object, const char* key);

}  // namespace atl
