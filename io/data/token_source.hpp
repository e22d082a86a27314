/// Where tokens come from: a token file, or memory. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/errors.hpp"

#include <algorithm>
#include <cstdint>
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

/// What reading a source found; what reading shares of it found adds up.
struct Scan {
  LargestToken largest;
  std::uint64_t tokens = 0, documents = 0;  ///< block checksums (io/checksum.hpp); 0 where there is no file

  void add(const Scan& other) {
    const LargestToken& their = other.largest;
    if (their.id > largest.id || (their.id == largest.id && their.position < largest.position)) largest = their;
    tokens += other.tokens;
    documents += other.documents;
  }
};

/// A row of token ids that can be read anywhere.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::string name() const = 0;  ///< for messages: a path, or "synthetic"
  virtual std::int64_t tokens() const = 0;
  virtual std::int64_t vocab_size() const = 0;  ///< every id is below it; 0: it does not say
  /// Equal for equal tokens only: a checksum as text; empty where the configuration says what they are.
  virtual std::string fingerprint() const { return ""; }

  /// Tokens [begin, begin + out.size()).
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;

  virtual std::int64_t documents() const { return -1; }  ///< -1: it does not say where documents begin
  /// Where documents [first, first + out.size() - 1) start, and the last of them ends; where documents() >= 0.
  virtual void read_offsets(std::int64_t, std::span<std::uint64_t>) const {
    throw DataError(name() + ": does not say where its documents begin");
  }

  /// Reads the share-th of `shares` parts of everything, a block here and a block there.
  virtual Scan scan(std::int64_t share, std::int64_t shares) const = 0;
  /// DataError unless the scan of all shares, added, fits what the source says of itself (a file: its checksums).
  virtual void check(const Scan&) const {}

  /// All of it, by this process: reads, checks, and gives the largest id.
  LargestToken scan_all() const {
    const Scan whole = scan(0, 1);
    check(whole);
    return whole.largest;
  }
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

  Scan scan(std::int64_t share, std::int64_t shares) const override {
    Scan found;
    for (std::int64_t i = tokens() * share / shares; i < tokens() * (share + 1) / shares; ++i) {
      const std::int64_t id = tokens_[static_cast<std::size_t>(i)];
      if (id > found.largest.id) found.largest = {id, i};
    }
    return found;
  }

 private:
  std::string name_;
  std::int64_t vocab_size_;
  std::vector<std::uint16_t> tokens_;
};

/// DataError naming id, position and vocabulary unless every id of a scan is one of the model's.
inline void require_vocabulary(const TokenSource& source, const LargestToken& largest, std::int64_t vocab_size) {
  if (largest.id < vocab_size) return;
  throw DataError(source.name() + ": token " + std::to_string(largest.id) + " at position " +
                  std::to_string(largest.position) + " is outside the model's vocabulary of " +
                  std::to_string(vocab_size) + "; set model.vocab_size to at least " +
                  std::to_string(std::max(source.vocab_size(), largest.id + 1)) + ", or use other data");
}

}  // namespace atl
