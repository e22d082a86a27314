/// Token arrays of other programs: files that NumPy and a script wrote, and headers that lie.
/// SPDX-License-Identifier: Apache-2.0
#include "io/data/token_formats.hpp"

#include "core/errors.hpp"
#include "io/data/token_file.hpp"
#include "io/data/token_statistics.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <sys/resource.h>

namespace atl {
namespace {

namespace fs = std::filesystem;

const std::string fixtures = ATOLL_SOURCE_DIR "/tests/fixtures/tokens/";

/// As tests/fixtures/make_token_arrays.py computes them.
std::vector<std::int32_t> expected(std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < 600; ++i) ids.push_back(static_cast<std::int32_t>((i * i * 7919 + 11) % vocabulary));
  return ids;
}

std::vector<std::int32_t> all_tokens(const TokenSource& source) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(source.tokens()));
  source.read(0, ids);
  return ids;
}

std::vector<std::uint64_t> all_offsets(const TokenSource& source) {
  std::vector<std::uint64_t> offsets(static_cast<std::size_t>(source.documents()) + 1);
  source.read_offsets(0, offsets);
  return offsets;
}

std::string fault(const std::string& path, RawType raw = {}) {
  return message_of<DataError>([&] { open_tokens(path, raw)->scan_all(); });
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// `content` with the bytes of `value` at `at`.
template <class T>
std::string patched(std::string content, std::size_t at, T value) {
  std::memcpy(content.data() + at, &value, sizeof value);
  return content;
}

struct Format {
  const char* file;
  std::int64_t vocabulary;
  RawType raw = std::nullopt;
};
class TokenFormats : public ::testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(Files, TokenFormats,
                         ::testing::Values(Format{"nanogpt.bin", 50257},
                                           Format{"raw_uint32.bin", 128256, TokenType::u32},
                                           Format{"llm_c_gpt2.bin", 50257}, Format{"llm_c_llama3.bin", 128256},
                                           Format{"v1_uint16.npy", 50257}, Format{"v2_uint32.npy", 128256},
                                           Format{"v3_int64.npy", 128256}, Format{"rows_int32.npy", 128256},
                                           Format{"megatron_uint16", 50257}, Format{"megatron_uint16.bin", 50257},
                                           Format{"megatron_int32.idx", 128256}));

TEST_P(TokenFormats, HoldWhatWasWritten) {
  const auto [file, vocabulary, raw] = GetParam();
  const auto source = open_tokens(fixtures + file, raw);
  const auto ids = expected(vocabulary);
  EXPECT_EQ(all_tokens(*source), ids);
  std::vector<std::int32_t> some(7);
  source->read(123, some);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), ids.begin() + 123));
  const LargestToken largest = source->scan_all();
  const auto most = std::max_element(ids.begin(), ids.end());
  EXPECT_EQ(largest.id, *most);
  EXPECT_EQ(largest.position, most - ids.begin());
  EXPECT_EQ(message_of<DataError>([&] { require_vocabulary(*source, largest, *most); }),
            source->name() + ": token " + std::to_string(*most) + " at position " + std::to_string(largest.position) +
                " is outside the model's vocabulary of " + std::to_string(*most) +
                "; set model.vocab_size to at least " + std::to_string(*most + 1) + ", or use other data");
  EXPECT_EQ(source->fingerprint(), open_tokens(fixtures + file, raw)->fingerprint());  // checked, and not
}

TEST(Megatron, KeepsDocumentsApart) {
  for (const char* file : {"megatron_uint16", "megatron_int32"}) {
    const auto source = open_tokens(fixtures + file, {});
    ASSERT_EQ(source->documents(), 5);
    EXPECT_EQ(all_offsets(*source), (std::vector<std::uint64_t>{0, 100, 101, 101, 351, 600}));
    std::vector<std::uint64_t> two(2);
    source->read_offsets(3, two);
    EXPECT_EQ(two, (std::vector<std::uint64_t>{101, 351}));
  }
}

TEST(Megatron, DocumentsOfManySequences) {  // more than an offset's read takes at once
  const ScratchFolder folder;
  std::vector<std::int32_t> lengths(1000, 2);
  std::vector<std::int64_t> starts(1000), documents{0, 999, 1000};
  for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<std::int64_t>(4 * i);
  std::string index("MMIDIDX\0\0", 9);
  index += bytes_of(std::vector<std::uint64_t>{1}) + std::string(1, 8) + bytes_of(std::vector<std::uint64_t>{1000, 3});
  folder.write("x.idx", index + bytes_of(lengths) + bytes_of(starts) + bytes_of(documents));
  folder.write("x.bin", std::string(4000, '\1'));
  const auto source = open_tokens(folder / "x", {});
  EXPECT_EQ(all_offsets(*source), (std::vector<std::uint64_t>{0, 1998, 2000}));
  EXPECT_EQ(source->scan_all().id, 257);
}

TEST(Megatron, IndexThatLies) {
  const ScratchFolder folder;
  const std::string index = content_of(fixtures + "megatron_uint16.idx"),
                    tokens = content_of(fixtures + "megatron_uint16.bin");
  folder.write("x.bin", tokens);
  const auto fault_with = [&](const std::string& changed) {
    folder.write("x.idx", changed);
    return fault(folder / "x.bin");
  };
  EXPECT_EQ(fault_with(index), "");
  const std::size_t lengths = 34, starts = lengths + 7 * 4, documents = starts + 7 * 8;
  const std::pair<std::string, const char*> lies[] = {
      {patched(index, 0, 'X'), "does not begin with MMIDIDX"},
      {index.substr(0, 20), "does not begin with MMIDIDX"},
      {patched(index, 9, std::uint64_t{2}), "index of version 2"},
      {patched(index, 17, std::uint8_t{7}), "elements of type 7"},
      {patched(index, 17, std::uint8_t{4}), "last sequence"},  // starts are in bytes: only the last length tells
      {patched(index, 18, std::uint64_t{1} << 62), "4611686018427387904 sequences"},
      {patched(index, 18, std::uint64_t{0}), "0 sequences"},
      {patched(index, 26, ~std::uint64_t{0}), "18446744073709551615 document starts"},
      {index.substr(0, index.size() - 1), "6 document starts"},
      {index + std::string(7, '\1'), "modes, of multimodal"},
      {patched(index, lengths + 4, std::int32_t{2}), "sequence 1 ends at byte 204, but the next one starts at 202"},
      {patched(index, lengths + 4, std::int32_t{-1}), "sequence 1 has -1 tokens"},
      {patched(index, lengths + 24, std::int32_t{-1}), "negative start or length"},
      {patched(index, starts, std::int64_t{2}), "sequence 0 starts at byte 2"},
      {patched(index, starts + 8, std::int64_t{1} << 62), "the next one starts at 4611686018427387904"},
      {patched(index, documents, std::int64_t{1}), "do not reach from sequence 0 to 7"},
      {patched(index, documents + 8, std::int64_t{5}), "document 2 starts at sequence 2, the one before it at 5"},
      {patched(index, documents + 40, std::int64_t{8}), "do not reach from sequence 0 to 7"}};
  for (const auto& [changed, message] : lies) {
    const std::string told = fault_with(changed);
    EXPECT_TRUE(has(told, message) ||
                (std::string(message) == "last sequence" && has(told, "do the two belong together")))
        << message << ": " << told;
  }
  folder.write("x.idx", index);
  folder.write("x.bin", tokens.substr(2));
  EXPECT_TRUE(has(fault(folder / "x"), "do the two belong together?")) << fault(folder / "x");
  fs::remove(folder / "x.bin");
  EXPECT_TRUE(has(fault(folder / "x.idx"), "x.bin: cannot read it")) << fault(folder / "x.idx");
}

TEST(Npy, HeadersThatLie) {
  const ScratchFolder folder;
  const auto fault_of_header = [&](const std::string& header, std::size_t data = 24, char version = 1) {
    std::string file = std::string("\x93NUMPY") + version + '\0';
    file += version == 1 ? bytes_of(std::vector<std::uint16_t>{static_cast<std::uint16_t>(header.size())})
                         : bytes_of(std::vector<std::uint32_t>{static_cast<std::uint32_t>(header.size())});
    return fault(folder.write("x.npy", file + header + std::string(data, '\1')));
  };
  EXPECT_EQ(fault_of_header("{'descr': '<u2', 'fortran_order': False, 'shape': (12,), }  \n"), "");
  EXPECT_EQ(fault_of_header("{\"shape\":(3,4),\"descr\":\"<u2\",\"fortran_order\":False}", 24, 3), "");
  EXPECT_EQ(fault_of_header("{'descr': '<u2', 'fortran_order': True, 'shape': (1, 12), }"), "");  // both orders
  EXPECT_EQ(fault_of_header("{'descr': '<u2', 'fortran_order': False, 'shape': (), }", 2), "");
  const std::pair<const char*, const char*> lies[] = {
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (13,), }", "more elements than the file has, 12"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (11,), }", "says 11 elements of 2 bytes, but 24 bytes"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "more elements"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,), }", "too large"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (-1,), }", "no tuple of numbers"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (12,)", "has no '}'"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (12", "has no ')'"},
      {"{'descr': '<u2', 'fortran_order': False, 'shape': (12,), } x", "goes on after its end"},
      {"{'descr': '<u2', 'shape': (12,), }", "lacks one of"},
      {"{'descr': '<u2', 'descr': '<u4', 'fortran_order': False, 'shape': (12,), }", "has descr twice"},
      {"{'descr': '<u2', 'order': False, 'shape': (12,), }", "unknown key 'order'"},
      {"{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (12,), }", "fields with names"},
      {"{'descr': '<u2', 'fortran_order': Maybe, 'shape': (12,), }", "neither True nor False"},
      {"{'descr': '<u2", "string without end"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (12,), }", "token ids are uint8"},
      {"", "has no '{'"}};
  for (const auto& [header, message] : lies)
    EXPECT_TRUE(has(fault_of_header(header), message)) << header << ": " << fault_of_header(header);
  EXPECT_TRUE(has(fault(folder.write("x.npy", std::string("\x93NUMPY\x04\0xx", 10))), "version 4"));
  EXPECT_TRUE(has(fault(folder.write("x.npy", std::string("\x93NUMPY\x01\0\xff\xff", 10))), "is 65535 bytes"));
  EXPECT_TRUE(has(fault(folder.write("x.npy", "\x93NUMPY")), "version 0"));
  EXPECT_TRUE(has(fault(fixtures + "fortran.npy"), "Fortran order")) << fault(fixtures + "fortran.npy");
  EXPECT_TRUE(has(fault(fixtures + "big_endian.npy"), "big-endian"));
  EXPECT_TRUE(has(fault(fixtures + "floats.npy"), "says '<f4'"));
  EXPECT_TRUE(has(fault(fixtures + "archive.npz"), "numpy.save"));
}

TEST(TokenArray, IdsThatCannotBe) {
  const ScratchFolder folder;
  const std::string negative = folder.write("n.bin", bytes_of(std::vector<std::int32_t>{1, 2, -3, 4}));
  EXPECT_EQ(fault(negative, TokenType::i32), negative + ": -3 at position 2 is not a token id");
  EXPECT_EQ(message_of<DataError>([&] { all_tokens(*open_tokens(negative, TokenType::i32)); }),
            negative + ": -3 at position 2 is not a token id");
  const auto large =
      open_tokens(folder.write("l.bin", bytes_of(std::vector<std::int64_t>{1, 1ll << 40})), TokenType::i64);
  EXPECT_EQ(large->scan_all().id, 1ll << 40);  // above any vocabulary
  EXPECT_TRUE(has(message_of<DataError>([&] { all_tokens(*large); }), "1099511627776 at position 1"));
}

TEST(TokenFormats, WithoutAHeader) {
  const ScratchFolder folder;
  EXPECT_TRUE(has(fault(fixtures + "raw_uint32.bin"), "may be uint16 or uint32; say which by data.raw_type"))
      << fault(fixtures + "raw_uint32.bin");
  EXPECT_EQ(open_tokens(fixtures + "raw_uint32.bin", TokenType::u16)->tokens(), 1200);
  EXPECT_EQ(open_tokens(fixtures + "nanogpt.bin", TokenType::u16)->tokens(), 600);
  EXPECT_TRUE(has(fault(folder.write("odd.bin", "abc")), "3 bytes are not a whole number of uint16 tokens"));
  EXPECT_EQ(open_tokens(folder.write("empty.bin", ""), {})->tokens(), 0);
  // Without .bin a type must be given.
  const std::string other = folder.write("tokens.dat", content_of(fixtures + "nanogpt.bin"));
  EXPECT_TRUE(has(fault(other), "none of the formats of token data")) << fault(other);
  EXPECT_EQ(all_tokens(*open_tokens(other, TokenType::u16)), expected(50257));
}

TEST(TokenFormats, LlmCHeaderThatLies) {
  const ScratchFolder folder;
  const std::string good = content_of(fixtures + "llm_c_gpt2.bin");
  EXPECT_TRUE(
      has(fault(folder.write("x.bin", good.substr(0, good.size() - 2))), "600 tokens of 2 bytes, but 1198 bytes"));
  EXPECT_TRUE(has(fault(folder.write("x.bin", good + "xx")), "1202 bytes follow"));
  EXPECT_TRUE(has(fault(folder.write("x.bin", good.substr(0, 1000))), "ends in its header"));
  EXPECT_TRUE(has(fault(folder.write("x.bin", patched(good, 8, std::int32_t{-1}))), "4294967295 tokens"));
  for (const std::int32_t version : {0, 2, 7, -1})  // else its header would be tokens
    EXPECT_TRUE(has(fault(folder.write("x.bin", patched(good, 4, version))),
                    "has version " + std::to_string(version) + "; of this kind (20240520) only version 1 is known"));
  const std::string wide = content_of(fixtures + "llm_c_llama3.bin");
  EXPECT_TRUE(has(fault(folder.write("x.bin", patched(wide, 4, std::int32_t{1}))), "only version 7 is known"));
}

TEST(TokenFormats, TheFirstOfEqualIdsIsTold) {
  const ScratchFolder folder;
  std::string bytes(2 * 1000, '\0');
  for (const std::size_t place : {300, 301, 900}) bytes[2 * place] = 9;
  const auto source = open_tokens(folder.write("x.bin", bytes), TokenType::u16);
  EXPECT_EQ(source->scan_all().position, 300);
  EXPECT_EQ(token_statistics(*source, std::nullopt).largest.position, 300);
}

TEST(TokenFormats, SaysWhatToDoAboutOtherFiles) {
  const ScratchFolder folder;
  EXPECT_TRUE(has(fault(folder.write("a.parquet", "PAR1\x15\x04")), "JSON Lines"));
  EXPECT_TRUE(has(fault(folder.write("a.txt", "some text\n")), "make tokens of it by atoll tokenize"));
  EXPECT_TRUE(has(fault(folder.write("a.gz", "\x1f\x8b\x08")), "is compressed"));
  EXPECT_TRUE(has(fault(folder.path()), "is a folder; name its files"));
  EXPECT_TRUE(has(fault(folder / "none.bin"), "cannot read it: No such file"));
  EXPECT_TRUE(has(fault("/dev/null"), "is not a regular file"));
}

TEST(TokenFormats, PatternsNameFilesInOrder) {
  const ScratchFolder folder;
  for (const char* name : {"s_2.bin", "s_10.bin", "s_1.bin", "s_1.idx", "t.bin"}) folder.write(name, "");
  using Paths = std::vector<std::string>;
  EXPECT_EQ(find_token_files(folder / "s_*"), (Paths{folder / "s_1.bin", folder / "s_10.bin", folder / "s_2.bin"}));
  EXPECT_EQ(find_token_files(folder / "s_?.bin"), (Paths{folder / "s_1.bin", folder / "s_2.bin"}));
  EXPECT_EQ(find_token_files("none"), (Paths{"none"}));
  folder.write("x[1].bin", "");
  EXPECT_EQ(find_token_files(folder / "x[1].bin"), (Paths{folder / "x[1].bin"}));
  EXPECT_EQ(message_of<DataError>([&] { find_token_files(folder / "u*"); }),
            folder / "u*" + ": no file matches this pattern");
}

TEST(JoinedTokens, AreTheirPartsInARow) {
  const ScratchFolder folder;
  const auto empty = open_tokens(folder.write("empty.bin", ""), {});
  const auto first = open_tokens(fixtures + "megatron_uint16", {}),
             second = open_tokens(fixtures + "megatron_int32", {});
  const auto all = join("all", {empty, first, empty, second, empty});
  auto ids = expected(50257);
  const auto more = expected(128256);
  ids.insert(ids.end(), more.begin(), more.end());
  EXPECT_EQ(all_tokens(*all), ids);
  std::vector<std::int32_t> across(20);
  all->read(590, across);
  EXPECT_TRUE(std::equal(across.begin(), across.end(), ids.begin() + 590));
  const LargestToken largest = all->scan_all();
  EXPECT_EQ(largest.position, std::max_element(ids.begin(), ids.end()) - ids.begin());
  EXPECT_EQ(all->documents(), -1);  // `empty` does not say
  const auto both = join("both", {first, second});
  EXPECT_EQ(all_offsets(*both), (std::vector<std::uint64_t>{0, 100, 101, 101, 351, 600, 700, 701, 701, 951, 1200}));
  std::vector<std::uint64_t> middle(4);
  both->read_offsets(4, middle);
  EXPECT_EQ(middle, (std::vector<std::uint64_t>{351, 600, 700, 701}));
  EXPECT_NE(both->fingerprint(), join("", {second, first})->fingerprint());
}

TEST(TokenFormats, MoreFilesThanAProcessMayOpenAtFirst) {
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 512) GTEST_SKIP() << "the hard limit is too low";
  ::rlimit low = before;
  low.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const ScratchFolder folder;
  std::vector<std::shared_ptr<const TokenSource>> parts;
  for (int i = 0; i < 200; ++i)
    parts.push_back(open_tokens(folder.write(std::to_string(i) + ".bin", bytes_of(std::vector<std::uint16_t>{7})), {}));
  EXPECT_EQ(join("all", parts)->tokens(), 200);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

// Sparse files: 10 GB that take no room. One block of the end is read, not all of it.
TEST(TokenFormats, FilesAboveFourGigabytes) {
  const ScratchFolder folder;
  const std::int64_t count = 5'000'000'000;
  const std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (5000000000,), }\n";
  std::string start("\x93NUMPY\x01\0", 8);
  start += bytes_of(std::vector<std::uint16_t>{static_cast<std::uint16_t>(header.size())}) + header;
  for (const bool npy : {true, false}) {
    const std::string path = folder.write(npy ? "large.npy" : "large.bin", npy ? start : "");
    const std::uint64_t offset = npy ? start.size() : 0;
    fs::resize_file(path, offset + 2 * static_cast<std::uint64_t>(count));
    {
      std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(offset) + 2 * (count - 2));
      file << bytes_of(std::vector<std::uint16_t>{7, 60000});
    }
    const auto source = open_tokens(path, npy ? RawType{} : TokenType::u16);
    ASSERT_EQ(source->tokens(), count);
    std::vector<std::int32_t> end(3);
    source->read(count - 3, end);
    EXPECT_EQ(end, (std::vector<std::int32_t>{0, 7, 60000}));
    const std::int64_t blocks = (count + 2097151) / 2097152;
    const LargestToken largest = source->scan(blocks - 1, blocks).largest;
    EXPECT_EQ(largest.id, 60000);
    EXPECT_EQ(largest.position, count - 1);
  }
}

}  // namespace
}  // namespace atl
