/// Oniguruma's regular expressions in PCRE2's words. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/tokenizer/pattern.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace atl {

namespace {

// White_Space of Unicode. PCRE2's \s has U+180E as well.
constexpr const char* white_space =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Properties that both libraries know by the same name.
constexpr std::array properties{
    "L",   "Ll",       "Lm",       "Lo",     "Lt",    "Lu",    "M",      "Mc",     "Me",   "Mn",     "N",
    "Nd",  "Nl",       "No",       "P",      "Pc",    "Pd",    "Pe",     "Pf",     "Pi",   "Po",     "Ps",
    "S",   "Sc",       "Sk",       "Sm",     "So",    "Z",     "Zl",     "Zp",     "Zs",   "Han",    "Hiragana",
    "Lao", "Katakana", "Bopomofo", "Hangul", "Latin", "Greek", "Arabic", "Hebrew", "Thai", "Common", "Cyrillic"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; }

/// Letters that Oniguruma, where case does not count, also finds as one character: German's sharp s, and ligatures.
bool folds_together(char first, char second) {
  return (first == 's' && (second == 's' || second == 't')) ||
         (first == 'f' && (second == 'f' || second == 'i' || second == 'l'));
}

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    while (i_ < in_.size()) {
      const char c = in_[i_];
      if (c == '(') {
        group();
        continue;
      }
      if (c == ')') {
        close_group();
        continue;
      }
      const char before = std::exchange(letter_before_, lower(c));
      if (caseless()) {
        if (folds_together(before, lower(c))) refuse_caseless(std::string{before, lower(c)});
        if (static_cast<unsigned char>(c) >= 0x80) refuse_caseless("a letter beyond ASCII");
      }
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        character_class();
      } else if (c == '{') {
        repeat();
      } else if (c == '^' || c == '$') {
        refuse(std::string(1, c));
      } else {
        out_ += c;
        ++i_;
      }
    }
    out_.append(groups_.front().switched, ')');
    return std::move(out_);
  }

 private:
  struct Group {
    bool caseless;
    std::size_t switched;  // how many (?i) in it, each of them a group of PCRE2's that ends with this one
  };

  bool caseless() const { return groups_.back().caseless; }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format("{}: the regular expression {} has '{}' at byte {}, which is not supported", where_,
                                in_, what, i_));
  }
  /// Where case does not count, Oniguruma finds several characters for one and one for several, PCRE2 does not.
  [[noreturn]] void refuse_caseless(const std::string& what) const { refuse(what + " under (?i)"); }
  char peek(std::size_t ahead) const { return i_ + ahead < in_.size() ? in_[i_ + ahead] : '\0'; }
  bool next_is(std::string_view word) const { return in_.substr(i_, word.size()) == word; }

  void escape(bool in_class) {
    const char c = peek(1);
    const std::string both = fmt::format("\\{}", c);
    if (c == 's' || (c == 'S' && !in_class)) {
      out_ += in_class ? white_space : fmt::format("[{}{}]", c == 'S' ? "^" : "", white_space);
      i_ += 2;
    } else if (c == 'd' || c == 'D') {
      if (caseless() && in_class && c == 'D') refuse_caseless(both);
      out_ += c == 'd' ? "\\p{Nd}" : "\\P{Nd}";
      i_ += 2;
    } else if (c == 'p' || c == 'P') {
      const std::size_t close = in_.find('}', i_);
      if (peek(2) != '{' || close == std::string_view::npos) refuse(both);
      const std::string_view name = in_.substr(i_ + 3, close - i_ - 3);
      if (std::find(properties.begin(), properties.end(), name) == properties.end())
        refuse(fmt::format("{}{{{}}}", both, name));
      if (caseless() && (in_class || name == "Ll" || name == "Lt" || name == "Lu"))
        refuse_caseless(fmt::format("{}{{{}}}", both, name));
      out_ += in_.substr(i_, close + 1 - i_);
      i_ = close + 1;
    } else if (c == 'u') {
      const std::string_view digits = in_.substr(std::min(i_ + 2, in_.size()), 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
        refuse(both);
      if (caseless()) refuse_caseless(both);
      out_ += fmt::format("\\x{{{}}}", digits);
      i_ += 6;
    } else if (c == 'n' || c == 'r' || c == 't' || c == 'f') {
      out_ += both;
      i_ += 2;
    } else if (c == '\0' || is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80) {
      refuse(both);
    } else {
      out_ += both;
      i_ += 2;
    }
  }

  void character_class() {
    out_ += '[';
    ++i_;
    if (peek(0) == '^') out_ += '^', ++i_;
    if (peek(0) == ']') refuse("[]");
    while (peek(0) != ']') {
      if (i_ >= in_.size()) refuse("[ without ]");
      if (peek(0) == '[') refuse("[ inside [");
      if (next_is("&&")) refuse("&&");
      if (peek(0) == '\\') {
        escape(true);
      } else {
        if (caseless() && static_cast<unsigned char>(peek(0)) >= 0x80) refuse_caseless("a letter beyond ASCII");
        out_ += in_[i_++];
      }
    }
    out_ += ']';
    ++i_;
  }

  void group() {
    if (peek(1) != '?') {
      if (peek(1) == '*') refuse("(*");  // verbs are PCRE2's own
      groups_.push_back({caseless(), 0});
      out_ += '(';
      ++i_;
      return;
    }
    if (next_is("(?i)")) {  // in Oniguruma up to the end of the group, alternatives included: a(?i)b|c is a(?i:b|c)
      groups_.back() = {true, groups_.back().switched + 1};
      out_ += "(?i:";
      i_ += 4;
      return;
    }
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (!next_is(kind)) continue;
      groups_.push_back({caseless() || kind == "(?i:", 0});
      out_ += kind;
      i_ += kind.size();
      return;
    }
    refuse(std::string(in_.substr(i_, 3)));
  }

  void close_group() {
    if (groups_.size() == 1) refuse(") without (");
    out_.append(groups_.back().switched + 1, ')');
    groups_.pop_back();
    ++i_;
  }

  /// {n}, {n,} and {n,m}; Oniguruma takes any other brace as itself, and has no possessive form of these.
  void repeat() {
    std::size_t length = 1;
    while (is_digit(peek(length))) ++length;
    const bool counted = length > 1;
    if (counted && peek(length) == ',') ++length;
    while (counted && is_digit(peek(length))) ++length;
    if (!counted || peek(length) != '}') {
      if (peek(1) == ',') refuse("{,");
      out_ += "\\{";
      ++i_;
      return;
    }
    out_ += in_.substr(i_, length + 1);
    i_ += length + 1;
    if (peek(0) == '+' || peek(0) == '?') refuse(fmt::format("}}{}", peek(0)));
  }

  std::string_view in_;
  const std::string& where_;
  std::size_t i_ = 0;
  std::string out_;
  std::vector<Group> groups_{{false, 0}};  // open now; the first is the whole pattern
  char letter_before_ = '\0';
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace atl
