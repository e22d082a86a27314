/// Steps from tokens to text. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/decoder.hpp"

#include "io/tokenizer/bpe.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/core.h>

namespace atl {

namespace {

std::string replace_all(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    out.append(text, done, at - done);
    out += to;
  }
  return out.append(text, done);
}

/// The bytes of byte-level tokens; a token with any other character (an added one) stands for itself.
std::string join_bytes(const std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const std::size_t before = bytes.size();
    for (std::size_t i = 0; i < token.size(); i += utf8_length(token[i])) {
      const int byte = byte_of_character(code_point_at(token, i));
      if (byte < 0) {
        bytes.resize(before);
        bytes += token;
        break;
      }
      bytes.push_back(static_cast<char>(byte));
    }
  }
  return bytes;
}

int hexadecimal(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/// The byte of "<0x0A>", or -1.
int byte_of_token(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  const int high = hexadecimal(token[3]), low = hexadecimal(token[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/// Rows of byte tokens become text; a row that is no UTF-8 becomes U+FFFD for each of its bytes.
std::vector<std::string> fall_back(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (first_invalid_utf8(bytes)) {
      out.insert(out.end(), bytes.size(), "\xef\xbf\xbd");
    } else if (!bytes.empty()) {
      out.push_back(bytes);
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    const int byte = byte_of_token(token);
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
    } else {
      flush();
      out.push_back(token);
    }
  }
  flush();
  return out;
}

std::string strip(std::string text, const std::string& character, std::int64_t at_start, std::int64_t at_end) {
  std::size_t begin = 0, end = text.size();
  for (; at_start > 0 && text.compare(begin, character.size(), character) == 0; --at_start) begin += character.size();
  const auto ends = [&] {
    return end >= begin + character.size() && text.compare(end - character.size(), character.size(), character) == 0;
  };
  for (; at_end > 0 && ends(); --at_end) end -= character.size();
  return text.substr(begin, end - begin);
}

std::string join(const std::vector<std::string>& parts, const char* between) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += between;
    out += parts[i];
  }
  return out;
}

}  // namespace

void Decoder::add(const JsonObject& object) {
  const std::string type = object.text("type");
  if (type == "Sequence") {
    object.only({"type", "decoders"});
    for (const JsonObject& step : object.objects("decoders")) {
      if (step.text("type") == "Sequence") step.refuse("type", "a Sequence inside a Sequence is not supported");
      add(step);
    }
  } else if (type == "ByteLevel") {
    object.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    steps_.push_back({Kind::byte_level, "", ""});
  } else if (type == "Replace") {
    object.only({"type", "pattern", "content"});
    const JsonObject pattern = object.object("pattern");
    pattern.only({"String"});
    const std::string from = pattern.text("String");
    if (from.empty()) pattern.refuse("String", "is empty; it would match everywhere");
    steps_.push_back({Kind::replace, from, object.text("content")});
  } else if (type == "ByteFallback") {
    object.only({"type"});
    steps_.push_back({Kind::byte_fallback, "", ""});
  } else if (type == "Fuse") {
    object.only({"type"});
    steps_.push_back({Kind::fuse, "", ""});
  } else if (type == "Strip") {
    object.only({"type", "content", "start", "stop"});
    Step step{Kind::strip, object.text("content"), ""};
    if (step.from.empty()) object.refuse("content", "is empty");
    step.at_start = object.integer("start", 0, 1 << 20);
    step.at_end = object.integer("stop", 0, 1 << 20);
    steps_.push_back(std::move(step));
  } else if (type == "Metaspace") {
    object.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    Step step{Kind::metaspace, object.text("replacement"), " "};
    if (step.from.empty()) object.refuse("replacement", "is empty");
    const bool prefix = object.flag("add_prefix_space", true);
    step.drops_first = object.text("prepend_scheme", prefix ? "always" : "never") != "never";
    steps_.push_back(std::move(step));
  } else {
    object.refuse("type", fmt::format("the decoder {} is not supported (ByteLevel, Replace, ByteFallback, Fuse, Strip, "
                                      "Metaspace and Sequence are)",
                                      type));
  }
}

std::vector<std::string> Decoder::apply(const Step& step, std::vector<std::string> tokens) {
  switch (step.kind) {
    case Kind::byte_level:
      return {replace_invalid_utf8(join_bytes(tokens))};
    case Kind::byte_fallback:
      return fall_back(tokens);
    case Kind::fuse:
      return {join(tokens, "")};
    case Kind::replace:
      for (std::string& token : tokens) token = replace_all(token, step.from, step.to);
      break;
    case Kind::strip:
      for (std::string& token : tokens) token = strip(std::move(token), step.from, step.at_start, step.at_end);
      break;
    case Kind::metaspace:
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = replace_all(tokens[i], step.from, i == 0 && step.drops_first ? "" : step.to);
      }
      break;
  }
  return tokens;
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  if (steps_.empty()) return join(tokens, " ");
  for (const Step& step : steps_) tokens = apply(step, std::move(tokens));
  return join(tokens, "");
}

std::size_t Decoder::bytes_at_start(const std::string& token) const {
  std::vector<std::string> tokens{token};
  for (const Step& step : steps_) {
    if (step.kind == Kind::byte_level) return join_bytes(tokens).size();
    if (step.kind == Kind::byte_fallback && byte_of_token(tokens.front()) >= 0) return 1;
    tokens = apply(step, std::move(tokens));
  }
  return join(tokens, "").size();
}

}  // namespace atl
