/// Token data in HDF5: writer and reader. SPDX-License-Identifier: Apache-2.0
///
/// Layout, version 2:
///   tokens     1-D, uint16 where vocab_size <= 65536, else uint32
///   documents  1-D, uint64: document d is tokens [documents[d], documents[d + 1]); one entry more than documents
///   attributes of the root: format_version, vocab_size, tokenizer, token_count, document_count, source_bytes,
///              first_token_bytes (those of source_bytes that the first tokens of the documents stand for; files of
///              earlier versions of atoll lack it), tokens_checksum, documents_checksum (block_checksum_text of the
///              data set's bytes in blocks of 4 MiB)
#pragma once

#include "io/checksum.hpp"
#include "io/data/token_source.hpp"
#include "io/hdf5.hpp"
#include "io/pending_file.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace atl {

/// Writes a token file piece by piece in bounded memory. The file appears when finish() returns.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& path, std::int64_t vocab_size, const std::string& tokenizer);

  /// Adds to the current document. DataError for an id outside the vocabulary.
  void append(std::span<const std::int32_t> tokens);
  /// Ends the current document, which was made from `source_bytes` of text, `first_token_bytes` of them by its first
  /// token: none where that is a mark.
  void end_document(std::int64_t source_bytes, std::int64_t first_token_bytes);
  /// Completes the file and gives it its name.
  void finish();

  const std::string& path() const { return pending_.path(); }
  std::int64_t tokens() const { return static_cast<std::int64_t>(tokens_.written + token_buffer_.size()); }
  std::int64_t documents() const { return document_count_; }
  std::int64_t source_bytes() const { return source_bytes_; }

 private:
  enum class Piece { full, last };
  /// A data set of unknown length: written in chunks, or at once where all of it fits in one.
  struct Column {
    explicit Column(const char* dataset) : name(dataset) {}
    std::string name;
    std::uint64_t written = 0, blocks = 0;
    std::uint64_t checksum = 0;
  };
  template <class T>
  void write(Column& column, const std::vector<T>& values, Piece piece);
  void write_tokens(Piece piece);
  void write_offsets(Piece piece);

  PendingFile pending_;
  Hdf5File file_;
  std::int64_t vocab_size_;
  Column tokens_{"tokens"}, documents_{"documents"};
  std::vector<std::int32_t> token_buffer_;
  std::vector<std::uint64_t> offset_buffer_{0};
  std::int64_t document_count_ = 0, source_bytes_ = 0, first_token_bytes_ = 0;
};

/// A token file, opened for reading. Structure, types, counts and the first and last offset are checked at once;
/// scan() and check() read everything: checksums, order of the offsets, token ids. All faults are DataErrors that name
/// file and reason.
class TokenFile : public TokenSource {
 public:
  explicit TokenFile(const std::string& path);

  std::string name() const override { return file_.path(); }
  std::int64_t tokens() const override { return tokens_; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::string fingerprint() const override;
  std::int64_t documents() const override { return documents_; }
  std::int64_t source_bytes() const { return source_bytes_; }
  /// Bytes of text of the documents' first tokens; none where the file does not say.
  std::optional<std::int64_t> first_token_bytes() const { return first_token_bytes_; }
  const std::string& tokenizer() const { return tokenizer_; }

  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  Scan scan(std::int64_t share, std::int64_t shares) const override;
  void check(const Scan& whole) const override;

  void read_offsets(std::int64_t first, std::span<std::uint64_t> out) const override {
    file_.read_flat("documents", first, out);
  }

 private:
  template <class T>
  void scan_tokens(std::int64_t share, std::int64_t shares, Scan& found) const;
  void scan_offsets(std::int64_t share, std::int64_t shares, Scan& found) const;
  void require_checksum(const std::string& dataset, std::uint64_t found) const;

  Hdf5File file_;
  std::int64_t tokens_ = 0, documents_ = 0, vocab_size_ = 0, source_bytes_ = 0;
  std::optional<std::int64_t> first_token_bytes_;
  std::string tokenizer_;
  Stored type_ = Stored::u16;
};

}  // namespace atl
