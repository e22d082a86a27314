/// Regular expressions of tokenizers, through PCRE2. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace atl {

/// [begin, end) of a text, in bytes.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

/// What one thread needs to match any pattern.
class PatternScratch {
 public:
  PatternScratch();

 private:
  friend class Pattern;
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
};

/// A compiled pattern; threads may share it.
class Pattern {
 public:
  /// A regular expression in Oniguruma's Ruby syntax, the one of tokenizer.json. It is translated: `\s` means
  /// White_Space, `\d` Nd, properties are those of Unicode. DataError, which starts with `where`, for what has another
  /// meaning in PCRE2 (`\h`, `\w`, `\b`, `^`, `$`, references, nested classes), and for a pattern that matches nothing.
  static Pattern regex(std::string_view oniguruma, const std::string& where);
  /// This text.
  static Pattern literal(std::string_view text, const std::string& where);

  /// The first match in valid UTF-8 `text` at or after `from`. DataError when the pattern takes too many steps.
  std::optional<TextRange> find(PatternScratch& scratch, std::string_view text, std::size_t from) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  Pattern() = default;
  std::string where_, literal_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;  // null: the literal
  bool compiled_to_machine_code_ = false;
};

/// The same expression in PCRE2's syntax (with UTF, UCP and newline LF); see Pattern::regex.
std::string translate_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace atl
