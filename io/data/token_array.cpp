/// Arrays of integers as token sources. SPDX-License-Identifier: Apache-2.0
#include "io/data/token_array.hpp"

#include "core/errors.hpp"
#include "io/checksum.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace atl {

namespace {

static_assert(std::endian::native == std::endian::little, "token arrays are little-endian, and so must the machine be");

constexpr std::uint64_t block_bytes = 4u << 20;                         // of one read of a scan, and of the checksum
constexpr std::int32_t magic_gpt2 = 20240520, magic_llama3 = 20240801;  // of llm.c: uint16 and uint32
constexpr std::int64_t largest_id = std::numeric_limits<std::int32_t>::max();

template <class F>
void with_type(TokenType type, const F& f) {
  switch (type) {
    case TokenType::u8:
      return f(std::uint8_t{});
    case TokenType::u16:
      return f(std::uint16_t{});
    case TokenType::i16:
      return f(std::int16_t{});
    case TokenType::u32:
      return f(std::uint32_t{});
    case TokenType::i32:
      return f(std::int32_t{});
    case TokenType::i64:
      return f(std::int64_t{});
  }
}

}  // namespace

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return "uint8";
    case TokenType::u16:
      return "uint16";
    case TokenType::i16:
      return "int16";
    case TokenType::u32:
      return "uint32";
    case TokenType::i32:
      return "int32";
    case TokenType::i64:
      return "int64";
  }
  return "";
}

std::uint64_t size_of(TokenType type) {
  std::uint64_t bytes = 0;
  with_type(type, [&](auto zero) { bytes = sizeof zero; });
  return bytes;
}

TokenArray::TokenArray(const std::string& path, ArrayPlace place) : file_(path), place_(place) {
  const std::uint64_t room = file_.size() < place.offset ? 0 : (file_.size() - place.offset) / size_of(place.type);
  if (place.count > room)
    throw DataError(fmt::format("{}: should hold {} tokens of {} bytes from byte {} on, but has {} bytes: is it cut?",
                                path, place.count, size_of(place.type), place.offset, file_.size()));
}

std::string TokenArray::fingerprint() const {
  if (fingerprint_.empty()) fingerprint_ = block_checksum_text(TokenArray::scan(0, 1).tokens);
  return fingerprint_;
}

void TokenArray::check(const Scan& whole) const { fingerprint_ = block_checksum_text(whole.tokens); }

void TokenArray::read(std::int64_t begin, std::span<std::int32_t> out) const {
  ATOLL_REQUIRE(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= tokens());
  with_type(place_.type, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> buffer(out.size());
    file_.read(place_.offset + static_cast<std::uint64_t>(begin) * sizeof(T), buffer.data(), buffer.size() * sizeof(T));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto id = static_cast<std::int64_t>(buffer[i]);
      if (id < 0 || id > largest_id)
        throw DataError(
            fmt::format("{}: {} at position {} is not a token id", name(), id, begin + static_cast<std::int64_t>(i)));
      out[i] = static_cast<std::int32_t>(id);
    }
  });
}

Scan TokenArray::scan(std::int64_t share, std::int64_t shares) const {
  Scan found;
  with_type(place_.type, [&](auto zero) {
    using T = decltype(zero);
    constexpr std::int64_t length = block_bytes / sizeof(T);
    std::vector<T> buffer;
    for (std::int64_t block = share; block * length < tokens(); block += shares) {
      const std::int64_t begin = block * length;
      buffer.resize(static_cast<std::size_t>(std::min(length, tokens() - begin)));
      file_.read(place_.offset + static_cast<std::uint64_t>(begin) * sizeof(T), buffer.data(),
                 buffer.size() * sizeof(T));
      found.tokens += block_checksum(static_cast<std::uint64_t>(block), buffer.data(), buffer.size() * sizeof(T));
      const auto least = std::min_element(buffer.begin(), buffer.end());
      if (static_cast<std::int64_t>(*least) < 0)
        throw DataError(
            fmt::format("{}: {} at position {} is not a token id", name(), *least, begin + (least - buffer.begin())));
      // The first of equal largest ids (std::minmax_element tells the last).
      const auto largest = std::max_element(buffer.begin(), buffer.end());
      if (const auto id = static_cast<std::int64_t>(*largest); id > found.largest.id)
        found.largest = {id, begin + (largest - buffer.begin())};
    }
  });
  return found;
}

bool is_llm_c(std::string_view start) {
  std::int32_t head[2] = {};
  if (start.size() < sizeof head) return false;
  std::memcpy(head, start.data(), sizeof head);
  return head[0] == magic_gpt2 || head[0] == magic_llama3;
}

ArrayPlace llm_c_array(const ByteFile& file) {
  constexpr std::uint64_t header = 256 * 4;
  if (file.size() < header)
    throw DataError(
        fmt::format("{}: begins as llm.c's files do, but ends in its header of {} bytes", file.path(), header));
  const bool narrow = file.value<std::int32_t>(0) == magic_gpt2;
  const std::int32_t version = file.value<std::int32_t>(4), known = narrow ? 1 : 7;
  if (version != known)
    throw DataError(fmt::format("{}: llm.c's header has version {}; of this kind ({}) only version {} is known",
                                file.path(), version, file.value<std::int32_t>(0), known));
  const ArrayPlace place{narrow ? TokenType::u16 : TokenType::u32, header, file.value<std::uint32_t>(8)};
  if (file.size() - header != place.count * size_of(place.type))
    throw DataError(
        fmt::format("{}: llm.c's header says {} tokens of {} bytes, but {} bytes follow it; copy or write "
                    "the file again",
                    file.path(), place.count, size_of(place.type), file.size() - header));
  return place;
}

}  // namespace atl
