/// Every rule of UTF-8. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/utf8.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

using namespace std::string_literals;

struct Read {
  std::string text;
  std::int64_t first_invalid = -1;
  bool operator==(const Read&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Read& read) { return out << read.text << " @" << read.first_invalid; }

/// Reads `bytes` in pieces of `piece` bytes.
Read read(const std::string& bytes, std::size_t piece) {
  Utf8Reader reader;
  Read result;
  for (std::size_t i = 0; i < bytes.size(); i += piece)
    reader.feed(std::string_view(bytes).substr(i, piece), result.text);
  reader.finish(result.text);
  if (reader.first_invalid()) result.first_invalid = static_cast<std::int64_t>(*reader.first_invalid());
  return result;
}

void expect_read(const std::string& bytes, const Read& expected) {
  for (std::size_t piece = 1; piece <= bytes.size() + 1; ++piece) {
    EXPECT_EQ(read(bytes, piece), expected) << "pieces of " << piece;
  }
}

TEST(Utf8, ValidTextIsUnchanged) {
  // The first and the last character of each length, and both neighbours of the surrogates.
  const auto text =
      "\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"s;
  expect_read(text, {text, -1});
}

TEST(Utf8, InvalidSequencesAreReplacedAndLocated) {
  const auto r = "\xef\xbf\xbd"s;
  expect_read("ab\xff", {"ab" + r, 2});
  expect_read("a\x80z", {"a" + r + "z", 1});            // a continuation without a start
  expect_read("\xc0\xaf", {r + r, 0});                  // overlong
  expect_read("\xc1\xbf", {r + r, 0});                  // overlong
  expect_read("\xe0\x9f\xbf", {r + r + r, 0});          // overlong
  expect_read("\xf0\x8f\xbf\xbf", {r + r + r + r, 0});  // overlong
  expect_read("\xed\xa0\x80", {r + r + r, 0});          // a surrogate
  expect_read("\xf4\x90\x80\x80", {r + r + r + r, 0});  // above U+10FFFF
  expect_read("\xf5", {r, 0});
  expect_read("x\xe2\x82", {"x" + r, 1});                    // cut at the end
  expect_read("x\xe2\x82y", {"x" + r + "y", 1});             // cut by another character
  expect_read("\xe2\xe2\x82\xac", {r + "\xe2\x82\xac", 0});  // cut by the start of a valid one
  expect_read("\xf0\x90\x80z\xff", {r + "z" + r, 0});
}

// Example of the Unicode standard, chapter 3, table "U+FFFD for truncated sequences".
TEST(Utf8, ReplacesMaximalParts) {
  const auto r = "\xef\xbf\xbd"s;
  expect_read("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", {r + r + r + r + "A", 0});
}

TEST(Utf8, ZeroBytesAreNotText) {
  Utf8Reader reader;
  std::string text;
  reader.feed("ab\0c"s, text);
  EXPECT_EQ(reader.first_invalid(), 2u);
  EXPECT_TRUE(reader.has_zero_byte());
  EXPECT_EQ(text,
            "ab\xef\xbf\xbd"
            "c");
}

}  // namespace
}  // namespace atl
