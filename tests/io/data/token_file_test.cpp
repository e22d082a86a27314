/// Token files: what is written is read, and every fault is a clean error. SPDX-License-Identifier: Apache-2.0
#include "io/data/token_file.hpp"

#include "core/errors.hpp"
#include "core/random.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

std::vector<std::int32_t> random_tokens(std::size_t n, std::int64_t vocab_size) {
  std::vector<std::int32_t> tokens(n);
  for (std::size_t i = 0; i < n; ++i) {
    tokens[i] = static_cast<std::int32_t>(random_bits(7, i) % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

std::string write_file(const std::string& path, const std::vector<std::int32_t>& tokens, std::int64_t vocab_size) {
  TokenFileWriter writer(path, vocab_size, "bytes");
  const std::span all(tokens);
  const std::size_t cut = tokens.size() / 3;
  writer.append(all.first(cut));
  writer.end_document(11, 3);
  writer.append(all.subspan(cut, 1));
  writer.append(all.subspan(cut + 1));
  writer.end_document(22, 4);
  writer.finish();
  return path;
}

/// The message when the file is opened and scanned.
std::string fault_of(const std::string& path) {
  return message_of<DataError>([&] { TokenFile(path).scan_all(); });
}

class TokenFileOfSize : public ::testing::TestWithParam<std::tuple<std::size_t, std::int64_t>> {};

// 2097152 uint16 or 1048576 uint32 tokens are one chunk of 4 MiB: below, at, above, and several.
INSTANTIATE_TEST_SUITE_P(Sizes, TokenFileOfSize,
                         ::testing::Combine(::testing::Values(5, 1048576, 2097152, 2097153, 5000000),
                                            ::testing::Values(258, 65536, 65537)));

TEST_P(TokenFileOfSize, ReadsWhatWasWritten) {
  const auto [n, vocab_size] = GetParam();
  const ScratchFolder folder;
  const auto tokens = random_tokens(n, vocab_size);
  const TokenFile file(write_file(folder / "x.h5", tokens, vocab_size));
  EXPECT_EQ(file.tokens(), static_cast<std::int64_t>(n));
  EXPECT_EQ(file.vocab_size(), vocab_size);
  EXPECT_EQ(file.documents(), 2);
  EXPECT_EQ(file.source_bytes(), 33);
  EXPECT_EQ(file.first_token_bytes(), 7);
  EXPECT_EQ(file.tokenizer(), "bytes");
  std::vector<std::uint64_t> offsets(3);
  file.read_offsets(0, offsets);
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{0, n / 3, n}));
  for (const std::size_t begin : {std::size_t{0}, std::size_t{1}, n / 2, n - 4}) {
    std::vector<std::int32_t> some(std::min<std::size_t>(4, n - begin));
    file.read(static_cast<std::int64_t>(begin), some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin))) << begin;
  }
  const LargestToken largest = file.scan_all();
  const auto expected = std::max_element(tokens.begin(), tokens.end());
  EXPECT_EQ(largest.id, *expected);
  EXPECT_EQ(largest.position, expected - tokens.begin());
}

TEST(TokenFile, TokensAreStoredInTheSmallestType) {
  const ScratchFolder folder;
  EXPECT_EQ(Hdf5File::open(write_file(folder / "a.h5", random_tokens(9, 65536), 65536)).type("tokens"), Stored::u16);
  EXPECT_EQ(Hdf5File::open(write_file(folder / "b.h5", random_tokens(9, 65537), 65537)).type("tokens"), Stored::u32);
}

TEST(TokenFile, ManyDocuments) {  // more offsets than one chunk of 524288 holds
  const ScratchFolder folder;
  TokenFileWriter writer(folder / "x.h5", 258, "bytes");
  for (std::int32_t i = 0; i < 600000; ++i) {
    writer.append(std::vector<std::int32_t>{i % 258});
    writer.end_document(1, 0);
  }
  writer.finish();
  const TokenFile file(folder / "x.h5");
  EXPECT_EQ(file.documents(), 600000);
  EXPECT_EQ(file.scan_all().id, 257);
  std::vector<std::uint64_t> offsets(2);
  file.read_offsets(599999, offsets);
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{599999, 600000}));
}

TEST(TokenFile, LargestTokenInALaterChunk) {
  const ScratchFolder folder;
  std::vector<std::int32_t> tokens(5000000, 7);
  tokens[4500000] = 200;
  const LargestToken largest = TokenFile(write_file(folder / "x.h5", tokens, 258)).scan_all();
  EXPECT_EQ(largest.id, 200);
  EXPECT_EQ(largest.position, 4500000);
}

// So that the ranks of a run can read a large file together.
TEST(TokenFile, SharesOfAScanAddUpToTheWhole) {
  const ScratchFolder folder;
  TokenFileWriter writer(folder / "x.h5", 100000, "bytes");
  auto tokens = random_tokens(3200000, 90000);  // four blocks of 1048576 tokens
  tokens[1500000] = tokens[2500000] = 99999;
  for (std::size_t begin = 0; begin < tokens.size(); begin += 5) {  // two blocks of 524288 offsets
    writer.append(std::span(tokens).subspan(begin, 5));
    writer.end_document(1, 0);
  }
  writer.finish();
  const TokenFile file(folder / "x.h5");
  for (const std::int64_t shares : {1, 2, 3, 4, 7}) {
    Scan whole;
    for (std::int64_t share = 0; share < shares; ++share) {
      const Scan part = file.scan(share, shares);
      EXPECT_EQ(part.tokens == 0, share >= 4) << share << " of " << shares;
      EXPECT_EQ(part.documents == 0, share >= 2) << share << " of " << shares;
      whole.add(part);
    }
    EXPECT_NO_THROW(file.check(whole)) << shares;
    EXPECT_EQ(whole.largest.id, 99999);
    EXPECT_EQ(whole.largest.position, 1500000);
  }
  // A share that is missing, or counted twice, does not pass.
  Scan missing = file.scan(0, 2);
  EXPECT_THROW(file.check(missing), DataError);
  missing.add(file.scan(0, 2));
  EXPECT_THROW(file.check(missing), DataError);
}

TEST(TokenFile, BlocksThatChangedPlacesAreFound) {
  const ScratchFolder folder;
  auto tokens = random_tokens(2 * 2097152, 258);
  const std::string path = write_file(folder / "x.h5", tokens, 258);
  std::string bytes = content_of(path);
  const auto place = [&](std::size_t first) {
    const std::vector<std::uint16_t> narrow(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                                            tokens.begin() + static_cast<std::ptrdiff_t>(first + 2097152));
    return std::string(reinterpret_cast<const char*>(narrow.data()), 4u << 20);
  };
  const std::string first = place(0), second = place(2097152);
  const auto at_first = bytes.find(first), at_second = bytes.find(second);
  ASSERT_NE(at_first, std::string::npos);
  ASSERT_NE(at_second, std::string::npos);
  bytes.replace(at_first, first.size(), second);
  bytes.replace(at_second, second.size(), first);
  EXPECT_NE(fault_of(folder.write("y.h5", bytes)).find("checksum of 'tokens'"), std::string::npos);
}

TEST(TokenFile, SameTokensAreTheSameBytes) {
  const ScratchFolder folder;
  const auto tokens = random_tokens(3000000, 258);
  EXPECT_EQ(content_of(write_file(folder / "a.h5", tokens, 258)), content_of(write_file(folder / "b.h5", tokens, 258)));
}

TEST(TokenFile, IsNotThereBeforeItIsFinished) {
  const ScratchFolder folder;
  {
    TokenFileWriter writer(folder / "x.h5", 258, "bytes");
    writer.append(random_tokens(100, 258));
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
    const auto message = message_of<DataError>([&] { writer.append(std::vector<std::int32_t>{258}); });
    EXPECT_EQ(message, (folder / "x.h5") + ": token 258 is outside the vocabulary of 258");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenFile, EveryTruncationIsACleanError) {
  const ScratchFolder folder;
  const std::string path = write_file(folder / "x.h5", random_tokens(3000, 258), 258);
  const auto size = std::filesystem::file_size(path);
  const std::string whole = content_of(path);
  for (std::size_t length = 0; length < size; length += 61) {
    const std::string cut = folder.write("cut.h5", whole.substr(0, length));
    const std::string fault = fault_of(cut);
    EXPECT_EQ(fault.rfind(cut + ": ", 0), 0u) << length << ": " << fault;
  }
}

TEST(TokenFile, EveryFlippedTokenByteIsFound) {
  const ScratchFolder folder;
  const std::string path = write_file(folder / "x.h5", random_tokens(200, 258), 258);
  const std::string whole = content_of(path);
  const auto tokens = random_tokens(200, 258);
  const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
  const auto begin = whole.find(std::string(reinterpret_cast<const char*>(narrow.data()), 400));
  ASSERT_NE(begin, std::string::npos);
  for (std::size_t i = 0; i < 400; ++i) {
    std::string flipped = whole;
    flipped[begin + i] = static_cast<char>(flipped[begin + i] ^ 1);
    EXPECT_NE(fault_of(folder.write("flipped.h5", flipped)).find("checksum of 'tokens'"), std::string::npos) << i;
  }
}

/// A file by hand, so that each part of it can be wrong.
struct Parts {
  std::int64_t version = 2, vocab_size = 258, token_count = 4, document_count = 2;
  std::vector<std::uint16_t> tokens{1, 2, 3, 4};
  std::vector<std::uint64_t> documents{0, 1, 4};
  bool with_tokens = true, with_documents = true, with_checksum = true;
};

std::string fault_of(const Parts& parts) {
  const ScratchFolder folder;
  const std::string path = folder / "x.h5";
  auto file = Hdf5File::create(path);
  const auto tokens = block_checksum(0, parts.tokens.data(), parts.tokens.size() * 2);
  const auto documents = block_checksum(0, parts.documents.data(), parts.documents.size() * 8);
  if (parts.with_tokens) {
    file.create_dataset("tokens", {parts.tokens.size()}, Stored::u16);
    file.write_flat("tokens", 0, parts.tokens);
  }
  if (parts.with_documents) {
    file.create_dataset("documents", {parts.documents.size()}, Stored::u64);
    file.write_flat("documents", 0, parts.documents);
  }
  file.set_integer_attribute("format_version", parts.version);
  file.set_integer_attribute("vocab_size", parts.vocab_size);
  file.set_string_attribute("tokenizer", "bytes");
  file.set_integer_attribute("token_count", parts.token_count);
  file.set_integer_attribute("document_count", parts.document_count);
  file.set_integer_attribute("source_bytes", 0);
  if (parts.with_checksum) file.set_string_attribute("tokens_checksum", block_checksum_text(tokens));
  file.set_string_attribute("documents_checksum", block_checksum_text(documents));
  file.close();
  const std::string fault = fault_of(path);
  return fault.empty() ? "" : fault.substr(path.size() + 2);  // without "<path>: "
}

TEST(TokenFile, EveryInconsistencyIsNamed) {
  EXPECT_EQ(fault_of(Parts{}), "");
  EXPECT_EQ(fault_of(Parts{.with_tokens = false}),
            "has no data set 'tokens': is it a token file, as atoll tokenize writes them?");
  EXPECT_EQ(fault_of(Parts{.with_documents = false}),
            "has no data set 'documents': is it a token file, as atoll tokenize writes them?");
  EXPECT_EQ(fault_of(Parts{.with_checksum = false}), "has no attribute 'tokens_checksum'");
  EXPECT_EQ(fault_of(Parts{.version = 1}),
            "token file of version 1; this atoll reads version 2: tokenize the text again with it");
  EXPECT_EQ(fault_of(Parts{.vocab_size = 0}), "vocab_size = 0");
  EXPECT_EQ(fault_of(Parts{.vocab_size = 70000}), "tokens are uint16, a vocabulary of 70000 needs uint32");
  EXPECT_EQ(fault_of(Parts{.vocab_size = 4}), "token 4 at position 3 is outside the file's own vocabulary of 4");
  EXPECT_EQ(fault_of(Parts{.token_count = 5}), "has 4 tokens, but token_count = 5");
  EXPECT_EQ(fault_of(Parts{.document_count = 3}),
            "has 3 document offsets, but document_count = 3 needs one more than that");
  EXPECT_EQ(fault_of(Parts{.documents = {0, 1, 3}}), "documents cover tokens [0, 3), not [0, 4)");
  EXPECT_EQ(fault_of(Parts{.documents = {1, 1, 4}}), "documents cover tokens [1, 4), not [0, 4)");
  EXPECT_EQ(fault_of(Parts{.document_count = 3, .documents = {0, 3, 2, 4}}),
            "document offsets decrease, 2 after 3, at entry 2");
}

TEST(TokenFile, OffsetsAreCoveredByAChecksum) {
  const ScratchFolder folder;
  const std::string path = write_file(folder / "x.h5", random_tokens(300, 258), 258);
  std::string bytes = content_of(path);
  const std::uint64_t offsets[] = {0, 100, 300}, moved = 101;
  const auto at = bytes.find(std::string(reinterpret_cast<const char*>(offsets), 24));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at + 8, 8, reinterpret_cast<const char*>(&moved), 8);
  EXPECT_NE(fault_of(folder.write("y.h5", bytes)).find("checksum of 'documents'"), std::string::npos);
}

TEST(TokenSource, VocabularyOfTheModel) {
  const MemorySource source("synthetic", 64, {5, 63, 63, 0});
  const LargestToken largest = source.scan_all();
  require_vocabulary(source, largest, 64);
  EXPECT_EQ(
      message_of<DataError>([&] { require_vocabulary(source, largest, 63); }),
      "synthetic: token 63 at position 1 is outside the model's vocabulary of 63; set model.vocab_size to at least "
      "64, or use other data");
}

}  // namespace
}  // namespace atl
