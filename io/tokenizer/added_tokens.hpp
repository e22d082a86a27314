/// Tokens that are looked for in the text before anything else. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokenizer/pattern.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// An entry of `added_tokens` in tokenizer.json.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  std::string decoded;       ///< normalised content
  bool single_word = false;  ///< only where no letter, mark, digit or connector is beside it
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space after it
  bool normalized = false;   ///< looked for after normalisation, and in its normalised form
  bool special = false;      ///< left out when decoding without special tokens
};

/// Finds tokens in text: the leftmost, among those the longest; what a token has taken is not looked at again.
class AddedTokenFinder {
 public:
  /// Looks for `content`, which must not be empty.
  void add(const AddedToken& token, std::string_view content);

  bool empty() const { return tokens_.empty(); }

  /// Calls visit(id, range) for each part of valid UTF-8 `text` in order: a token, or id -1 for what is between.
  template <class Visit>
  void split(std::string_view text, const Visit& visit) const {
    std::size_t done = 0, from = 0;
    Match match;
    while (next(text, from, done, match)) {
      if (done < match.range.begin) visit(-1, TextRange{done, match.range.begin});
      visit(match.id, match.range);
      done = match.range.end;
    }
    if (done < text.size()) visit(-1, TextRange{done, text.size()});
  }

 private:
  struct Match {
    std::int32_t id = -1;
    TextRange range;
  };
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> next;  // few, so looked through
    std::int32_t token = -1;                           // index into tokens_ of the content that ends here
  };
  bool next(std::string_view text, std::size_t& from, std::size_t done, Match& match) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};
  bool starts_[256] = {};
};

}  // namespace atl
