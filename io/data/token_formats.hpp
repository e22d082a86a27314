/// Which format a file of tokens has, and opening it. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_array.hpp"
#include "io/data/token_source.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace atl {

/// Element type of files without a header. Nothing: uint16 as nanoGPT writes them, but a DataError for bytes that look
/// like a wider type.
using RawType = std::optional<TokenType>;

/// Opens a file by its content:
///   HDF5's signature                            atoll's token file
///   NumPy's signature                           .npy
///   PREFIX, PREFIX.idx, or PREFIX.bin, where PREFIX.idx is there   Megatron
///   llm.c's magic and version                   llm.c
///   else a name that ends in .bin, or `raw`     an array without a header
/// DataError for anything else, with what to do about it (text, Parquet, archives, folders).
std::shared_ptr<const TokenSource> open_tokens(const std::string& path, RawType raw);

/// Files whose names match a pattern of the shell (*, ?, [...]), sorted, without the .idx beside a .bin; just `path`
/// where it has none of these or names a file itself. DataError where nothing matches.
std::vector<std::string> find_token_files(const std::string& path);

/// The tokens of several files, one after another; they were opened, and are checked, one by one.
class JoinedTokens : public TokenSource {
 public:
  JoinedTokens(std::string name, std::vector<std::shared_ptr<const TokenSource>> parts);

  std::string name() const override { return name_; }
  std::int64_t tokens() const override { return begins_.back(); }
  std::int64_t vocab_size() const override;
  std::string fingerprint() const override;  ///< of those of the parts and their sizes, in order
  std::int64_t documents() const override;
  void read_offsets(std::int64_t first, std::span<std::uint64_t> out) const override;
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  Scan scan(std::int64_t share, std::int64_t shares) const override;  ///< without checksums

 private:
  std::string name_;
  std::vector<std::shared_ptr<const TokenSource>> parts_;
  std::vector<std::int64_t> begins_{0};  // token where each part begins, and the end
};

/// `parts` as one source; a single one as it is.
std::shared_ptr<const TokenSource> join(const std::string& name, std::vector<std::shared_ptr<const TokenSource>> parts);

}  // namespace atl
