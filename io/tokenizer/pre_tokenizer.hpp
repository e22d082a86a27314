/// `pre_tokenizer` of tokenizer.json: cutting text into words. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokenizer/json_object.hpp"
#include "io/tokenizer/pattern.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// What becomes of the matches of a Split; the names are those of tokenizer.json.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Split, Digits, ByteLevel, Metaspace and Sequence. ByteLevel comes last; then a word is a row of bytes.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(const JsonObject& object) { add(object); }

  bool byte_level() const { return byte_level_; }  ///< ends in ByteLevel
  bool empty() const { return steps_.empty(); }    ///< text is a single word

  /// What one thread needs.
  struct Scratch {
    PatternScratch pattern;
    std::vector<std::string> text;  ///< of a step that changes it
  };
  using Visit = std::function<void(std::string_view word)>;
  /// Calls `visit` with the words of a part of the text, none of them empty, in order. `at_start`: the part begins
  /// where the document does.
  void split(std::string_view text, bool at_start, Scratch& scratch, const Visit& visit) const;

 private:
  enum class Kind { split, prefix_space, metaspace };
  enum class Prepend { always, first, never };
  struct Step {
    Kind kind = Kind::split;
    std::vector<Pattern> pattern;  // one, of split
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;      // of split: what is between the matches counts as a match
    std::string replacement;  // of metaspace
    Prepend prepend = Prepend::never;
    bool cut = true;  // of metaspace: a word begins at each replacement
  };
  struct Part {
    TextRange range;
    bool match;
  };
  void add(const JsonObject& object);
  void add_metaspace(const JsonObject& object);
  void add_regex(const std::string& regex, SplitBehavior behavior, const std::string& where);
  void run(std::size_t step, std::string_view text, bool at_start, Scratch& scratch, const Visit& visit) const;
  void run_split(std::size_t step, std::string_view text, bool at_start, Scratch& scratch, const Visit& visit) const;
  void run_metaspace(std::size_t step, std::string_view text, bool at_start, Scratch& scratch,
                     const Visit& visit) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace atl
