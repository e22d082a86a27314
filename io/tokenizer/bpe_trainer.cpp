/// Pair counts that follow each merge, over the unique words. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/bpe_trainer.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;

constexpr auto begin_token = BpeTrainer::begin_token, end_token = BpeTrainer::end_token;
constexpr std::uint32_t first_byte = 2;     // its id
constexpr std::uint32_t first_merge = 258;  // its id
constexpr std::int64_t largest = 1 << 20;   // vocabulary
constexpr const char* words_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Word {
  std::vector<std::uint32_t> symbols;
  std::uint64_t count = 0;
};

struct Candidate {
  std::uint64_t count = 0, pair = 0;  // left << 32 | right
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }

/// The bytes in the order of their characters, which is that of their ids.
const std::vector<unsigned char>& bytes_by_character() {
  static const auto bytes = [] {
    std::vector<unsigned char> all;
    for (char32_t c = 0; c < 0x144; ++c) {
      if (const int byte = byte_of_character(c); byte >= 0) all.push_back(static_cast<unsigned char>(byte));
    }
    return all;
  }();
  return bytes;
}

class Pairs {
 public:
  explicit Pairs(std::vector<Word> words) : words_(std::move(words)) {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const auto& symbols = words_[w].symbols;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) change(pair_of(symbols[i], symbols[i + 1]), w, 1);
    }
    for (const auto& [pair, entry] : entries_) queue_.push({entry.count, pair});
    changed_.clear();
  }

  /// The most frequent pair, if one occurs twice.
  bool next(Candidate& best) {
    while (!queue_.empty()) {
      best = queue_.top();
      queue_.pop();
      const std::uint64_t count = entries_[best.pair].count;
      if (count == best.count) return count >= 2;
      if (count > 0) queue_.push({count, best.pair});  // it has become less frequent
    }
    return false;
  }

  void merge(std::uint64_t pair, std::uint32_t token) {
    std::vector<std::uint32_t> where = std::move(entries_[pair].words);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    changed_.clear();
    for (const std::uint32_t w : where) merge_in(w, pair, token);
    entries_.erase(pair);
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const std::uint64_t other : changed_) {
      if (other != pair) queue_.push({entries_[other].count, other});
    }
  }

 private:
  struct Entry {
    std::uint64_t count = 0;
    std::vector<std::uint32_t> words;  // that have, or had, the pair; some more than once
  };

  void change(std::uint64_t pair, std::uint32_t w, int sign) {
    Entry& entry = entries_[pair];
    if (sign < 0) {
      entry.count -= words_[w].count;
      return;
    }
    entry.count += words_[w].count;
    if (entry.words.empty() || entry.words.back() != w) entry.words.push_back(w);
    changed_.push_back(pair);
  }

  void merge_in(std::uint32_t w, std::uint64_t pair, std::uint32_t token) {
    auto& symbols = words_[w].symbols;
    const auto left = static_cast<std::uint32_t>(pair >> 32), right = static_cast<std::uint32_t>(pair);
    merged_.clear();
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const bool here = i + 1 < symbols.size() && symbols[i] == left && symbols[i + 1] == right;
      merged_.push_back(here ? token : symbols[i]);
      i += here;
    }
    if (merged_.size() == symbols.size()) return;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) change(pair_of(symbols[i], symbols[i + 1]), w, -1);
    for (std::size_t i = 0; i + 1 < merged_.size(); ++i) change(pair_of(merged_[i], merged_[i + 1]), w, +1);
    symbols.swap(merged_);
  }

  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::uint64_t> changed_;
  std::vector<std::uint32_t> merged_;
};

std::string file_of(const std::vector<std::string>& tokens, const Json& merges) {
  const auto special = [](int id, const char* content) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const Json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json split{
      {"type", "Split"}, {"pattern", {{"Regex", words_pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto sequence = [](const char* which) { return Json{{"Sequence", {{"id", which}, {"type_id", 0}}}}; };
  const Json begin{{"SpecialToken", {{"id", begin_token}, {"type_id", 0}}}};
  Json vocab = Json::object();  // filled without a look for equal keys, which would go through all of them
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab.get_ref<Json::object_t&>().emplace_back(tokens[id], id);
  const auto mark = [](int id, const char* content) {
    return Json{{"id", content}, {"ids", Json::array({id})}, {"tokens", Json::array({content})}};
  };
  const Json templates{{"type", "TemplateProcessing"},
                       {"single", Json::array({begin, sequence("A")})},
                       {"pair", Json::array({begin, sequence("A"), begin, sequence("B")})},
                       {"special_tokens", {{begin_token, mark(0, begin_token)}}}};
  const Json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", vocab},
                   {"merges", merges}};
  const Json file{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", Json::array({special(0, begin_token), special(1, end_token)})},
                  {"normalizer", nullptr},
                  {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}},
                  {"post_processor", templates},
                  {"decoder", byte_level},
                  {"model", model}};
  return file.dump(1) + "\n";
}

std::vector<std::string> first_tokens() {
  std::vector<std::string> tokens{begin_token, end_token};
  for (const unsigned char byte : bytes_by_character()) tokens.push_back(character_of_byte(byte));
  return tokens;
}

}  // namespace

BpeTrainer::BpeTrainer()
    : bytes_(Tokenizer::parse(file_of(first_tokens(), Json::array()), "bytes")), encoder_(bytes_) {}

void BpeTrainer::add(std::string_view text) {
  encoder_.words(text, [&](std::string_view word) {
    auto found = words_.find(word);
    if (found == words_.end()) found = words_.emplace(word, 0).first;
    ++found->second;
  });
}

void BpeTrainer::require_size(std::int64_t vocab_size) {
  if (vocab_size < first_merge || vocab_size > largest) {
    throw ConfigError(fmt::format("--train-vocab {} is not in [{}, {}]: there are 256 bytes and 2 marks", vocab_size,
                                  first_merge, largest));
  }
}

std::string BpeTrainer::train(std::int64_t vocab_size) const {
  require_size(vocab_size);
  if (words_.empty()) throw ConfigError("--train-vocab: there is no text to train a tokenizer on");
  std::uint32_t symbol_of[256];
  for (std::uint32_t i = 0; i < 256; ++i) symbol_of[bytes_by_character()[i]] = first_byte + i;
  std::vector<Word> words;
  words.reserve(words_.size());
  for (const auto& [text, count] : words_) {
    words.push_back({{}, count});
    for (const char c : text) words.back().symbols.push_back(symbol_of[static_cast<unsigned char>(c)]);
  }
  Pairs pairs(std::move(words));
  std::vector<std::string> tokens = first_tokens();
  StringMap<bool> known;
  for (const std::string& token : tokens) known.emplace(token, true);
  Json merges = Json::array();
  Candidate best;
  while (static_cast<std::int64_t>(tokens.size()) < vocab_size && pairs.next(best)) {
    const std::string &left = tokens[best.pair >> 32], &right = tokens[best.pair & 0xffffffff];
    const std::string whole = left + right;
    merges.push_back({left, right});
    // Two pairs may spell the same token, which then has one id.
    std::size_t id = tokens.size();
    if (known.emplace(whole, true).second) {
      tokens.push_back(whole);
    } else {
      id = static_cast<std::size_t>(std::find(tokens.begin(), tokens.end(), whole) - tokens.begin());
    }
    pairs.merge(best.pair, static_cast<std::uint32_t>(id));
  }
  return file_of(tokens, merges);
}

}  // namespace atl
