/// Reading a BPE model. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/bpe.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/core.h>

#include <bit>
#include <limits>
#include <optional>

namespace atl {

namespace {

constexpr std::string_view space = "\xe2\x96\x81";  // U+2581
constexpr std::int64_t most_tokens = 1 << 24;       // far above any; bounds the memory that a lying id takes

/// Bytes that print stand for themselves, the others for the characters from U+0100 on.
std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters;
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    characters[b] = prints ? b : next++;
  }
  return characters;
}

/// The bytes that a token of a byte-level vocabulary stands for; nothing if it is none.
std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); i += utf8_length(token[i])) {
    const int byte = byte_of_character(code_point_at(token, i));
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace

int byte_of_character(char32_t character) {
  static const auto bytes = [] {
    std::array<int, 0x144> table;
    table.fill(-1);
    const auto characters = make_characters();
    for (int b = 0; b < 256; ++b) table[characters[static_cast<std::size_t>(b)]] = b;
    return table;
  }();
  return character < bytes.size() ? bytes[character] : -1;
}

const std::string& character_of_byte(unsigned char byte) {
  static const auto texts = [] {
    std::array<std::string, 256> table;
    const auto characters = make_characters();
    for (std::size_t b = 0; b < 256; ++b) append_utf8(characters[b], table[b]);
    return table;
  }();
  return texts[byte];
}

MergeTable::MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 2)), mask_(slots_.size() - 1) {}

void MergeTable::insert(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t key = std::uint64_t{left} << 32 | right;
  std::size_t i = slot(key);
  while (slots_[i].key != free && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

BpeModel::BpeModel(const JsonObject& model, Symbols symbols) : symbols_(symbols) {
  if (const std::string type = model.text("type", "BPE"); type != "BPE") {
    model.refuse("type", fmt::format("the model {} is not supported, BPE is", type));
  }
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout") && model.at("dropout") != 0) model.refuse("dropout", "is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(key, "").empty()) model.refuse(key, "is not supported");
  }
  ignore_merges_ = model.flag("ignore_merges", false);
  fuse_unknown_ = model.flag("fuse_unk", false);
  byte_fallback_ = model.flag("byte_fallback", false);
  read_vocabulary(model);
  if (const std::string unknown = model.text("unk_token", ""); !unknown.empty()) {
    const auto found = ids_.find(unknown);
    if (found == ids_.end()) model.refuse("unk_token", fmt::format("'{}' is not in model.vocab", unknown));
    unknown_ = found->second;
  }
  find_byte_symbols(model);
  read_merges(model);
}

void BpeModel::read_vocabulary(const JsonObject& model) {
  const JsonObject vocab = model.object("vocab");
  ids_.reserve(vocab.json().size());
  for (const auto& [token, id] : vocab.json().items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= most_tokens) {
      vocab.refuse("", fmt::format("the id {} of '{}' is not in [0, {})", id.dump(), token, most_tokens));
    }
    const auto number = id.get<std::uint32_t>();
    if (number >= tokens_.size()) tokens_.resize(number + 1);
    if (!tokens_[number].empty()) {
      vocab.refuse("", fmt::format("'{}' and '{}' have the same id {}", tokens_[number], token, number));
    }
    tokens_[number] = token;
    ids_.emplace(token, number);
  }
  if (ids_.empty()) vocab.refuse("", "is empty");
}

void BpeModel::find_byte_symbols(const JsonObject& model) {
  bytes_.fill(MergeTable::none);
  const bool byte_level = symbols_ == Symbols::bytes;
  for (unsigned b = 0; b < 256 && (byte_level || byte_fallback_); ++b) {
    const std::string token =
        byte_level ? character_of_byte(static_cast<unsigned char>(b)) : fmt::format("<0x{:02X}>", b);
    const auto found = ids_.find(token);
    if (found == ids_.end()) {
      model.refuse("vocab", fmt::format("has no token '{}' for the byte {}, which every text may need", token, b));
    }
    bytes_[b] = found->second;
  }
  if (!byte_level && !byte_fallback_ && unknown_ == MergeTable::none) {
    model.refuse("unk_token", "is missing: without it, byte_fallback or ByteLevel unknown characters would be lost");
  }
  if (!byte_level || !ignore_merges_) return;
  for (const auto& [token, id] : ids_) {
    if (const auto bytes = bytes_of_token(token)) words_.emplace(*bytes, id);
  }
}

void BpeModel::read_merges(const JsonObject& model) {
  const nlohmann::json& merges = model.at("merges");
  if (!merges.is_array()) model.refuse("merges", "is not an array");
  if (merges.size() >= MergeTable::none) model.refuse("merges", "has too many entries");
  merges_ = MergeTable(merges.size());
  cuts_at_spaces_ = symbols_ == Symbols::characters && !ignore_merges_ && ids_.count(space) > 0;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const nlohmann::json& merge = merges[rank];
    const auto refuse = [&](const std::string& reason) {
      model.refuse(fmt::format("merges[{}]", rank), fmt::format("{} {}", merge.dump(), reason));
    };
    std::string left, right;
    if (merge.is_string()) {  // "left right"
      const auto& both = merge.get_ref<const std::string&>();
      const std::size_t gap = both.find(' ');
      if (gap == std::string::npos || both.find(' ', gap + 1) != std::string::npos) refuse("is not 'left right'");
      left = both.substr(0, gap);
      right = both.substr(gap + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      refuse("is neither 'left right' nor [left, right]");
    }
    const auto id = [&](const std::string& token) {
      const auto found = ids_.find(token);
      if (found == ids_.end()) refuse(fmt::format("needs '{}', which is not in model.vocab", token));
      return found->second;
    };
    const std::string whole = left + right;
    const std::uint32_t left_id = id(left), right_id = id(right);
    merges_.insert(left_id, right_id, {static_cast<std::uint32_t>(rank), id(whole)});
    for (std::size_t at = whole.find(space); at != std::string::npos; at = whole.find(space, at + space.size())) {
      const bool inside = at > 0 && (at < space.size() || whole.compare(at - space.size(), space.size(), space) != 0);
      if (inside) cuts_at_spaces_ = false;
    }
  }
}

}  // namespace atl
