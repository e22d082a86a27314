/// Byte-pair encoding of words. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokenizer/json_object.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace atl {

/// Hashes strings and string views alike.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

/// Pairs of tokens that merge, and into what: an open-addressing hash table.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = none, token = 0;
  };
  static constexpr std::uint32_t none = 0xffffffff;

  explicit MergeTable(std::size_t merges = 0);
  /// A pair that is there already gets the new rank.
  void insert(std::uint32_t left, std::uint32_t right, Merge merge);
  /// Rank `none` where the pair does not merge.
  Merge find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    for (std::size_t i = slot(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == free) return {};
    }
  }

 private:
  static constexpr std::uint64_t free = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = free;
    Merge merge;
  };
  std::size_t slot(std::uint64_t key) const { return (key * 0x9e3779b97f4a7c15u >> 32) & mask_; }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

/// The `model` of type BPE. A word begins as symbols: its bytes (byte level), or its characters, of which those that
/// the vocabulary lacks become bytes (byte_fallback) or the unknown token. Then the pair with the lowest rank merges,
/// the leftmost first, until none does: arXiv:1508.07909.
class BpeModel {
 public:
  enum class Symbols { bytes, characters };

  /// DataError, naming the key, for what is wrong or not supported (dropout, prefixes and suffixes of words).
  BpeModel(const JsonObject& model, Symbols symbols);

  const std::vector<std::string>& tokens() const { return tokens_; }  ///< by id; "" where there is none
  /// The id of a token as tokenizer.json writes it, or -1.
  std::int32_t id_of(std::string_view token) const;

  /// What one thread needs: room to work, and the words it met last.
  class Scratch;
  /// Appends the tokens of a word.
  void encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;

 private:
  struct Link {
    MergeTable::Merge pair;        // of this symbol and the next
    std::uint32_t previous, next;  // positions, `none` at the ends
  };
  void read_vocabulary(const JsonObject& model);
  void read_merges(const JsonObject& model);
  void find_byte_symbols(const JsonObject& model);
  void encode_uncached(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;
  void start(std::string_view word, std::vector<std::uint32_t>& symbols) const;
  static void merge_few(const MergeTable& merges, std::vector<std::uint32_t>& symbols);
  static void merge_many(const MergeTable& merges, std::vector<std::uint32_t>& symbols, Scratch& scratch);
  void cut(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;

  Symbols symbols_;
  std::vector<std::string> tokens_;
  StringMap<std::uint32_t> ids_;    // as tokenizer.json writes them
  StringMap<std::uint32_t> words_;  // of byte level with ignore_merges: as bytes
  MergeTable merges_;
  std::array<std::uint32_t, 256> bytes_;  // the symbol of a byte, MergeTable::none where there is none
  bool ignore_merges_ = false, fuse_unknown_ = false, byte_fallback_ = false;
  bool cuts_at_spaces_ = false;  // no token has U+2581 after another character: words end before it
  std::uint32_t unknown_ = MergeTable::none;
};

/// A cache of words and their tokens; it is emptied when it is full.
class BpeModel::Scratch {
 public:
  Scratch();

 private:
  friend class BpeModel;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t word = 0, word_size = 0;  // in words_; size 0: free
    std::uint32_t token = 0, tokens = 0;    // in tokens_
  };
  /// The slot of the word, or the free one where it belongs.
  Slot& find(std::string_view word, std::uint64_t hash);
  void insert(std::string_view word, std::uint64_t hash, const std::int32_t* tokens, std::size_t count);

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::string words_;
  std::vector<std::int32_t> tokens_;

  std::vector<std::uint32_t> symbols_;
  std::vector<Link> links_;
  std::vector<std::uint64_t> heap_;
};

/// The byte that a character stands for in byte-level vocabularies, or -1; and the character, in UTF-8, of a byte.
int byte_of_character(char32_t character);
const std::string& character_of_byte(unsigned char byte);

}  // namespace atl
