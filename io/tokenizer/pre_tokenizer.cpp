/// Steps that cut text. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/pre_tokenizer.hpp"

#include "io/tokenizer/normalizer.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace atl {

namespace {

// The pattern of ByteLevel, which is GPT-2's.
constexpr const char* gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitBehavior read_behavior(const JsonObject& object) {
  static const std::map<std::string, SplitBehavior> known{{"Isolated", SplitBehavior::isolated},
                                                          {"Removed", SplitBehavior::removed},
                                                          {"MergedWithPrevious", SplitBehavior::merged_with_previous},
                                                          {"MergedWithNext", SplitBehavior::merged_with_next},
                                                          {"Contiguous", SplitBehavior::contiguous}};
  const std::string name = object.text("behavior");
  const auto found = known.find(name);
  if (found == known.end()) object.refuse("behavior", fmt::format("'{}' is not supported", name));
  return found->second;
}

}  // namespace

void PreTokenizer::add_regex(const std::string& regex, SplitBehavior behavior, const std::string& where) {
  Step step;
  step.behavior = behavior;
  step.pattern.push_back(Pattern::regex(regex, where));
  steps_.push_back(std::move(step));
}

void PreTokenizer::add(const JsonObject& object) {
  const std::string type = object.text("type");
  if (byte_level_) object.refuse("type", fmt::format("{} after ByteLevel is not supported", type));
  if (type == "Sequence") {
    object.only({"type", "pretokenizers"});
    for (const JsonObject& step : object.objects("pretokenizers")) {
      if (step.text("type") == "Sequence") step.refuse("type", "a Sequence inside a Sequence is not supported");
      add(step);
    }
  } else if (type == "Split") {
    object.only({"type", "pattern", "behavior", "invert"});
    Step step;
    step.behavior = read_behavior(object);
    step.invert = object.flag("invert", false);
    step.pattern.push_back(read_pattern(object, "pattern"));
    steps_.push_back(std::move(step));
  } else if (type == "Digits") {
    object.only({"type", "individual_digits"});
    const bool single = object.flag("individual_digits", false);
    add_regex("\\p{N}", single ? SplitBehavior::isolated : SplitBehavior::contiguous, object.path("type"));
  } else if (type == "ByteLevel") {
    object.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (object.flag("add_prefix_space", true)) {
      steps_.emplace_back();
      steps_.back().kind = Kind::prefix_space;
    }
    if (object.flag("use_regex", true)) add_regex(gpt2_words, SplitBehavior::isolated, object.path("use_regex"));
    byte_level_ = true;
  } else if (type == "Metaspace") {
    add_metaspace(object);
  } else {
    object.refuse("type", fmt::format("the pre-tokenizer {} is not supported (Split, Digits, ByteLevel, Metaspace and "
                                      "Sequence are)",
                                      type));
  }
}

void PreTokenizer::add_metaspace(const JsonObject& object) {
  object.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  Step step;
  step.kind = Kind::metaspace;
  step.replacement = object.text("replacement");
  if (step.replacement.empty() || first_invalid_utf8(step.replacement) ||
      utf8_length(step.replacement[0]) != step.replacement.size()) {
    object.refuse("replacement", "is not a single character");
  }
  const bool prefix = object.flag("add_prefix_space", true);
  const std::string scheme = object.text("prepend_scheme", prefix ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    object.refuse("prepend_scheme", fmt::format("'{}' is not supported", scheme));
  }
  if (object.has("add_prefix_space") && !prefix && scheme != "never") {
    object.refuse("add_prefix_space", fmt::format("false contradicts prepend_scheme = {}", scheme));
  }
  step.prepend = scheme == "always" ? Prepend::always : scheme == "first" ? Prepend::first : Prepend::never;
  step.cut = object.flag("split", true);
  steps_.push_back(std::move(step));
}

void PreTokenizer::split(std::string_view text, bool at_start, Scratch& scratch, const Visit& visit) const {
  scratch.text.resize(steps_.size());
  if (!text.empty()) run(0, text, at_start, scratch, visit);
}

void PreTokenizer::run(std::size_t step, std::string_view text, bool at_start, Scratch& scratch,
                       const Visit& visit) const {
  if (step == steps_.size()) return visit(text);
  switch (steps_[step].kind) {
    case Kind::split:
      return run_split(step, text, at_start, scratch, visit);
    case Kind::metaspace:
      return run_metaspace(step, text, at_start, scratch, visit);
    case Kind::prefix_space:
      if (text[0] == ' ') return run(step + 1, text, at_start, scratch, visit);
      scratch.text[step] = ' ';
      scratch.text[step] += text;
      return run(step + 1, scratch.text[step], at_start, scratch, visit);
  }
}

void PreTokenizer::run_split(std::size_t step, std::string_view text, bool at_start, Scratch& scratch,
                             const Visit& visit) const {
  const Step& s = steps_[step];
  const auto emit = [&](TextRange range) {
    run(step + 1, text.substr(range.begin, range.end - range.begin), at_start && range.begin == 0, scratch, visit);
  };
  const bool merges = s.behavior != SplitBehavior::isolated && s.behavior != SplitBehavior::removed;
  std::vector<Part> parts;  // of those behaviors that merge
  const auto found = [&](TextRange range, bool match) {
    if (range.begin == range.end) return;
    if (merges) {
      parts.push_back({range, match != s.invert});
    } else if (s.behavior == SplitBehavior::isolated || match == s.invert) {
      emit(range);
    }
  };
  std::size_t done = 0;
  while (done < text.size()) {
    const auto range = s.pattern[0].find(scratch.pattern, text, done);
    if (!range) break;
    found({done, range->begin}, false);
    found(*range, true);
    done = range->end;
  }
  found({done, text.size()}, false);

  // A part joins its neighbour on this side, unless that is a match itself; equals join where that is asked for.
  if (s.behavior == SplitBehavior::merged_with_next) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool joins = parts[i].match && i + 1 < parts.size() && !parts[i + 1].match;
      if (joins) parts[i + 1].range.begin = parts[i].range.begin, parts[i + 1].match = false;
      if (!joins) emit(parts[i].range);
    }
    return;
  }
  for (std::size_t i = 0; i < parts.size();) {
    TextRange whole = parts[i].range;
    const bool match = parts[i].match;
    std::size_t next = i + 1;
    if (s.behavior == SplitBehavior::contiguous) {
      for (; next < parts.size() && parts[next].match == match; ++next) whole.end = parts[next].range.end;
    } else if (!match && next < parts.size() && parts[next].match) {
      whole.end = parts[next++].range.end;
    }
    emit(whole);
    i = next;
  }
}

void PreTokenizer::run_metaspace(std::size_t step, std::string_view text, bool at_start, Scratch& scratch,
                                 const Visit& visit) const {
  const Step& s = steps_[step];
  std::string& now = scratch.text[step];
  now.clear();
  for (const char c : text) {
    if (c == ' ') {
      now += s.replacement;
    } else {
      now += c;
    }
  }
  const bool starts = now.compare(0, s.replacement.size(), s.replacement) == 0;
  if (!starts && (s.prepend == Prepend::always || (s.prepend == Prepend::first && at_start))) {
    now.insert(0, s.replacement);
  }
  if (!s.cut) return run(step + 1, now, at_start, scratch, visit);
  for (std::size_t begin = 0; begin < now.size();) {
    const std::size_t end = std::min(now.size(), now.find(s.replacement, begin + 1));
    run(step + 1, std::string_view(now).substr(begin, end - begin), at_start && begin == 0, scratch, visit);
    begin = end;
  }
}

}  // namespace atl
