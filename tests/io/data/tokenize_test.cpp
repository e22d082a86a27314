/// Text files to token files: what is read, left out, split, refused. SPDX-License-Identifier: Apache-2.0
#include "io/data/tokenize.hpp"

#include "core/errors.hpp"
#include "io/data/token_file.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>

namespace atl {
namespace {

using namespace std::string_literals;

/// The texts of a token file's documents.
std::vector<std::string> documents_of(const std::string& path) {
  const TokenFile file(path);
  file.scan_all();
  std::vector<std::uint64_t> offsets(static_cast<std::size_t>(file.documents()) + 1);
  file.read_offsets(0, offsets);
  std::vector<std::string> texts;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    std::vector<std::int32_t> tokens(offsets[d + 1] - offsets[d]);
    file.read(static_cast<std::int64_t>(offsets[d]), tokens);
    EXPECT_EQ(tokens.front(), ByteTokenizer::begin_of_document);
    EXPECT_EQ(tokens.back(), ByteTokenizer::end_of_document);
    EXPECT_EQ(tokens, ByteTokenizer::encode(ByteTokenizer::decode(tokens)));
    texts.push_back(ByteTokenizer::decode(tokens));
  }
  return texts;
}

TokenizeOptions options_for(const ScratchFolder& folder, const std::vector<std::string>& inputs) {
  TokenizeOptions options;
  options.inputs = inputs;
  options.output = folder / "out";
  return options;
}

using Texts = std::vector<std::string>;

TEST(Tokenize, ReadsFoldersInOrderAndLeavesOutWhatIsNoText) {
  const ScratchFolder folder;
  folder.write("in/b.txt", "second");
  folder.write("in/a/z.rst", "first, größer");
  folder.write("in/c.html", "third");
  folder.write("in/.hidden", "no");
  folder.write("in/.git/x", "no");
  folder.write("in/binary", "a\0b"s);
  folder.write("in/latin1", "gr\xfc\xdf");
  folder.write("in/empty", "");
  folder.write("in/d.xz",
               "\xfd"
               "7zXZ something");
  std::filesystem::create_symlink(folder / "in/b.txt", folder / "in/e.txt");
  std::filesystem::create_symlink(folder / "nowhere", folder / "in/f.txt");
  auto options = options_for(folder, {folder / "in"});
  options.eval_fraction = 0;
  const auto result = tokenize(options);
  EXPECT_EQ(documents_of(result.train.path), (Texts{"first, größer", "second", "third"}));
  EXPECT_EQ(result.train.documents, 3);
  EXPECT_EQ(result.train.bytes, 15 + 6 + 5);
  EXPECT_EQ(result.train.tokens, 15 + 6 + 5 + 6);
  EXPECT_EQ(result.invalid.count, 2);
  EXPECT_EQ(result.invalid.example, folder / "in/binary");
  EXPECT_EQ(result.empty.count, 1);
  EXPECT_EQ(result.compressed.count, 1);
  EXPECT_EQ(result.duplicate.count, 1);
  EXPECT_EQ(result.eval.path, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "out/eval.h5"));

  options.overwrite = true;
  options.extensions = {".rst", ".html"};
  EXPECT_EQ(documents_of(tokenize(options).train.path), (Texts{"first, größer", "third"}));
  options.extensions = {};
  options.invalid = InvalidText::replace;  // brings in latin1, not the binary file
  EXPECT_EQ(documents_of(tokenize(options).train.path),
            (Texts{"first, größer", "second", "third", "gr\xef\xbf\xbd\xef\xbf\xbd"}));
}

TEST(Tokenize, NamedFilesThatAreNoTextAreErrors) {
  const ScratchFolder folder;
  const auto good = folder.write("good.txt", "good"), bad = folder.write("bad.txt", "ab\xff");
  const auto zero = folder.write("zero", "a\0"s), packed = folder.write("x.txt.xz",
                                                                        "\xfd"
                                                                        "7zXZ something");
  const auto message = [&](const std::string& path) {
    return message_of<DataError>([&] { tokenize(options_for(folder, {path, good})); });
  };
  EXPECT_EQ(message(bad).find(bad + ": byte 2 is not valid UTF-8 text; "), 0u) << message(bad);
  EXPECT_EQ(message(zero).find(zero + ": byte 1 is not valid UTF-8 text (it has zero bytes"), 0u) << message(zero);
  EXPECT_EQ(message(packed), packed + ": is compressed; decompress it first (xz -d)");
  EXPECT_NE(message(folder / "none").find("none: cannot read it: No such file"), std::string::npos);
  EXPECT_EQ(message("/dev/null").find("/dev/null: is neither a file nor a folder"), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));  // nothing half-made

  auto options = options_for(folder, {bad, good, packed});
  options.eval_fraction = 0;
  options.invalid = InvalidText::skip;
  EXPECT_EQ(documents_of(tokenize(options).train.path), (Texts{"good"}));
  options.inputs = {bad, packed};
  options.overwrite = true;
  EXPECT_NE(message_of<DataError>([&] {
              tokenize(options);
            }).find("no text to tokenize: in 2 files are 1 documents that are not UTF-8"),
            std::string::npos);
}

TEST(Tokenize, SplitIsByDocumentCompleteAndReproducible) {
  const ScratchFolder folder;
  for (int i = 0; i < 400; ++i) folder.write("in/" + std::to_string(1000 + i), "document " + std::to_string(i));
  auto options = options_for(folder, {folder / "in"});
  options.eval_fraction = 0.25;
  const auto first = tokenize(options);
  EXPECT_NEAR(static_cast<double>(first.eval.documents), 100, 35);  // four standard deviations
  const auto train = documents_of(first.train.path), eval = documents_of(first.eval.path);
  std::set<std::string> all(train.begin(), train.end());
  all.insert(eval.begin(), eval.end());
  EXPECT_EQ(train.size() + eval.size(), 400u);
  EXPECT_EQ(all.size(), 400u);

  options.output = folder / "again";
  const auto again = tokenize(options);
  EXPECT_EQ(content_of(first.train.path), content_of(again.train.path));
  EXPECT_EQ(content_of(first.eval.path), content_of(again.eval.path));
  options.output = folder / "other";
  options.seed = 2;
  EXPECT_NE(documents_of(tokenize(options).eval.path), eval);
}

TEST(Tokenize, BothSidesHaveADocument) {
  const ScratchFolder folder;
  const auto a = folder.write("a", "aaa"), b = folder.write("b", "bbb");
  for (const double fraction : {1e-9, 0.5, 1 - 1e-9}) {
    auto options = options_for(folder, {a, b});
    options.eval_fraction = fraction;
    options.overwrite = true;
    const auto result = tokenize(options);
    EXPECT_EQ(result.train.documents, 1);
    EXPECT_EQ(result.eval.documents, 1);
    EXPECT_FALSE(result.split_inside_document);
  }
}

TEST(Tokenize, OneDocumentIsSplitBetweenCharacters) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "€";
  auto options = options_for(folder, {folder.write("one.txt", text)});
  options.overwrite = true;
  for (const double fraction : {0.1, 0.104, 0.107}) {
    options.eval_fraction = fraction;
    const auto result = tokenize(options);
    EXPECT_TRUE(result.split_inside_document);
    const auto train = documents_of(result.train.path), eval = documents_of(result.eval.path);
    ASSERT_EQ(train.size(), 1u);
    ASSERT_EQ(eval.size(), 1u);
    EXPECT_EQ(train[0] + eval[0], text);
    EXPECT_EQ(eval[0].size() % 3, 0u);
    EXPECT_NEAR(static_cast<double>(eval[0].size()), 300 * fraction, 3);
  }
  options.inputs = {folder.write("short.txt", "€")};
  EXPECT_NE(message_of<DataError>([&] { tokenize(options); }).find("too short to split"), std::string::npos);
}

const std::string lines = R"({"id": 1, "text": "one"}
{"id": 2, "text": "zwei, größer"}
{"id": 3, "text": ""}

{"id": 4, "text": "four"})";

TEST(Tokenize, LinesOfJsonAreDocuments) {
  const ScratchFolder folder;
  folder.write("in/b.jsonl", lines);
  folder.write("in/a.txt", "a text");
  folder.write("in/c.csv", "no");
  auto options = options_for(folder, {folder / "in"});
  options.eval_fraction = 0;
  options.extensions = {".txt", ".jsonl"};
  const auto result = tokenize(options);
  EXPECT_EQ(documents_of(result.train.path), (Texts{"a text", "one", "zwei, größer", "four"}));
  EXPECT_EQ(result.train.bytes, 6 + 3 + 14 + 4);
  EXPECT_EQ(result.empty.count, 1);
  EXPECT_EQ(result.empty.example, folder / "in/b.jsonl:3");

  options.overwrite = true;
  options.eval_fraction = 0.5;
  const auto halves = tokenize(options);
  const auto train = documents_of(halves.train.path), eval = documents_of(halves.eval.path);
  EXPECT_EQ(train.size() + eval.size(), 4u);
  EXPECT_GE(train.size(), 1u);
  EXPECT_GE(eval.size(), 1u);
  EXPECT_FALSE(halves.split_inside_document);

  options.inputs = {folder.write("one.jsonl", "{\"text\": \"0123456789\"}")};
  const auto cut = tokenize(options);
  EXPECT_TRUE(cut.split_inside_document);
  EXPECT_EQ(documents_of(cut.train.path), (Texts{"01234"}));
  EXPECT_EQ(documents_of(cut.eval.path), (Texts{"56789"}));
}

TEST(Tokenize, LinesThatAreNoDocuments) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.jsonl", lines + "\n{\"body\": \"five\"}\nno\n");
  auto options = options_for(folder, {path});
  options.eval_fraction = 0;
  EXPECT_EQ(message_of<DataError>([&] { tokenize(options); }),
            path +
                ":6: has no key 'text'; it has body (--field names the key); mend it, or give --invalid skip to leave "
                "out such lines");
  options.invalid = InvalidText::skip;
  const auto result = tokenize(options);
  EXPECT_EQ(result.train.documents, 3);
  EXPECT_EQ(result.invalid.count, 2);
  options.overwrite = true;
  options.field = "body";
  EXPECT_EQ(documents_of(tokenize(options).train.path), (Texts{"five"}));
}

TEST(Tokenize, LargeFilesInPieces) {  // characters lie across the borders of the pieces of 1 MiB
  const ScratchFolder folder;
  std::string text = "x";
  while (text.size() < 5000000) text += "€";
  auto options = options_for(folder, {folder.write("large.txt", text)});
  options.eval_fraction = 0;
  std::int64_t last = 0, whole = 0;
  const auto result = tokenize(options, [&](std::int64_t done, std::int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    whole = total;
  });
  EXPECT_EQ(documents_of(result.train.path), (Texts{text}));
  EXPECT_EQ(last, whole);
}

std::vector<std::vector<std::int32_t>> token_rows(const std::string& path) {
  const TokenFile file(path);
  file.scan_all();
  std::vector<std::uint64_t> offsets(static_cast<std::size_t>(file.documents()) + 1);
  file.read_offsets(0, offsets);
  std::vector<std::vector<std::int32_t>> rows;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    rows.emplace_back(offsets[d + 1] - offsets[d]);
    file.read(static_cast<std::int64_t>(offsets[d]), rows.back());
  }
  return rows;
}

TEST(Tokenize, TokensOfATokenizerJson) {
  const ScratchFolder folder;
  const std::string json = ATOLL_SOURCE_DIR "/tests/fixtures/tokenizers/llama3.json";
  const Tokenizer tokenizer = Tokenizer::read(json);
  for (int i = 0; i < 40; ++i) folder.write("in/" + std::to_string(100 + i), std::string(i, 'x') + " good house");
  folder.write("in/99", "<|begin_of_text|>with its mark");
  auto options = options_for(folder, {folder / "in"});
  options.eval_fraction = 0;
  options.tokenizer = json;
  options.end_token = "<|end_of_text|>";
  options.threads = 3;
  const auto result = tokenize(options);
  const auto rows = token_rows(result.train.path);
  ASSERT_EQ(rows.size(), 41u);
  Encoder encoder(tokenizer);
  const std::int32_t begin = *tokenizer.id_of("<|begin_of_text|>"), end = *tokenizer.id_of("<|end_of_text|>");
  for (int i = 0; i < 41; ++i) {
    auto expected = encoder.encode(i == 40 ? "with its mark" : std::string(i, 'x') + " good house");
    expected.insert(expected.begin(), begin);
    expected.push_back(end);
    EXPECT_EQ(rows[i], expected) << i;
  }
  EXPECT_EQ(TokenFile(result.train.path).vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ(TokenFile(result.train.path).tokenizer(), "llama3.json " + tokenizer.checksum());
  EXPECT_EQ(content_of(folder / "out/tokenizer.json"), content_of(json));
  const auto config = [&] { return nlohmann::json::parse(content_of(folder / "out/tokenizer_config.json")); };
  EXPECT_EQ(config()["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(config()["eos_token"], "<|end_of_text|>");

  options.overwrite = true;
  options.begin_token = options.end_token = "none";
  EXPECT_EQ(token_rows(tokenize(options).train.path)[5], encoder.encode("xxxxx good house"));
  EXPECT_FALSE(config().contains("bos_token"));
  EXPECT_FALSE(config().contains("eos_token"));
  options.end_token = "<|no|>";
  EXPECT_EQ(message_of<ConfigError>([&] { tokenize(options); }),
            "--end-token '<|no|>': the tokenizer has no such token; its special tokens are: <|begin_of_text|> "
            "<|end_of_text|> <|eot_id|>");
  options.tokenizer = ATOLL_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2.json";
  options.begin_token = options.end_token = "auto";
  EXPECT_NE(message_of<ConfigError>([&] { tokenize(options); }).find("give --end-token"), std::string::npos);
  options.train_vocab = 300;
  EXPECT_EQ(message_of<ConfigError>([&] { tokenize(options); }), "--tokenizer and --train-vocab exclude each other");
}

TEST(Tokenize, TrainsATokenizer) {
  const ScratchFolder folder;
  for (int i = 0; i < 9; ++i) folder.write("in/" + std::to_string(i), "low lower lowest, 12 naïve\n");
  auto options = options_for(folder, {folder / "in"});
  options.train_vocab = 266;
  const auto result = tokenize(options);
  const Tokenizer tokenizer = Tokenizer::read(folder / "out/tokenizer.json");
  EXPECT_EQ(tokenizer.vocab_size(), 266);
  EXPECT_EQ(tokenizer.token(258), "lo");  // 27 of lo and of ow: the pair with the smaller ids first
  EXPECT_EQ(tokenizer.token(259), "low");
  const auto rows = token_rows(result.train.path);
  EXPECT_EQ(rows[0].front(), 0);
  EXPECT_EQ(rows[0].back(), 1);
  EXPECT_EQ(tokenizer.decode(rows[0], SpecialTokens::leave_out), "low lower lowest, 12 naïve\n");
  EXPECT_LT(rows[0].size(), 32u);
  options.output = folder / "again";
  tokenize(options);
  EXPECT_EQ(content_of(folder / "out/tokenizer.json"), content_of(folder / "again/tokenizer.json"));
  options.overwrite = true;
  options.train_vocab = 0;  // bytes: the files of the tokenizer before would be wrong
  tokenize(options);
  EXPECT_FALSE(std::filesystem::exists(folder / "again/tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "again/tokenizer_config.json"));
  options.train_vocab = 257;
  EXPECT_NE(message_of<ConfigError>([&] { tokenize(options); }).find("--train-vocab 257 is not in [258,"),
            std::string::npos);
}

TEST(Tokenize, WrongOptions) {
  const ScratchFolder folder;
  const auto good = folder.write("good.txt", "good");
  auto options = options_for(folder, {good});
  options.eval_fraction = 1;
  EXPECT_EQ(message_of<ConfigError>([&] { tokenize(options); }), "--eval-fraction 1 is not in [0, 1)");
  options.eval_fraction = 0;
  options.extensions = {"txt"};
  EXPECT_NE(message_of<ConfigError>([&] { tokenize(options); }).find("'txt' should start with a dot"),
            std::string::npos);
  options.extensions = {};
  tokenize(options);
  EXPECT_EQ(message_of<ConfigError>([&] { tokenize(options); }),
            (folder / "out/train.h5") + " exists already; give another --output, or --overwrite to replace it");
}

}  // namespace
}  // namespace atl
