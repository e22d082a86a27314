/// Where tokens come from: a token file, or memory. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/errors.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace atl {

/// The largest token id and the first position that holds it (-1, -1 without tokens).
struct LargestToken {
  std::int64_t id = -1;
  std::int64_t position = -1;
};

/// A row of token ids that can be read anywhere.
class TokenSource {
 public:
  using Progress = std::function<void(std::int64_t tokens_done)>;

  virtual ~TokenSource() = default;
  virtual std::string name() const = 0;  ///< for messages: a path, or "synthetic"
  virtual std::int64_t tokens() const = 0;
  virtual std::int64_t vocab_size() const = 0;  ///< every id is below it

  /// Tokens [begin, begin + out.size()).
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;

  /// Reads everything once, checks what can be checked (a file: its checksums), finds the largest id.
  virtual LargestToken scan(const Progress& progress = {}) const = 0;
};

/// Tokens in memory.
class MemorySource : public TokenSource {
 public:
  MemorySource(std::string name, std::int64_t vocab_size, std::vector<std::uint16_t> tokens)
      : name_(std::move(name)), vocab_size_(vocab_size), tokens_(std::move(tokens)) {}

  std::string name() const override { return name_; }
  std::int64_t tokens() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t vocab_size() const override { return vocab_size_; }
  const std::vector<std::uint16_t>& data() const { return tokens_; }

  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    ATOLL_REQUIRE(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= tokens());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = tokens_[static_cast<std::size_t>(begin) + i];
  }

  LargestToken scan(const Progress& = {}) const override {
    LargestToken largest;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] > largest.id) largest = {tokens_[i], static_cast<std::int64_t>(i)};
    }
    return largest;
  }

 private:
  std::string name_;
  std::int64_t vocab_size_;
  std::vector<std::uint16_t> tokens_;
};

/// DataError naming id, position and vocabulary unless every id that scan() saw is one of the model's.
inline void require_vocabulary(const TokenSource& source, const LargestToken& largest, std::int64_t vocab_size) {
  if (largest.id < vocab_size) return;
  throw DataError(source.name() + ": token " + std::to_string(largest.id) + " at position " +
                  std::to_string(largest.position) + " is outside the model's vocabulary of " +
                  std::to_string(vocab_size) + "; set model.vocab_size to at least " +
                  std::to_string(std::max(source.vocab_size(), largest.id + 1)) + ", or use other data");
}

}  // namespace atl
