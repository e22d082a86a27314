/// The header of NumPy's .npy files (numpy/lib/format.py). SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/data/token_array.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace atl {

namespace {

/// Reads the literal of a Python dictionary with the three keys of a header; throws DataError for all else.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        skip_space();
        if (at_ < text_.size() && text_[at_] == '[') fail("has fields with names, not one array of integers");
        set(descr, string(), key);
      } else if (key == "fortran_order") {
        set(fortran_order, boolean(), key);
      } else if (key == "shape") {
        set(shape, tuple(), key);
      } else {
        fail("has the unknown key '" + key + "'");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("goes on after its end");
    if (!descr || !fortran_order || !shape) fail("lacks one of descr, fortran_order and shape");
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: the header of this .npy file {}", path_, reason));
  }

  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;

 private:
  template <class T>
  void set(std::optional<T>& target, T value, const std::string& key) const {
    if (target) fail("has " + key + " twice");
    target = std::move(value);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("has no '{}' at its byte {}", c, at_));
  }
  std::string string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') fail(fmt::format("has no string at its byte {}", at_));
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos || end - at_ > 64) fail("has a string without end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_space();
    for (const auto& [name, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}}) {
      if (text_.substr(at_, name.size()) != name) continue;
      at_ += name.size();
      return value;
    }
    fail("has a fortran_order that is neither True nor False");
  }
  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> values;
    expect('(');
    while (!accept(')')) {
      values.push_back(number());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }
  std::uint64_t number() {
    skip_space();
    std::uint64_t value = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (at_ - begin == 18) fail("has a shape that is too large");
      value = 10 * value + static_cast<std::uint64_t>(text_[at_] - '0');
    }
    if (at_ == begin) fail("has a shape that is no tuple of numbers");
    return value;
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t at_ = 0;
};

TokenType type_of(const HeaderParser& header) {
  static constexpr std::pair<std::string_view, TokenType> known[] = {{"|u1", TokenType::u8},  {"<u2", TokenType::u16},
                                                                     {"<i2", TokenType::i16}, {"<u4", TokenType::u32},
                                                                     {"<i4", TokenType::i32}, {"<i8", TokenType::i64}};
  for (const auto& [descr, type] : known)
    if (*header.descr == descr) return type;
  if (header.descr->substr(0, 1) == ">") header.fail("says '" + *header.descr + "', big-endian; save a.astype('<u4')");
  header.fail("says '" + *header.descr +
              "'; token ids are uint8, uint16, int16, uint32, int32 or int64: save a.astype('<u4')");
}

}  // namespace

ArrayPlace npy_array(const ByteFile& file) {
  const std::string start = file.start(12);
  const int version = start.size() < 10 ? 0 : static_cast<unsigned char>(start[6]);
  const std::uint64_t prefix = version == 1 ? 10 : 12;
  if (version < 1 || version > 3 || start[7] != 0 || file.size() < prefix)
    throw DataError(fmt::format("{}: .npy of version {}; versions 1 to 3 are read", file.path(), version));
  const std::uint64_t length = version == 1 ? file.value<std::uint16_t>(8) : file.value<std::uint32_t>(8);
  // NumPy itself refuses more than 10,000 bytes of header.
  if (length > 65535 || length > file.size() - prefix)
    throw DataError(
        fmt::format("{}: the header of this .npy file is {} bytes, the file {}", file.path(), length, file.size()));
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(prefix, text.data(), length);
  HeaderParser header(file.path(), text);
  header.parse();

  ArrayPlace place{type_of(header), prefix + length, 1};
  const auto longer = std::count_if(header.shape->begin(), header.shape->end(), [](std::uint64_t n) { return n > 1; });
  if (*header.fortran_order && longer > 1)
    header.fail("says Fortran order; save numpy.ascontiguousarray(a), or its transpose if the tokens run down columns");
  const std::uint64_t present = (file.size() - place.offset) / size_of(place.type);
  for (const std::uint64_t n : *header.shape) {
    if (n != 0 && place.count > present / n)
      header.fail(fmt::format("says more elements than the file has, {}", present));
    place.count *= n;
  }
  if (file.size() - place.offset != place.count * size_of(place.type))
    header.fail(fmt::format("says {} elements of {} bytes, but {} bytes follow it", place.count, size_of(place.type),
                            file.size() - place.offset));
  return place;
}

}  // namespace atl
