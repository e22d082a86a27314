/// Tokens as an array of integers in a file: what nanoGPT, llm.c, NumPy and Megatron write. SPDX-License-Identifier:
/// Apache-2.0
///
///   nanoGPT    no header, little-endian uint16 (also other types, by raw_type)
///   llm.c      256 int32: magic, version, number of tokens; version 1 (magic 20240520): uint16, version 7 (20240801):
///              uint32
///   .npy       NumPy's format, versions 1 to 3: C order, little-endian, any shape, read row by row
///   Megatron   PREFIX.bin has the tokens; PREFIX.idx their type, and where sequences and documents begin
#pragma once

#include "io/data/byte_file.hpp"
#include "io/data/token_source.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace atl {

/// Integers on disk, little-endian.
enum class TokenType { u8, u16, i16, u32, i32, i64 };
std::string_view name_of(TokenType type);  ///< "uint16"
std::uint64_t size_of(TokenType type);     ///< bytes

/// `count` integers of `type` from byte `offset` of a file on.
struct ArrayPlace {
  TokenType type = TokenType::u16;
  std::uint64_t offset = 0, count = 0;
};

class TokenArray : public TokenSource {
 public:
  /// DataError unless the array lies within the file.
  TokenArray(const std::string& path, ArrayPlace place);

  std::string name() const override { return file_.path(); }
  std::int64_t tokens() const override { return static_cast<std::int64_t>(place_.count); }
  std::int64_t vocab_size() const override { return 0; }  ///< it does not say
  TokenType type() const { return place_.type; }
  /// Checksum of the array's bytes in blocks of 4 MiB; reads all of them unless check() has been called.
  std::string fingerprint() const override;

  /// DataError for ids that are negative or above 2^31 - 1.
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  Scan scan(std::int64_t share, std::int64_t shares) const override;
  void check(const Scan& whole) const override;

 private:
  ByteFile file_;
  ArrayPlace place_;
  mutable std::string fingerprint_;
};

/// PREFIX.idx and PREFIX.bin, as Megatron's preprocess_data.py writes them (megatron/core/datasets/indexed_dataset.py,
/// index version 1): "MMIDIDX", two zero bytes, uint64 version, uint8 type, uint64 sequences n, uint64 document starts
/// m; then int32 length[n] in tokens, int64 start[n] in bytes, int64 document[m], the first sequence of each document
/// and n at the end. Sequences must follow one another without gaps.
class MegatronFile : public TokenArray {
 public:
  /// Header, sizes, and first and last entries are checked at once; scan() checks all of the index.
  explicit MegatronFile(const std::string& prefix);

  std::int64_t documents() const override { return static_cast<std::int64_t>(index_.documents); }
  void read_offsets(std::int64_t first, std::span<std::uint64_t> out) const override;
  Scan scan(std::int64_t share, std::int64_t shares) const override;

 private:
  struct Index {
    ArrayPlace tokens;
    std::uint64_t sequences = 0, documents = 0;
    std::uint64_t lengths = 0, starts = 0, document_starts = 0;  // bytes into the file
  };
  MegatronFile(const std::string& prefix, ByteFile&& index_file);
  static Index read_index(const ByteFile& file, const std::string& tokens_path);
  void scan_sequences(std::int64_t share, std::int64_t shares) const;
  void scan_documents(std::int64_t share, std::int64_t shares) const;
  std::uint64_t token_of_sequence(std::uint64_t sequence, std::uint64_t start_bytes) const;

  ByteFile index_file_;
  Index index_;
};

/// Where the array of a .npy file lies. DataError for what is no array of integers of these types, big-endian, in
/// Fortran order, or not as long as the file.
ArrayPlace npy_array(const ByteFile& file);

/// Where the tokens of an llm.c file lie. DataError where header and size do not fit.
ArrayPlace llm_c_array(const ByteFile& file);
bool is_llm_c(std::string_view start);  ///< of its first 8 bytes

}  // namespace atl
