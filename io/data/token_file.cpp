/// Writing, checking and reading token files. SPDX-License-Identifier: Apache-2.0
#include "io/data/token_file.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace atl {

namespace {

// Checksums are those of the bytes in the file, which are little-endian.
static_assert(std::endian::native == std::endian::little, "checksums of token files need a little-endian machine");

constexpr std::int64_t format_version = 2;
// Chunks of HDF5 and blocks of the checksums, 4 MiB: larger than HDF5's chunk cache of 1 MiB, so that reading a
// sequence reads its bytes and not a whole chunk.
constexpr std::uint64_t chunk_bytes = 4u << 20;

/// f(block, begin, elements) for every shares-th block of `size` elements of type T, from `share` on.
template <class T, class F>
void for_each_block(std::int64_t size, std::int64_t share, std::int64_t shares, const F& f) {
  constexpr std::int64_t length = chunk_bytes / sizeof(T);
  std::vector<T> buffer;
  for (std::int64_t block = share; block * length < size; block += shares) {
    buffer.resize(static_cast<std::size_t>(std::min(length, size - block * length)));
    f(static_cast<std::uint64_t>(block), block * length, buffer);
  }
}

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

void TokenFileWriter::end_document(std::int64_t source_bytes, std::int64_t first_token_bytes) {
  offset_buffer_.push_back(static_cast<std::uint64_t>(tokens()));
  if (offset_buffer_.size() == chunk_bytes / 8) write_offsets(Piece::full);
  ++document_count_;
  source_bytes_ += source_bytes;
  first_token_bytes_ += first_token_bytes;
}

void TokenFileWriter::finish() {
  ATOLL_REQUIRE(document_count_ > 0 || tokens() == 0);
  write_tokens(Piece::last);
  write_offsets(Piece::last);
  file_.set_integer_attribute("token_count", tokens());
  file_.set_integer_attribute("document_count", document_count_);
  file_.set_integer_attribute("source_bytes", source_bytes_);
  file_.set_integer_attribute("first_token_bytes", first_token_bytes_);
  file_.set_string_attribute("tokens_checksum", block_checksum_text(tokens_.checksum));
  file_.set_string_attribute("documents_checksum", block_checksum_text(documents_.checksum));
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
  if (!values.empty()) column.checksum += block_checksum(column.blocks++, values.data(), values.size() * sizeof(T));
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
        fmt::format("{}: token file of version {}; this atoll reads version {}: tokenize the text again with it", path,
                    version, format_version));
  }
  vocab_size_ = file_.integer_attribute("vocab_size");
  tokenizer_ = file_.string_attribute("tokenizer");
  source_bytes_ = file_.integer_attribute("source_bytes");
  if (file_.has_attribute("first_token_bytes")) first_token_bytes_ = file_.integer_attribute("first_token_bytes");
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

std::string TokenFile::fingerprint() const { return file_.string_attribute("tokens_checksum"); }

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

Scan TokenFile::scan(std::int64_t share, std::int64_t shares) const {
  Scan found;
  scan_offsets(share, shares, found);
  if (type_ == Stored::u16)
    scan_tokens<std::uint16_t>(share, shares, found);
  else
    scan_tokens<std::uint32_t>(share, shares, found);
  return found;
}

void TokenFile::check(const Scan& whole) const {
  require_checksum("documents", whole.documents);
  require_checksum("tokens", whole.tokens);
  if (whole.largest.id < vocab_size_) return;
  throw DataError(fmt::format("{}: token {} at position {} is outside the file's own vocabulary of {}", name(),
                              whole.largest.id, whole.largest.position, vocab_size_));
}

template <class T>
void TokenFile::scan_tokens(std::int64_t share, std::int64_t shares, Scan& found) const {
  for_each_block<T>(tokens_, share, shares, [&](std::uint64_t block, std::int64_t begin, std::vector<T>& buffer) {
    file_.read_flat("tokens", static_cast<std::uint64_t>(begin), buffer);
    found.tokens += block_checksum(block, buffer.data(), buffer.size() * sizeof(T));
    const auto largest = std::max_element(buffer.begin(), buffer.end());
    if (*largest > found.largest.id) found.largest = {*largest, begin + (largest - buffer.begin())};
  });
}

void TokenFile::scan_offsets(std::int64_t share, std::int64_t shares, Scan& found) const {
  using Offsets = std::vector<std::uint64_t>;
  for_each_block<std::uint64_t>(
      documents_ + 1, share, shares, [&](std::uint64_t block, std::int64_t begin, Offsets& buffer) {
        std::uint64_t previous[1] = {0};
        if (begin > 0) file_.read_flat("documents", static_cast<std::uint64_t>(begin - 1), previous);
        file_.read_flat("documents", static_cast<std::uint64_t>(begin), buffer);
        found.documents += block_checksum(block, buffer.data(), buffer.size() * sizeof(buffer[0]));
        for (std::size_t i = 0; i < buffer.size(); previous[0] = buffer[i++]) {
          if (buffer[i] >= previous[0]) continue;
          throw DataError(fmt::format("{}: document offsets decrease, {} after {}, at entry {}", name(), buffer[i],
                                      previous[0], begin + static_cast<std::int64_t>(i)));
        }
      });
}

void TokenFile::require_checksum(const std::string& dataset, std::uint64_t sum) const {
  const std::string expected = file_.string_attribute(dataset + "_checksum"), found = block_checksum_text(sum);
  if (found == expected) return;
  throw DataError(fmt::format("{}: checksum of '{}' is {}, the file says {}: its bytes changed since it was written",
                              name(), dataset, found, expected));
}

}  // namespace atl
