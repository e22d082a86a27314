/// Normalisation, by utf8proc. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/normalizer.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/characters.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utf8proc.h>
#include <vector>

namespace atl {

namespace {

/// Characters that form C keeps and that never join the one before: most of what texts are made of.
bool is_inert(char32_t c) {
  return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x620 && c <= 0x64a) || (c >= 0x3400 && c <= 0x9fff) ||
         (c >= 0xac00 && c <= 0xd7a3) || (c >= 0x1f300 && c <= 0x1faff);
}

/// Decomposes, orders and composes. utf8proc's own ordering exchanges neighbours, which takes quadratic time on a long
/// run of marks; here it is a stable sort (Unicode 15, section 3.11, D109).
void append_nfc(std::string_view run, std::string& out) {
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(run.size());
  const auto checked = [](utf8proc_ssize_t result) {
    if (result < 0) throw Error(fmt::format("utf8proc: {}", utf8proc_errmsg(result)));
    return static_cast<std::size_t>(result);
  };
  for (std::size_t i = 0; i < run.size(); i += utf8_length(run[i])) {
    std::array<utf8proc_int32_t, 8> parts{};  // form D of one character has at most four
    const std::size_t count =
        checked(utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point_at(run, i)), parts.data(),
                                        static_cast<utf8proc_ssize_t>(parts.size()), options, nullptr));
    ATOLL_REQUIRE(count <= parts.size());
    code_points.insert(code_points.end(), parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count));
  }
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  const auto is_starter = [&](utf8proc_int32_t c) { return combining_class(c) == 0; };
  for (auto mark = code_points.begin(); mark != code_points.end();) {
    mark = std::find_if_not(mark, code_points.end(), is_starter);
    const auto end = std::find_if(mark, code_points.end(), is_starter);
    std::stable_sort(mark, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    mark = end;
  }
  const std::size_t composed =
      checked(utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), options));
  for (std::size_t i = 0; i < composed; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto length = utf8proc_encode_char(code_points[i], bytes.data());
    out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
  }
}

}  // namespace

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  if (c == 0x200c || c == 0x200d) return true;
  if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
      (c >= 0x1f170 && c <= 0x1f189)) {
    return true;  // letters in circles and squares, Other_Alphabetic
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  // Cut before characters below U+0300, which join nothing before them; a part whose characters are all inert stays.
  std::size_t begin = 0;
  bool inert = true;
  const auto flush = [&](std::size_t end) {
    if (inert) {
      out += text.substr(begin, end - begin);
    } else {
      append_nfc(text.substr(begin, end - begin), out);
    }
    begin = end;
    inert = true;
  };
  std::size_t starter = 0;  // the last character below U+0300
  for (std::size_t i = 0; i < text.size(); i += utf8_length(text[i])) {
    const char32_t c = code_point_at(text, i);
    if (c < 0x300) {
      if (!inert) flush(i);
      starter = i;
    } else if (inert && !is_inert(c)) {
      flush(starter);
      inert = false;
    }
  }
  flush(text.size());
  return out;
}

Pattern read_pattern(const JsonObject& object, const char* key) {
  const JsonObject pattern = object.object(key);
  pattern.only({"String", "Regex"});
  if (pattern.has("String") == pattern.has("Regex")) pattern.refuse("", "needs either String or Regex");
  return pattern.has("String") ? Pattern::literal(pattern.text("String"), pattern.path("String"))
                               : Pattern::regex(pattern.text("Regex"), pattern.path("Regex"));
}

void Normalizer::add(const JsonObject& object) {
  const std::string type = object.text("type");
  if (type == "Sequence") {
    object.only({"type", "normalizers"});
    for (const JsonObject& step : object.objects("normalizers")) {
      if (step.text("type") == "Sequence") step.refuse("type", "a Sequence inside a Sequence is not supported");
      add(step);
    }
  } else if (type == "NFC") {
    object.only({"type"});
    steps_.push_back({Kind::nfc, "", {}});
  } else if (type == "Prepend") {
    object.only({"type", "prepend"});
    steps_.push_back({Kind::prepend, object.text("prepend"), {}});
  } else if (type == "Replace") {
    object.only({"type", "pattern", "content"});
    Step step{Kind::replace, object.text("content"), {}};
    step.pattern.push_back(read_pattern(object, "pattern"));
    steps_.push_back(std::move(step));
  } else {
    object.refuse("type",
                  fmt::format("the normalizer {} is not supported (NFC, Prepend, Replace, Sequence are)", type));
  }
}

std::string_view Normalizer::apply(std::string_view text, PatternScratch& scratch, std::string& buffer) const {
  if (steps_.empty() || text.empty()) return text;
  std::string now(text);
  for (const Step& step : steps_) {
    if (step.kind == Kind::nfc) {
      now = nfc(now);
    } else if (step.kind == Kind::prepend) {
      if (!now.empty()) now.insert(0, step.content);
    } else {
      std::string next;
      next.reserve(now.size() + now.size() / 2);
      std::size_t done = 0;
      while (const auto found = step.pattern[0].find(scratch, now, done)) {
        next.append(now, done, found->begin - done);
        next += step.content;
        done = found->end;
      }
      next.append(now, done);
      now = std::move(next);
    }
  }
  buffer = std::move(now);
  return buffer;
}

}  // namespace atl
