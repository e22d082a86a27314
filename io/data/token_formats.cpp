/// SPDX-License-Identifier: Apache-2.0
#include "io/data/token_formats.hpp"

#include "core/errors.hpp"
#include "io/checksum.hpp"
#include "io/data/token_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <glob.h>

namespace atl {

namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// PREFIX of PREFIX.idx that is there, if `path` names Megatron data.
std::optional<std::string> megatron_prefix(const std::string& path) {
  if (ends_with(path, ".idx")) return path.substr(0, path.size() - 4);
  if (ends_with(path, ".bin") && is_file(path.substr(0, path.size() - 4) + ".idx"))
    return path.substr(0, path.size() - 4);
  if (!fs::exists(path) && is_file(path + ".idx")) return path;
  return std::nullopt;
}

/// Ids of 32 and 64 bits, read as uint16, have a small number in every other place; those of text do not.
bool looks_wider(const ByteFile& file) {
  if (file.size() < 32 || file.size() % 4 != 0) return false;
  const std::string bytes = file.start(1 << 16);
  std::vector<std::uint16_t> values(bytes.size() / 2);
  std::memcpy(values.data(), bytes.data(), values.size() * 2);
  for (std::size_t i = 1; i < values.size(); i += 2)
    if (values[i] > 15) return false;  // a vocabulary of a million
  return true;
}

TokenType raw_type(const ByteFile& file, RawType given) {
  const TokenType type = given.value_or(TokenType::u16);
  if (!given && looks_wider(file))
    throw DataError(
        fmt::format("{}: has no header, and its bytes may be uint16 or uint32; say which by data.raw_type = "
                    "\"uint16\" or \"uint32\" (--raw-type)",
                    file.path()));
  if (file.size() % size_of(type) != 0)
    throw DataError(
        fmt::format("{}: {} bytes are not a whole number of {} tokens: is it cut, or of another type "
                    "(data.raw_type)?",
                    file.path(), file.size(), name_of(type)));
  return type;
}

/// What to do about a file that holds no tokens as they are.
std::string advice(const std::string& start) {
  const auto begins = [&](std::string_view magic) { return start.compare(0, magic.size(), magic) == 0; };
  if (begins("PAR1"))
    return "is Parquet, which atoll does not read: write its text column as JSON Lines (docs/data.md), then atoll "
           "tokenize";
  if (begins("PK\x03\x04")) return "is a zip archive (.npz?): save the array alone, by numpy.save, as .npy";
  if (begins("\x1f\x8b") || begins("\x28\xb5\x2f\xfd") || begins("BZh") ||
      begins("\xfd"
             "7zXZ"))
    return "is compressed: decompress it; atoll tokenize reads compressed text as it is";
  const bool text = std::all_of(start.begin(), start.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\r' || c == '\t';
  });
  if (text && !start.empty()) return "is text: make tokens of it by atoll tokenize";
  return "is none of the formats of token data: HDF5 of atoll tokenize, .npy, llm.c, Megatron; where it is an array "
         "without a header, say of which type by data.raw_type = \"uint16\" or \"uint32\" (--raw-type)";
}

}  // namespace

std::shared_ptr<const TokenSource> open_tokens(const std::string& path, RawType raw) {
  if (const auto prefix = megatron_prefix(path)) return std::make_shared<MegatronFile>(*prefix);
  const ByteFile file(path);
  const std::string start = file.start(512);
  if (start.compare(0, 8, "\x89HDF\r\n\x1a\n") == 0) return std::make_shared<TokenFile>(path);
  if (start.compare(0, 6, "\x93NUMPY") == 0) return std::make_shared<TokenArray>(path, npy_array(file));
  if (is_llm_c(start)) return std::make_shared<TokenArray>(path, llm_c_array(file));
  if (!raw && !ends_with(path, ".bin")) throw DataError(path + ": " + advice(start));
  const TokenType type = raw_type(file, raw);
  return std::make_shared<TokenArray>(path, ArrayPlace{type, 0, file.size() / size_of(type)});
}

std::vector<std::string> find_token_files(const std::string& path) {
  if (path.find_first_of("*?[") == std::string::npos || fs::exists(path)) return {path};
  ::glob_t matches{};
  const int failure = ::glob(path.c_str(), GLOB_ERR, nullptr, &matches);
  std::vector<std::string> found;
  for (std::size_t i = 0; failure == 0 && i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
  ::globfree(&matches);
  if (failure != 0 && failure != GLOB_NOMATCH) throw DataError(path + ": a folder of this pattern cannot be read");
  std::sort(found.begin(), found.end());  // by bytes: the same in every locale
  const auto names = found;
  found.erase(std::remove_if(found.begin(), found.end(),
                             [&](const std::string& name) {
                               return ends_with(name, ".idx") &&
                                      std::binary_search(names.begin(), names.end(),
                                                         name.substr(0, name.size() - 4) + ".bin");
                             }),
              found.end());
  if (found.empty()) throw DataError(path + ": no file matches this pattern");
  return found;
}

JoinedTokens::JoinedTokens(std::string name, std::vector<std::shared_ptr<const TokenSource>> parts)
    : name_(std::move(name)), parts_(std::move(parts)) {
  ATOLL_REQUIRE(!parts_.empty());
  for (const auto& part : parts_) begins_.push_back(begins_.back() + part->tokens());
}

std::int64_t JoinedTokens::vocab_size() const {
  std::int64_t largest = 0;
  for (const auto& part : parts_) {
    if (part->vocab_size() == 0) return 0;
    largest = std::max(largest, part->vocab_size());
  }
  return largest;
}

std::string JoinedTokens::fingerprint() const {
  std::string all;
  for (const auto& part : parts_)
    all += fmt::format("{}{}:{}", all.empty() ? "" : " ", part->tokens(), part->fingerprint());
  Checksum sum;
  sum.update(all.data(), all.size());
  return sum.text();
}

std::int64_t JoinedTokens::documents() const {
  std::int64_t all = 0;
  for (const auto& part : parts_) {
    if (part->documents() < 0) return -1;
    all += part->documents();
  }
  return all;
}

void JoinedTokens::read_offsets(std::int64_t first, std::span<std::uint64_t> out) const {
  if (out.empty()) return;
  ATOLL_REQUIRE(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= documents() + 1);
  for (std::size_t part = 0; part < parts_.size() && !out.empty(); ++part) {
    const std::int64_t here = parts_[part]->documents();
    if (first < here) {
      const auto count = std::min(out.size(), static_cast<std::size_t>(here - first));
      parts_[part]->read_offsets(first, out.first(count));
      for (auto& offset : out.first(count)) offset += static_cast<std::uint64_t>(begins_[part]);
      out = out.subspan(count);
      first = here;
    }
    first -= here;
  }
  if (!out.empty()) out[0] = static_cast<std::uint64_t>(tokens());  // the end of the last document
}

void JoinedTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  ATOLL_REQUIRE(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= tokens());
  while (!out.empty()) {
    // The last part that begins at or before `begin`: empty ones before it are passed over.
    const auto part =
        static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin()) - 1;
    const auto count =
        static_cast<std::size_t>(std::min(static_cast<std::int64_t>(out.size()), begins_[part + 1] - begin));
    parts_[part]->read(begin - begins_[part], out.first(count));
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
  }
}

Scan JoinedTokens::scan(std::int64_t share, std::int64_t shares) const {
  Scan found;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const Scan here = parts_[part]->scan(share, shares);
    if (here.largest.id > found.largest.id) found.largest = {here.largest.id, here.largest.position + begins_[part]};
  }
  return found;
}

std::shared_ptr<const TokenSource> join(const std::string& name,
                                        std::vector<std::shared_ptr<const TokenSource>> parts) {
  if (parts.size() == 1) return parts[0];
  return std::make_shared<JoinedTokens>(name, std::move(parts));
}

}  // namespace atl
