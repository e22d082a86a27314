/// Writing, checking and reading token files. SPDX-License-Identifier: Apache-2.0
#include "io/token_file.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace atl {

namespace {

// Checksums are those of the bytes in the file, which are little-endian.
static_assert(std::endian::native == std::endian::little, "checksums of token files need a little-endian machine");

constexpr std::int64_t format_version = 1;
// 4 MiB: larger than HDF5's chunk cache of 1 MiB, so that reading a sequence reads its bytes and not a whole chunk.
constexpr std::uint64_t chunk_bytes = 4u << 20;

Stored token_type(std::int64_t vocab_size) { return vocab_size <= 65536 ? Stored::u16 : Stored::u32; }

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t vocab_size, const std::string& tokenizer)
    : pending_(path), file_(Hdf5File::create(pending_.temporary())), vocab_size_(vocab_size) {
  ATOLL_REQUIRE(vocab_size >= 1 && vocab_size <= (std::int64_t{1} << 31));
  file_.set_integer_attribute("format_version", format_version);
  file_.set_integer_attribute("vocab_size", vocab_size);
  file_.set_string_attribute("tokenizer", tokenizer);
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens) {
  const std::uint64_t chunk = chunk_bytes / (token_type(vocab_size_) == Stored::u16 ? 2 : 4);
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= vocab_size_) {
      throw DataError(fmt::format("{}: token {} is outside the vocabulary of {}", pending_.path(), id, vocab_size_));
    }
    token_buffer_.push_back(id);
    if (token_buffer_.size() == chunk) write_tokens(Piece::full);
  }
}

void TokenFileWriter::end_document(std::int64_t source_bytes) {
  offset_buffer_.push_back(static_cast<std::uint64_t>(tokens()));
  if (offset_buffer_.size() == chunk_bytes / 8) write_offsets(Piece::full);
  ++document_count_;
  source_bytes_ += source_bytes;
}

void TokenFileWriter::finish() {
  ATOLL_REQUIRE(document_count_ > 0 || tokens() == 0);
  write_tokens(Piece::last);
  write_offsets(Piece::last);
  file_.set_integer_attribute("token_count", tokens());
  file_.set_integer_attribute("document_count", document_count_);
  file_.set_integer_attribute("source_bytes", source_bytes_);
  file_.set_string_attribute("tokens_checksum", tokens_.checksum.text());
  file_.set_string_attribute("documents_checksum", documents_.checksum.text());
  file_.close();
  pending_.publish();
}

template <class T>
void TokenFileWriter::write(Column& column, const std::vector<T>& values, Piece piece) {
  const std::uint64_t length = column.written + values.size();
  if (column.written == 0 && piece == Piece::last) {
    file_.create_dataset(column.name, {length}, stored_as<T>());
  } else {
    if (column.written == 0) file_.create_growing_dataset(column.name, stored_as<T>(), values.size());
    file_.extend(column.name, length);
  }
  file_.write_flat(column.name, column.written, values);
  column.checksum.update(values.data(), values.size() * sizeof(T));
  column.written = length;
}

void TokenFileWriter::write_tokens(Piece piece) {
  if (token_type(vocab_size_) == Stored::u16) {
    write(tokens_, std::vector<std::uint16_t>(token_buffer_.begin(), token_buffer_.end()), piece);
  } else {
    write(tokens_, std::vector<std::uint32_t>(token_buffer_.begin(), token_buffer_.end()), piece);
  }
  token_buffer_.clear();
}

void TokenFileWriter::write_offsets(Piece piece) {
  write(documents_, offset_buffer_, piece);
  offset_buffer_.clear();
}

TokenFile::TokenFile(const std::string& path) : file_(Hdf5File::open(path)) {
  for (const char* dataset : {"tokens", "documents"}) {
    if (file_.has_dataset(dataset)) continue;
    throw DataError(
        fmt::format("{}: has no data set '{}': is it a token file, as atoll tokenize writes them?", path, dataset));
  }
  if (const auto version = file_.integer_attribute("format_version"); version != format_version) {
    throw DataError(
        fmt::format("{}: token file of version {}; this atoll reads version {}", path, version, format_version));
  }
  vocab_size_ = file_.integer_attribute("vocab_size");
  tokenizer_ = file_.string_attribute("tokenizer");
  source_bytes_ = file_.integer_attribute("source_bytes");
  documents_ = file_.integer_attribute("document_count");
  type_ = file_.type("tokens");

  const auto require = [&](bool holds, const std::string& reason) {
    if (!holds) throw DataError(path + ": " + reason);
  };
  require(vocab_size_ >= 1 && vocab_size_ <= (std::int64_t{1} << 31), fmt::format("vocab_size = {}", vocab_size_));
  require(file_.shape("tokens").size() == 1 && file_.shape("documents").size() == 1,
          "tokens and documents must have one dimension");
  require(type_ == token_type(vocab_size_), fmt::format("tokens are {}, a vocabulary of {} needs {}", name_of(type_),
                                                        vocab_size_, name_of(token_type(vocab_size_))));
  require(file_.type("documents") == Stored::u64,
          fmt::format("documents are {}, not uint64", name_of(file_.type("documents"))));
  tokens_ = static_cast<std::int64_t>(file_.size("tokens"));
  const auto offsets = static_cast<std::int64_t>(file_.size("documents"));
  const auto token_count = file_.integer_attribute("token_count");
  require(token_count == tokens_, fmt::format("has {} tokens, but token_count = {}", tokens_, token_count));
  require(
      offsets >= 1 && offsets - 1 == documents_,
      fmt::format("has {} document offsets, but document_count = {} needs one more than that", offsets, documents_));

  std::uint64_t first[1], last[1];
  file_.read_flat("documents", 0, first);
  file_.read_flat("documents", static_cast<std::uint64_t>(documents_), last);
  require(first[0] == 0 && last[0] == static_cast<std::uint64_t>(tokens_),
          fmt::format("documents cover tokens [{}, {}), not [0, {})", first[0], last[0], tokens_));
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto widen = [&](auto& buffer) {
    buffer.resize(out.size());
    file_.read_flat("tokens", static_cast<std::uint64_t>(begin), buffer);
    std::transform(buffer.begin(), buffer.end(), out.begin(), [](auto id) { return static_cast<std::int32_t>(id); });
  };
  if (type_ == Stored::u16) {
    std::vector<std::uint16_t> buffer;
    widen(buffer);
  } else {
    std::vector<std::uint32_t> buffer;
    widen(buffer);
  }
}

LargestToken TokenFile::scan(const Progress& progress) const {
  scan_offsets();
  return type_ == Stored::u16 ? scan_tokens<std::uint16_t>(progress) : scan_tokens<std::uint32_t>(progress);
}

template <class T>
LargestToken TokenFile::scan_tokens(const Progress& progress) const {
  LargestToken largest;
  Checksum checksum;
  std::vector<T> buffer;
  for (std::int64_t begin = 0; begin < tokens_; begin += static_cast<std::int64_t>(buffer.size())) {
    buffer.resize(static_cast<std::size_t>(std::min<std::int64_t>(tokens_ - begin, chunk_bytes / sizeof(T))));
    file_.read_flat("tokens", static_cast<std::uint64_t>(begin), buffer);
    checksum.update(buffer.data(), buffer.size() * sizeof(T));
    const auto found = std::max_element(buffer.begin(), buffer.end());
    if (*found > largest.id) largest = {*found, begin + (found - buffer.begin())};
    if (progress) progress(begin + static_cast<std::int64_t>(buffer.size()));
  }
  require_checksum("tokens", checksum);
  if (largest.id >= vocab_size_) {
    throw DataError(fmt::format("{}: token {} at position {} is outside the file's own vocabulary of {}", name(),
                                largest.id, largest.position, vocab_size_));
  }
  return largest;
}

void TokenFile::scan_offsets() const {
  Checksum checksum;
  std::vector<std::uint64_t> buffer;
  std::uint64_t previous = 0;
  for (std::int64_t begin = 0; begin <= documents_; begin += static_cast<std::int64_t>(buffer.size())) {
    buffer.resize(static_cast<std::size_t>(std::min<std::int64_t>(documents_ + 1 - begin, chunk_bytes / 8)));
    file_.read_flat("documents", static_cast<std::uint64_t>(begin), buffer);
    checksum.update(buffer.data(), buffer.size() * sizeof(buffer[0]));
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] < previous) {
        throw DataError(fmt::format("{}: document offsets decrease, {} after {}, at entry {}", name(), buffer[i],
                                    previous, begin + static_cast<std::int64_t>(i)));
      }
      previous = buffer[i];
    }
  }
  require_checksum("documents", checksum);
}

void TokenFile::require_checksum(const std::string& dataset, const Checksum& found) const {
  const std::string expected = file_.string_attribute(dataset + "_checksum");
  if (found.text() == expected) return;
  throw DataError(fmt::format("{}: checksum of '{}' is {}, the file says {}: its bytes changed since it was written",
                              name(), dataset, found.text(), expected));
}

}  // namespace atl
