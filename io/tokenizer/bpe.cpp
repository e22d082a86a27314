/// Merging the symbols of a word. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/bpe.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/utf8.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <xxhash.h>

namespace atl {

namespace {

constexpr std::size_t slots = 1 << 17;              // of the cache; half of them are used
constexpr std::size_t longest_word = 256;           // in the cache, bytes
constexpr std::size_t most_bytes = 8 << 20;         // of the words in the cache; as many tokens
constexpr std::size_t few = 24;                     // symbols: up to here all pairs are looked at for each merge
constexpr std::string_view space = "\xe2\x96\x81";  // U+2581

}  // namespace

BpeModel::Scratch::Scratch() : slots_(slots) {}

BpeModel::Scratch::Slot& BpeModel::Scratch::find(std::string_view word, std::uint64_t hash) {
  for (std::size_t i = hash & (slots - 1);; i = (i + 1) & (slots - 1)) {
    Slot& slot = slots_[i];
    if (slot.word_size == 0) return slot;
    if (slot.hash == hash && slot.word_size == word.size() &&
        std::memcmp(words_.data() + slot.word, word.data(), word.size()) == 0) {
      return slot;
    }
  }
}

void BpeModel::Scratch::insert(std::string_view word, std::uint64_t hash, const std::int32_t* tokens,
                               std::size_t count) {
  if (used_ >= slots / 2 || words_.size() + word.size() > most_bytes) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    used_ = 0;
    words_.clear();
    tokens_.clear();
  }
  Slot& slot = find(word, hash);
  slot = {hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(word.size()),
          static_cast<std::uint32_t>(tokens_.size()), static_cast<std::uint32_t>(count)};
  words_ += word;
  tokens_.insert(tokens_.end(), tokens, tokens + count);
  ++used_;
}

std::int32_t BpeModel::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : static_cast<std::int32_t>(found->second);
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const {
  if (cuts_at_spaces_) return cut(word, scratch, out);
  encode_uncached(word, scratch, out);
}

/// Merges never reach over such a place, so that its sides are words of their own, which the cache knows.
void BpeModel::cut(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const {
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t end = begin;
    while (word.compare(end, space.size(), space) == 0) end += space.size();
    end = std::min(word.size(), word.find(space, end));
    encode_uncached(word.substr(begin, end - begin), scratch, out);
    begin = end;
  }
}

void BpeModel::encode_uncached(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const {
  const bool cached = word.size() <= longest_word;
  std::uint64_t hash = 0;
  if (cached) {
    hash = XXH3_64bits(word.data(), word.size());
    if (const Scratch::Slot& slot = scratch.find(word, hash); slot.word_size > 0) {
      const auto begin = scratch.tokens_.begin() + slot.token;
      out.insert(out.end(), begin, begin + slot.tokens);
      return;
    }
  }
  const std::size_t before = out.size();
  std::uint32_t whole = MergeTable::none;
  if (ignore_merges_) {
    const auto& known = symbols_ == Symbols::bytes ? words_ : ids_;
    if (const auto found = known.find(word); found != known.end()) whole = found->second;
  }
  if (whole != MergeTable::none) {
    out.push_back(static_cast<std::int32_t>(whole));
  } else {
    std::vector<std::uint32_t>& symbols = scratch.symbols_;
    start(word, symbols);
    if (symbols.size() <= few) {
      merge_few(merges_, symbols);
    } else {
      merge_many(merges_, symbols, scratch);
    }
    for (const std::uint32_t token : symbols) out.push_back(static_cast<std::int32_t>(token));
  }
  if (cached) scratch.insert(word, hash, out.data() + before, out.size() - before);
}

void BpeModel::start(std::string_view word, std::vector<std::uint32_t>& symbols) const {
  symbols.clear();
  if (symbols_ == Symbols::bytes) {
    for (const char c : word) symbols.push_back(bytes_[static_cast<unsigned char>(c)]);
    return;
  }
  bool after_unknown = false;
  for (std::size_t i = 0; i < word.size();) {
    const std::string_view character = word.substr(i, utf8_length(word[i]));
    i += character.size();
    if (const auto found = ids_.find(character); found != ids_.end()) {
      symbols.push_back(found->second);
      after_unknown = false;
    } else if (byte_fallback_) {
      for (const char c : character) symbols.push_back(bytes_[static_cast<unsigned char>(c)]);
    } else if (!(fuse_unknown_ && after_unknown)) {
      symbols.push_back(unknown_);
      after_unknown = true;
    }
  }
}

void BpeModel::merge_few(const MergeTable& merges, std::vector<std::uint32_t>& symbols) {
  std::size_t n = symbols.size();
  if (n < 2) return;
  MergeTable::Merge pairs[few];
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.find(symbols[i], symbols[i + 1]);
  for (;;) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::none) break;
    symbols[best] = pairs[best].token;
    --n;
    for (std::size_t i = best + 1; i < n; ++i) symbols[i] = symbols[i + 1];
    for (std::size_t i = best; i + 1 < n; ++i) pairs[i] = pairs[i + 1];
    if (n < 2) break;
    if (best > 0) pairs[best - 1] = merges.find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = merges.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

/// A heap of (rank, position) and a list of symbols: n log n steps for n symbols.
void BpeModel::merge_many(const MergeTable& merges, std::vector<std::uint32_t>& symbols, Scratch& scratch) {
  const std::size_t n = symbols.size();
  ATOLL_REQUIRE(n < std::numeric_limits<std::uint32_t>::max());
  constexpr std::uint32_t end = MergeTable::none;
  std::vector<Link>& links = scratch.links_;
  std::vector<std::uint64_t>& heap = scratch.heap_;
  links.resize(n);
  heap.clear();
  const auto look = [&](std::uint32_t i) {  // at the pair that begins at position i
    Link& link = links[i];
    link.pair = link.next == end ? MergeTable::Merge{} : merges.find(symbols[i], symbols[link.next]);
    return link.pair.rank != MergeTable::none;
  };
  const auto entry = [&](std::uint32_t i) { return std::uint64_t{links[i].pair.rank} << 32 | i; };
  const auto push = [&](std::uint32_t i) {
    if (!look(i)) return;
    heap.push_back(entry(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    links[i].previous = i == 0 ? end : i - 1;
    links[i].next = i + 1 == n ? end : i + 1;
    if (look(i)) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<std::uint32_t>(top);
    Link& link = links[i];
    if (link.pair.rank != top >> 32) continue;  // that pair is no more
    const std::uint32_t right = link.next;
    symbols[i] = link.pair.token;
    link.next = links[right].next;
    links[right].pair = {};
    if (link.next != end) links[link.next].previous = i;
    push(i);
    if (link.previous != end) push(link.previous);
  }
  std::size_t count = 0;
  for (std::uint32_t i = 0; i != end; i = links[i].next) symbols[count++] = symbols[i];
  symbols.resize(count);
  if (links.capacity() > most_bytes) std::vector<Link>().swap(links), std::vector<std::uint64_t>().swap(heap);
}

}  // namespace atl
