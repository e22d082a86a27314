/// Reading a tokenizer.json. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/checksum.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/utf8.hpp"
#include "model/strict_json.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace atl {

namespace {

constexpr std::size_t largest_file = std::size_t{1} << 28;  // 256 MiB, ten times the largest that are in use
constexpr std::size_t deepest = 64;                         // nesting; real files have 6

Normalizer read_normalizer(const JsonObject& object) {
  return object.has("normalizer") ? Normalizer(object.object("normalizer")) : Normalizer();
}

PreTokenizer read_pre_tokenizer(const JsonObject& object) {
  return object.has("pre_tokenizer") ? PreTokenizer(object.object("pre_tokenizer")) : PreTokenizer();
}

Decoder read_decoder(const JsonObject& object) {
  return object.has("decoder") ? Decoder(object.object("decoder")) : Decoder();
}

}  // namespace

Tokenizer Tokenizer::read(const std::string& path) { return parse(read_file(path), path); }

std::string Tokenizer::read_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw DataError(path + ": is a folder; name its tokenizer.json");
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size < 0) {
    throw DataError(fmt::format("{}: cannot read it: {}", path, errno != 0 ? std::strerror(errno) : "unknown reason"));
  }
  if (static_cast<std::uint64_t>(size) > largest_file) {
    throw DataError(fmt::format("{}: has {} bytes, more than any tokenizer.json ({})", path, size, largest_file));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(text.data(), size)) throw DataError(path + ": cannot be read to its end; is it a file?");
  return text;
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  Checksum checksum;
  checksum.update(json.data(), json.size());
  std::size_t depth = 0;  // of brackets, strings aside: bounded, so that nothing recurses without end
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > deepest) throw DataError(fmt::format("{}: byte {} is nested deeper than {}", name, i, deepest));
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(json.begin(), json.end());
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: is not JSON: {}", name, brief_message(error)));
  }
  const JsonObject object(parsed, name);
  if (!object.has("model")) object.refuse("model", "is missing: is it the tokenizer.json of a Hugging Face model?");
  return Tokenizer(object, checksum.text());
}

Tokenizer::Tokenizer(const JsonObject& object, std::string checksum)
    : name_(object.path("")),
      checksum_(std::move(checksum)),
      normalizer_(read_normalizer(object)),
      pre_tokenizer_(read_pre_tokenizer(object)),
      model_(object.object("model"),
             pre_tokenizer_.byte_level() ? BpeModel::Symbols::bytes : BpeModel::Symbols::characters),
      decoder_(read_decoder(object)) {
  object.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
               "decoder", "model"});
  // truncation and padding are for batches of a model's input; documents are neither cut nor filled up.
  if (object.has("added_tokens")) read_added_tokens(object);
  name_tokens(object);
  if (object.has("post_processor")) read_post_processor(object.object("post_processor"));
}

void Tokenizer::read_added_tokens(const JsonObject& object) {
  PatternScratch scratch;
  std::string buffer;
  StringMap<std::int32_t> seen;
  for (const JsonObject& entry : object.objects("added_tokens")) {
    entry.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = entry.text("content");
    token.id = static_cast<std::int32_t>(entry.integer("id", 0, (1 << 24) - 1));
    token.single_word = entry.flag("single_word", false);
    token.lstrip = entry.flag("lstrip", false);
    token.rstrip = entry.flag("rstrip", false);
    token.special = entry.flag("special", false);
    token.normalized = entry.flag("normalized", !token.special);
    if (token.content.empty()) entry.refuse("content", "is empty");
    if (const std::int32_t id = model_.id_of(token.content); id >= 0 && id != token.id) {
      entry.refuse("id", fmt::format("'{}' has the id {} here and {} in model.vocab", token.content, token.id, id));
    }
    if (!seen.emplace(token.content, token.id).second) {
      entry.refuse("content", fmt::format("'{}' is there twice", token.content));
    }
    if (token.normalized) {
      const std::string_view content = normalizer_.apply(token.content, scratch, buffer);
      if (content.empty()) entry.refuse("content", fmt::format("'{}' is normalised to nothing", token.content));
      as_normalized_.add(token, content);
      token.decoded = content;
    } else {
      as_written_.add(token, token.content);
    }
    added_.push_back(std::move(token));
  }
}

void Tokenizer::name_tokens(const JsonObject& object) {
  tokens_ = model_.tokens();
  for (const AddedToken& token : added_) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    if (!tokens_[id].empty() && tokens_[id] != token.content) {
      object.refuse("added_tokens", fmt::format("'{}' and '{}' have the same id {}", tokens_[id], token.content, id));
    }
    tokens_[id] = token.content;
  }
  special_.assign(tokens_.size(), false);
  // What the library's decoder sees of a token that is normalised is that form.
  for (const AddedToken& token : added_) {
    if (token.normalized) tokens_[static_cast<std::size_t>(token.id)] = token.decoded;
  }
  for (const AddedToken& token : added_) special_[static_cast<std::size_t>(token.id)] = token.special;
}

void Tokenizer::read_post_processor(const JsonObject& object) {
  const std::string type = object.text("type");
  if (type == "Sequence") {
    object.only({"type", "processors"});
    for (const JsonObject& step : object.objects("processors")) {
      if (step.text("type") == "Sequence") step.refuse("type", "a Sequence inside a Sequence is not supported");
      read_post_processor(step);
    }
  } else if (type == "TemplateProcessing") {
    if (begin_ || end_) object.refuse("type", "a second TemplateProcessing is not supported");
    read_template(object);
  } else if (type != "ByteLevel") {  // which changes offsets only
    object.refuse("type", fmt::format("the post-processor {} is not supported (TemplateProcessing, ByteLevel and "
                                      "Sequence are)",
                                      type));
  }
}

void Tokenizer::read_template(const JsonObject& object) {
  object.only({"type", "single", "pair", "special_tokens"});
  bool text_seen = false;
  for (const JsonObject& piece : object.objects("single")) {
    if (piece.has("Sequence")) {
      if (text_seen) piece.refuse("Sequence", "is there twice");
      text_seen = true;
      continue;
    }
    const std::string name = piece.object("SpecialToken").text("id");
    const JsonObject entry = object.object("special_tokens").object(name.c_str());
    const nlohmann::json& ids = entry.at("ids");
    if (!ids.is_array() || ids.size() != 1 || !ids[0].is_number_integer()) {
      entry.refuse("ids", "is not an array of one id");
    }
    const auto id = ids[0].get<std::int64_t>();
    if (id < 0 || id >= vocab_size()) entry.refuse("ids", fmt::format("{} is outside of the vocabulary", id));
    auto& mark = text_seen ? end_ : begin_;
    if (mark) object.refuse("single", "has several tokens on one side of the text, which is not supported");
    mark = static_cast<std::int32_t>(id);
  }
  if (!text_seen) object.refuse("single", "has no Sequence");
}

}  // namespace atl
