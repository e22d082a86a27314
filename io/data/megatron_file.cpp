/// Megatron's index. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/data/token_array.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace atl {

namespace {

constexpr std::uint64_t header_bytes = 34;
constexpr std::int64_t entries = 1 << 19;  // of the index read at once: 4 MiB

[[noreturn]] void wrong(const ByteFile& file, const std::string& reason) {
  throw DataError(fmt::format("{}: {}", file.path(), reason));
}

template <class T>
std::vector<T> read_entries(const ByteFile& file, std::uint64_t array, std::uint64_t first, std::uint64_t count) {
  std::vector<T> values(count);
  file.read(array + first * sizeof(T), values.data(), count * sizeof(T));
  return values;
}

}  // namespace

MegatronFile::MegatronFile(const std::string& prefix) : MegatronFile(prefix, ByteFile(prefix + ".idx")) {}

MegatronFile::MegatronFile(const std::string& prefix, ByteFile&& index_file)
    : TokenArray(prefix + ".bin", read_index(index_file, prefix + ".bin").tokens),
      index_file_(std::move(index_file)),
      index_(read_index(index_file_, prefix + ".bin")) {}

MegatronFile::Index MegatronFile::read_index(const ByteFile& file, const std::string& tokens_path) {
  const std::string start = file.start(header_bytes);
  if (start.size() < header_bytes || start.compare(0, 9, std::string("MMIDIDX\0\0", 9)) != 0)
    wrong(file, "is not a Megatron index: it does not begin with MMIDIDX");
  if (const auto version = file.value<std::uint64_t>(9); version != 1)
    wrong(file, fmt::format("Megatron index of version {}; version 1 is read", version));
  Index index;
  switch (const auto code = file.value<std::uint8_t>(17)) {
    case 1:
      index.tokens.type = TokenType::u8;
      break;
    case 3:
      index.tokens.type = TokenType::i16;
      break;
    case 4:
      index.tokens.type = TokenType::i32;
      break;
    case 5:
      index.tokens.type = TokenType::i64;
      break;
    case 8:
      index.tokens.type = TokenType::u16;
      break;
    default:
      wrong(file,
            fmt::format("elements of type {}, which are no token ids (uint8 1, int16 3, int32 4, int64 5, uint16 8)",
                        code));
  }
  index.sequences = file.value<std::uint64_t>(18);
  const auto starts = file.value<std::uint64_t>(26);
  const std::uint64_t room = file.size() - header_bytes;
  if (index.sequences > room / 12 || starts > (room - 12 * index.sequences) / 8 ||
      12 * index.sequences + 8 * starts != room)
    wrong(file, fmt::format("says {} sequences and {} document starts, 12 and 8 bytes each, but {} bytes follow its "
                            "header{}",
                            index.sequences, starts, room,
                            12 * static_cast<double>(index.sequences) + 8 * static_cast<double>(starts) <
                                    static_cast<double>(room)
                                ? " (an index with modes, of multimodal data, is not read)"
                                : ""));
  index.lengths = header_bytes;
  index.starts = index.lengths + 4 * index.sequences;
  index.document_starts = index.starts + 8 * index.sequences;
  const auto document = [&](std::uint64_t i) { return file.value<std::int64_t>(index.document_starts + 8 * i); };
  if (starts < 1 || document(0) != 0 || document(starts - 1) != static_cast<std::int64_t>(index.sequences))
    wrong(file,
          fmt::format("its documents do not reach from sequence 0 to {}, the number of sequences", index.sequences));
  index.documents = starts - 1;

  const ByteFile tokens(tokens_path);
  const std::uint64_t width = size_of(index.tokens.type);
  index.tokens.count = tokens.size() / width;
  std::uint64_t end = 0;
  if (index.sequences > 0) {
    const auto start_of_last = file.value<std::int64_t>(index.starts + 8 * (index.sequences - 1));
    const auto length = file.value<std::int32_t>(index.lengths + 4 * (index.sequences - 1));
    if (start_of_last < 0 || length < 0) wrong(file, "its last sequence has a negative start or length");
    end = static_cast<std::uint64_t>(start_of_last) + static_cast<std::uint64_t>(length) * width;
  }
  if (end != tokens.size())
    wrong(file, fmt::format("its sequences end at byte {} of {}, which has {} bytes: do the two belong together?", end,
                            tokens_path, tokens.size()));
  return index;
}

Scan MegatronFile::scan(std::int64_t share, std::int64_t shares) const {
  scan_sequences(share, shares);
  scan_documents(share, shares);
  return TokenArray::scan(share, shares);
}

/// Each sequence starts where the one before it ends.
void MegatronFile::scan_sequences(std::int64_t share, std::int64_t shares) const {
  const auto all = static_cast<std::int64_t>(index_.sequences);
  const auto width = static_cast<std::int64_t>(size_of(index_.tokens.type));
  for (std::int64_t begin = share * entries; begin < all; begin += shares * entries) {
    const auto count = static_cast<std::uint64_t>(std::min(entries, all - begin));
    const auto first = static_cast<std::uint64_t>(begin);
    const auto lengths = read_entries<std::int32_t>(index_file_, index_.lengths, first, count);
    const auto next = std::min(count + 1, index_.sequences - first);
    const auto starts = read_entries<std::int64_t>(index_file_, index_.starts, first, next);
    if (begin == 0 && starts[0] != 0) wrong(index_file_, fmt::format("sequence 0 starts at byte {}, not 0", starts[0]));
    for (std::uint64_t i = 0; i < count; ++i) {
      if (lengths[i] < 0) wrong(index_file_, fmt::format("sequence {} has {} tokens", first + i, lengths[i]));
      // No overflow: a start that is followed by a sequence is compared first, the last one was checked when opened.
      if (starts[i] < 0 || starts[i] > tokens() * width)
        wrong(index_file_, fmt::format("sequence {} starts at byte {}, outside of {}", first + i, starts[i], name()));
      const std::int64_t end = starts[i] + lengths[i] * width;
      if (i + 1 < next && starts[i + 1] != end)
        wrong(index_file_,
              fmt::format("sequence {} ends at byte {}, but the next one starts at {}; sequences with gaps "
                          "or in another order are not read: write the data again with Megatron's builder",
                          first + i, end, starts[i + 1]));
    }
  }
}

void MegatronFile::scan_documents(std::int64_t share, std::int64_t shares) const {
  const auto all = static_cast<std::int64_t>(index_.documents) + 1;
  for (std::int64_t begin = share * entries; begin < all; begin += shares * entries) {
    const std::int64_t before = begin == 0 ? 0 : begin - 1;
    const auto count = static_cast<std::uint64_t>(std::min(begin + entries, all) - before);
    const auto starts =
        read_entries<std::int64_t>(index_file_, index_.document_starts, static_cast<std::uint64_t>(before), count);
    for (std::size_t i = 1; i < count; ++i)
      if (starts[i] < starts[i - 1])
        wrong(index_file_, fmt::format("document {} starts at sequence {}, the one before it at {}",
                                       before + static_cast<std::int64_t>(i), starts[i], starts[i - 1]));
  }
}

std::uint64_t MegatronFile::token_of_sequence(std::uint64_t sequence, std::uint64_t start_bytes) const {
  const std::uint64_t width = size_of(index_.tokens.type);
  if (start_bytes % width != 0 || start_bytes / width > index_.tokens.count)
    wrong(index_file_, fmt::format("sequence {} starts at byte {} of {}", sequence, start_bytes, name()));
  return start_bytes / width;
}

void MegatronFile::read_offsets(std::int64_t first, std::span<std::uint64_t> out) const {
  if (out.empty()) return;
  ATOLL_REQUIRE(first >= 0 && static_cast<std::uint64_t>(first) + out.size() <= index_.documents + 1);
  const auto sequences =
      read_entries<std::uint64_t>(index_file_, index_.document_starts, static_cast<std::uint64_t>(first), out.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    if (sequences[i] > index_.sequences || (i > 0 && sequences[i] < sequences[i - 1]))
      wrong(index_file_, fmt::format("document {} starts at sequence {} of {}", first + static_cast<std::int64_t>(i),
                                     sequences[i], index_.sequences));
  // In one read where the documents have few sequences each, as they do; else start by start.
  const std::uint64_t begin = sequences.front(), span = std::min(sequences.back() + 1, index_.sequences) - begin;
  std::vector<std::uint64_t> starts;
  if (span <= 16 * out.size()) starts = read_entries<std::uint64_t>(index_file_, index_.starts, begin, span);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t at = sequences[i];
    out[i] = at == index_.sequences ? index_.tokens.count
             : starts.empty()       ? token_of_sequence(at, index_file_.value<std::uint64_t>(index_.starts + 8 * at))
                                    : token_of_sequence(at, starts[at - begin]);
  }
}

}  // namespace atl
