/// Documents of text, JSON Lines and compressed files. SPDX-License-Identifier: Apache-2.0
#include "io/data/text_documents.hpp"

#include "core/errors.hpp"
#include "io/data/byte_stream.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace atl {
namespace {

using Texts = std::vector<std::string>;

struct Collected : DocumentVisitor {
  Texts documents, places, broken;
  std::string now;
  std::int64_t bytes = 0;
  void text(std::string_view piece) override { now += piece; }
  void end_document(const std::string& place) override {
    documents.push_back(std::exchange(now, ""));
    places.push_back(place);
  }
  void broken_line(const std::string& reason) override { broken.push_back(reason); }
  void consumed(std::int64_t more) override { bytes += more; }
};

Collected read_all(const std::string& path, const TextLayout& layout = {}) {
  Collected found;
  read_documents(path, layout, found);
  return found;
}

/// Fed in pieces of every size.
Collected lines_of(const std::string& text, TextLayout layout = {}) {
  Collected first;
  for (std::size_t piece = 1; piece <= text.size() + 1; ++piece) {
    Collected found;
    JsonLines lines("x", layout, found);
    for (std::size_t at = 0; at < text.size(); at += piece) lines.feed(std::string_view(text).substr(at, piece));
    lines.finish();
    if (piece == 1) first = found;
    EXPECT_EQ(found.documents, first.documents) << piece;
    EXPECT_EQ(found.broken, first.broken) << piece;
  }
  return first;
}

TEST(JsonLines, TakeOneFieldOfEachLine) {
  const Collected found = lines_of(R"({"id": 1, "text": "one", "meta": {"text": "inner", "list": [{"text": 1}]}}
{"text": "t\"w\u00f6\n\ud83d\ude00", "text2": "no"}
)"
                                   "\r\n  \n{\"text\":\"\"}\r\n"
                                   R"({"list": ["text", "x"], "text": "last"})");
  EXPECT_EQ(found.documents, (Texts{"one", "t\"wö\n😀", "", "last"}));
  EXPECT_EQ(found.places, (Texts{"x:1", "x:2", "x:5", "x:6"}));
  EXPECT_TRUE(found.broken.empty());
  EXPECT_EQ(lines_of("{\"text\": 1, \"body\": \"b\", \"body\": \"c\"}", {.field = "body"}).documents, (Texts{"c"}));
}

TEST(JsonLines, SayWhatIsWrongWithALine) {
  const std::pair<const char*, const char*> lines[] = {
      {"{\"text\": \"a\"", "x:1: is not JSON: wrong at byte"},
      {"{\"text\": \"a\"} {}", "x:1: is not JSON: wrong at byte"},
      {"plain text", "x:1: is not JSON: wrong at byte"},
      {"[{\"text\": \"a\"}]", "x:1: is an array, not an object"},
      {"\"text\"", "x:1: is a string, not an object"},
      {"12", "x:1: is a number, not an object"},
      {"{\"body\": \"a\", \"id\": 3}", "x:1: has no key 'text'; it has body, id (--field names the key)"},
      {"{}", "x:1: has no key 'text'; it has none"},
      {"{\"meta\": {\"inner\": 1, \"text\": \"a\"}}", "x:1: has no key 'text'; it has meta ("},
      {"{\"text\": 5}", "x:1: has 'text', but it is a number, not a string"},
      {"{\"text\": null}", "x:1: has 'text', but it is null, not a string"},
      {"{\"text\": {\"text\": \"a\"}}", "x:1: has 'text', but it is an object, not a string"},
      {"{\"text\": [\"a\"]}", "x:1: has 'text', but it is an array, not a string"},
      {"{\"text\": \"a\\u0000b\"}", "x:1: has U+0000, a zero byte, in its 'text' (--invalid replace"},
      {"{\"text\": \"\\ud800\"}", "x:1: has half of a surrogate pair, which is no character (--invalid replace"},
      {"{\"text\": \"\\ud80x\"}", "x:1: is not JSON"},
      {"{\"text\": \"\xff\"}", "x:1: is not JSON"}};
  for (const auto& [line, message] : lines) {
    const Collected found = lines_of(line);
    ASSERT_EQ(found.broken.size(), 1u) << line;
    EXPECT_EQ(found.broken[0].substr(0, std::string(message).size()), message) << found.broken[0];
    EXPECT_TRUE(found.documents.empty());
  }
  const TextLayout replace{.replace_invalid = true};
  EXPECT_EQ(lines_of("{\"text\": \"\xff\"}\n{\"text\": \"a\\u0000b\"}", replace).documents, (Texts{"\xef\xbf\xbd",
                                                                                                   "a\xef\xbf\xbd"
                                                                                                   "b"}));
}

TEST(JsonLines, HalvesOfSurrogatePairsAreReplaced) {
  const TextLayout replace{.replace_invalid = true};
  const std::string mark = "\xef\xbf\xbd", smile = "\xf0\x9f\x98\x80";
  const std::pair<std::string, std::string> texts[] = {{"\\ud83d", mark},
                                                       {"\\uDE00\\uD83D", mark + mark},
                                                       {"\\ud83d\\ud83d\\ude00\\ude00", mark + smile + mark},
                                                       {"\\ude00\\ude01", mark + mark},
                                                       {"\\ud83d\\n", mark + "\n"},
                                                       {"\\\\ud83d", "\\ud83d"},
                                                       {"\\\\\\ud83d\\u00e9", "\\" + mark + "\u00e9"}};
  for (const auto& [written, text] : texts)
    EXPECT_EQ(lines_of("{\"other\": \"" + written + "\", \"text\": \"" + written + "\"}", replace).documents,
              (Texts{text}))
        << written;
  EXPECT_EQ(lines_of("{\"text\": \"\\ud83d\\ude00\"}").documents, (Texts{smile}));
}

TEST(JsonLines, DeepNestingAndLongLines) {
  const std::string deep = "{\"a\": " + std::string(1000000, '[') + std::string(1000000, ']') + ", \"text\": \"t\"}";
  Collected found;
  JsonLines lines("x", {}, found);
  lines.feed(deep + "\n");
  EXPECT_EQ(found.documents, (Texts{"t"}));
  const std::string megabyte(1u << 20, ' ');
  EXPECT_EQ(message_of<DataError>([&] {
              for (int i = 0; i < 257; ++i) lines.feed(megabyte);
            }),
            "x:2: the line is longer than 256 MiB; is it JSON Lines?");
}

// "hello\n" by gzip 1.12 and zstd 1.5.4.
const std::string gz(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\x00\x20\x30\x3a\x36\x06\x00\x00\x00", 26);
const std::string zst("\x28\xb5\x2f\xfd\x24\x06\x31\x00\x00hello\n\x53\x88\xbd\x91", 19);

TEST(ByteStream, DecompressesGzipAndZstandard) {
  const ScratchFolder folder;
  for (const std::string& packed : {gz, zst}) {
    EXPECT_EQ(read_all(folder.write("x", packed)).documents, (Texts{"hello\n"}));
    EXPECT_EQ(read_all(folder.write("x", packed + packed + packed)).documents, (Texts{"hello\nhello\nhello\n"}));
    const Collected whole = read_all(folder / "x");
    EXPECT_EQ(whole.bytes, static_cast<std::int64_t>(3 * packed.size()));
    for (std::size_t length = 4; length < packed.size(); ++length) {  // less is no compressed file
      const std::string message = message_of<DataError>([&] { read_all(folder.write("x", packed.substr(0, length))); });
      EXPECT_NE(message.find("ends inside of its compressed data"), std::string::npos) << length << message;
    }
    std::string flipped = packed;
    flipped[flipped.size() - (packed == gz ? 8 : 5)] ^= 1;  // of the checksum, of the text
    const std::string message = message_of<DataError>([&] { read_all(folder.write("x", flipped)); });
    EXPECT_NE(message.find("compressed data are corrupt"), std::string::npos) << message;
    EXPECT_NE(message_of<DataError>([&] { read_all(folder.write("x", packed + "garbage")); }).find("corrupt"),
              std::string::npos);
  }
  EXPECT_NE(message_of<DataError>([&] { read_all(folder.write("x", "BZh9")); }).find("bzip2 -d"), std::string::npos);
}

TEST(TextDocuments, TheNameTellsTheFormat) {
  const ScratchFolder folder;
  const std::string line = "{\"text\": \"a\"}\n";
  for (const char* name : {"x.jsonl", "x.ndjson", "x.jsonl.gz", "x.jsonl.zst"})
    EXPECT_EQ(read_all(folder.write(name, line)).documents, (Texts{"a"})) << name;
  for (const char* name : {"x.txt", "x.json", "jsonl", "x.gz"})
    EXPECT_EQ(read_all(folder.write(name, line)).documents, (Texts{line})) << name;
  EXPECT_EQ(read_all(folder / "x.jsonl", {.format = TextFormat::text}).documents, (Texts{line}));
  EXPECT_EQ(read_all(folder / "x.txt", {.format = TextFormat::json_lines}).documents, (Texts{"a"}));
}

}  // namespace
}  // namespace atl
