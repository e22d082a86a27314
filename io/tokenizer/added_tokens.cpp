/// A trie of added tokens. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/added_tokens.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/characters.hpp"
#include "io/tokenizer/utf8.hpp"

#include <algorithm>

namespace atl {

void AddedTokenFinder::add(const AddedToken& token, std::string_view content) {
  ATOLL_REQUIRE(!content.empty());
  std::uint32_t node = 0;
  for (const char c : content) {
    auto& next = nodes_[node].next;
    const auto found = std::find_if(next.begin(), next.end(), [&](const auto& edge) { return edge.first == c; });
    if (found != next.end()) {
      node = found->second;
      continue;
    }
    const auto fresh = static_cast<std::uint32_t>(nodes_.size());
    next.emplace_back(c, fresh);
    nodes_.emplace_back();
    node = fresh;
  }
  if (nodes_[node].token < 0) nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(content[0])] = true;
}

bool AddedTokenFinder::next(std::string_view text, std::size_t& from, std::size_t done, Match& match) const {
  if (tokens_.empty()) return false;
  for (; from < text.size(); ++from) {
    if (!starts_[static_cast<unsigned char>(text[from])]) continue;
    std::int32_t found = -1;
    std::size_t end = from;
    std::uint32_t node = 0;
    for (std::size_t i = from; i < text.size(); ++i) {
      const auto& edges = nodes_[node].next;
      const char c = text[i];
      const auto edge = std::find_if(edges.begin(), edges.end(), [&](const auto& e) { return e.first == c; });
      if (edge == edges.end()) break;
      node = edge->second;
      if (nodes_[node].token >= 0) found = nodes_[node].token, end = i + 1;
    }
    if (found < 0) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
    std::size_t begin = from;
    from = end;
    if (token.single_word) {
      const bool joined = (begin > 0 && is_word(code_point_at(text, previous_character(text, begin)))) ||
                          (end < text.size() && is_word(code_point_at(text, end)));
      if (joined) {
        --from;  // the loop adds one: the search goes on behind the token
        continue;
      }
    }
    while (token.lstrip && begin > done) {
      const std::size_t before = previous_character(text, begin);
      if (!is_white_space(code_point_at(text, before))) break;
      begin = before;
    }
    while (token.rstrip && end < text.size() && is_white_space(code_point_at(text, end))) end += utf8_length(text[end]);
    match = {token.id, {begin, end}};
    return true;
  }
  return false;
}

}  // namespace atl
