/// Tokens of the `tokenizers` library, and what is refused. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/tokenizer.hpp"

#include "core/errors.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::string fixtures = std::string(ATOLL_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

json fixture(const std::string& name) { return json::parse(content_of(fixtures + name + ".json")); }
Tokenizer from(const json& file) { return Tokenizer::parse(file.dump(), "t.json"); }

class Golden : public testing::TestWithParam<std::string> {};

// tests/fixtures/make_tokenizers.py: files with the settings of the published ones, texts, ids, decoded texts.
TEST_P(Golden, EncodesAndDecodesAsTheLibraryDoes) {
  const Tokenizer tokenizer = Tokenizer::read(fixtures + GetParam() + ".json");
  Encoder encoder(tokenizer);
  const json expected = fixture("expected"), kind = expected.at("kinds").at(GetParam());
  for (int round = 0; round < 2; ++round) {  // the second time words come from the cache
    for (std::size_t i = 0; i < expected.at("texts").size(); ++i) {
      const std::string text = expected.at("texts")[i];
      const Ids ids = kind.at("ids")[i];
      EXPECT_EQ(encoder.encode(text), ids) << "text " << i << ": " << text;
      EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::keep), kind.at("kept")[i]) << i;
      EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::leave_out), kind.at("left_out")[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Golden, testing::Values("gpt2", "llama3", "smollm", "llama2", "nfc", "metaspace"),
                         [](const auto& kind) { return kind.param; });

TEST(Tokenizer, KnowsTheMarksOfItsTemplate) {
  const Tokenizer llama3 = Tokenizer::read(fixtures + "llama3.json");
  EXPECT_EQ(llama3.begin_of_document(), llama3.id_of("<|begin_of_text|>"));
  EXPECT_TRUE(llama3.begin_of_document());
  EXPECT_FALSE(llama3.end_of_document());
  const Tokenizer gpt2 = Tokenizer::read(fixtures + "gpt2.json");
  EXPECT_FALSE(gpt2.begin_of_document());
  EXPECT_EQ(gpt2.special_tokens(), std::vector<std::string>{"<|endoftext|>"});
  EXPECT_EQ(gpt2.vocab_size(), 900);
  EXPECT_EQ(gpt2.checksum().size(), 24u);
  EXPECT_FALSE(gpt2.id_of("no such token"));
  auto file = fixture("llama2");
  file["post_processor"]["single"].push_back({{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}});
  file["post_processor"]["special_tokens"]["</s>"] = {{"id", "</s>"}, {"ids", {2}}, {"tokens", {"</s>"}}};
  EXPECT_EQ(from(file).end_of_document(), 2);
}

TEST(Tokenizer, EndsAtAddedTokensOnly) {
  auto file = fixture("gpt2");
  const Ids own = from(file).end_tokens();
  EXPECT_EQ(own, Ids{*from(file).id_of("<|endoftext|>")});
  file["model"]["vocab"]["</s>"] = 900;  // learnt from HTML: text
  EXPECT_EQ(from(file).id_of("</s>"), 900);
  EXPECT_EQ(from(file).end_tokens(), own);
  file["added_tokens"].push_back(file["added_tokens"][0]);
  file["added_tokens"].back()["content"] = "</s>";
  file["added_tokens"].back()["id"] = 900;
  EXPECT_EQ(from(file).end_tokens(), (Ids{900, own[0]}));
}

TEST(Tokenizer, KnowsTheBytesOfAFirstToken) {
  const Tokenizer gpt2 = Tokenizer::read(fixtures + "gpt2.json");
  // Byte-level tokens are bytes wherever they stand: together they are the text, also where one ends inside a
  // character.
  for (const std::string text :
       {"It was the best of times\n", " naïve 𝄞 文字 🙂", "<|endoftext|>x", "\t\x01"}) {
    std::size_t sum = 0;
    for (const std::int32_t id : Encoder(gpt2).encode(text)) sum += static_cast<std::size_t>(gpt2.bytes_at_start(id));
    EXPECT_EQ(sum, text.size()) << text;
  }
  // Of SentencePiece-like tokens the space in front is the tokenizer's own, and a byte token is one byte.
  const Tokenizer llama2 = Tokenizer::read(fixtures + "llama2.json");
  const Tokenizer metaspace = Tokenizer::read(fixtures + "metaspace.json");
  EXPECT_EQ(llama2.bytes_at_start(llama2.id_of("\u2581the").value()), 3);
  EXPECT_EQ(llama2.bytes_at_start(llama2.id_of("ver").value()), 3);
  EXPECT_EQ(llama2.bytes_at_start(llama2.id_of("<0xF0>").value()), 1);
  EXPECT_EQ(metaspace.bytes_at_start(metaspace.id_of("\u2581t").value()), 1);
}

TEST(Tokenizer, MergesAreReadInBothForms) {
  auto file = fixture("gpt2");
  const Tokenizer old = from(file);
  for (json& merge : file["model"]["merges"]) {
    const std::string both = merge;
    merge = json::array({both.substr(0, both.find(' ')), both.substr(both.find(' ') + 1)});
  }
  const Tokenizer recent = from(file);
  const std::string text = "their house was good; for (int i = 0; i < n; ++i)";
  EXPECT_EQ(Encoder(old).encode(text), Encoder(recent).encode(text));
}

std::string refused(const json& file) {
  return message_of<DataError>([&] { from(file); });
}

TEST(Tokenizer, WhatIsNotSupportedIsRefusedByItsKey) {
  const auto with = [](const char* name, const char* pointer, const json& value) {
    auto file = fixture(name);
    file[json::json_pointer(pointer)] = value;
    return refused(file);
  };
  EXPECT_EQ(with("gpt2", "/model/dropout", 0.1), "t.json: model.dropout: is not supported");
  EXPECT_EQ(with("gpt2", "/model/type", "WordPiece"),
            "t.json: model.type: the model WordPiece is not supported, BPE is");
  auto unigram = fixture("gpt2");
  unigram["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::array()}};
  EXPECT_EQ(refused(unigram), "t.json: model.type: the model Unigram is not supported, BPE is");
  EXPECT_EQ(with("gpt2", "/model/end_of_word_suffix", "</w>"), "t.json: model.end_of_word_suffix: is not supported");
  EXPECT_EQ(with("gpt2", "/model/fuse_unk", 3), "t.json: model.fuse_unk: is number, not true or false");
  EXPECT_EQ(with("gpt2", "/model/surprise", 3), "t.json: model.surprise: is not supported");
  EXPECT_EQ(with("gpt2", "/normalizer", {{"type", "Lowercase"}}).find("t.json: normalizer.type: the normalizer Lower"),
            0u);
  EXPECT_EQ(with("gpt2", "/pre_tokenizer/type", "Whitespace").find("t.json: pre_tokenizer.type: the pre-tokenizer"),
            0u);
  EXPECT_EQ(with("gpt2", "/decoder/type", "CTC").find("t.json: decoder.type: the decoder CTC is not supported"), 0u);
  EXPECT_EQ(with("gpt2", "/post_processor/type", "BertProcessing").find("t.json: post_processor.type: the post-proc"),
            0u);
  const char* regex = "/pre_tokenizer/pretokenizers/0/pattern/Regex";
  const std::string where = "t.json: pre_tokenizer.pretokenizers[0].pattern.Regex: the regular expression ";
  EXPECT_EQ(with("llama3", regex, "a\\h"), where + "a\\h has '\\h' at byte 1, which is not supported");
  EXPECT_EQ(with("llama3", regex, "[a&&b]"), where + "[a&&b] has '&&' at byte 2, which is not supported");
  EXPECT_EQ(with("llama3", regex, "a*"), where + "a* matches the empty text, which is not supported");
  EXPECT_EQ(with("llama3", regex, "(a"), where + "(a cannot be used: missing closing parenthesis");
  EXPECT_NE(with("llama3", regex, "\\p{Nope}").find("'\\p{Nope}'"), std::string::npos);
}

std::vector<std::string> pieces(const Pattern& pattern, const std::string& text) {
  PatternScratch scratch;
  std::vector<std::string> all;
  std::size_t done = 0;
  const auto piece = [&](std::size_t end) {
    if (end > done) all.push_back(text.substr(done, end - done));
    done = end;
  };
  while (const auto found = pattern.find(scratch, text, done)) {
    piece(found->begin);
    piece(found->end);
  }
  piece(text.size());
  return all;
}

// tests/fixtures/make_tokenizers.py: (?i) reaches over alternatives to the end of its group.
TEST(Tokenizer, PatternsSplitAsTheLibrarySplits) {
  const json expected = fixture("patterns");
  const std::vector<std::string> texts = expected.at("texts");
  for (const auto& [regex, splits] : expected.at("patterns").items()) {
    const Pattern pattern = Pattern::regex(regex, "here");
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(pieces(pattern, texts[i]), splits[i].get<std::vector<std::string>>()) << regex << " in " << texts[i];
  }
}

TEST(Tokenizer, WhatWouldSplitOtherwiseWithoutCaseIsRefused) {
  const auto refused_for = [](const std::string& regex) {
    return message_of<DataError>([&] { Pattern::regex(regex, "here"); });
  };
  for (const auto& [regex, what] :
       std::vector<std::pair<std::string, std::string>>{{"(?i)strasse", "st"},
                                                        {"a(?i:f|o(f)i)", "fi"},
                                                        {"(?i:\\u00df)", "\\u"},
                                                        {"(?i)ß", "a letter beyond ASCII"},
                                                        {"(?i)[é]", "a letter beyond ASCII"},
                                                        {"(?i)[\\p{L}]", "\\p{L}"},
                                                        {"(?i)\\p{Lu}", "\\p{Lu}"},
                                                        {"(?i)[\\D]", "\\D"}})
    EXPECT_NE(refused_for(regex).find("'" + what + " under (?i)'"), std::string::npos) << refused_for(regex);
  EXPECT_NE(refused_for("a)b").find("')"), std::string::npos);
  EXPECT_NO_THROW(Pattern::regex("(?i:a)ss|[^ß]\\p{Lu}", "here"));  // where case counts
}

// Reordering by exchanges would take minutes.
TEST(Tokenizer, LongRunsOfMarksAreOrderedFast) {
  constexpr int n = 200'000;
  std::string text = "a", expected = "\u00e1";
  for (int i = 0; i < n; ++i) text += "\u0301\u0327";
  for (int i = 0; i < n; ++i) expected += "\u0327";
  for (int i = 1; i < n; ++i) expected += "\u0301";
  EXPECT_TRUE(nfc(text) == expected);
  text = "a";
  expected = "\u00e1";
  for (int i = 0; i < n; ++i) text += "\u0301\u0300\u0327";  // the first two are of one class, and stay in order
  for (int i = 0; i < n; ++i) expected += "\u0327";
  for (int i = 0; i < n; ++i) expected += i == 0 ? "\u0300" : "\u0301\u0300";
  EXPECT_TRUE(nfc(text) == expected);
  std::string decomposing, in_order;  // U+0F73 is U+0F71 U+0F72, of classes 129 and 130
  for (int i = 0; i < n; ++i) decomposing += "\u0f73";
  for (int i = 0; i < n; ++i) in_order += "\u0f71";
  for (int i = 0; i < n; ++i) in_order += "\u0f72";
  EXPECT_TRUE(nfc(decomposing) == in_order);
}

TEST(Tokenizer, WrongFilesAreRefused) {
  auto file = fixture("gpt2");
  file["model"]["vocab"].erase("\u0120");
  EXPECT_NE(refused(file).find("for the byte 32"), std::string::npos) << refused(file);
  file = fixture("gpt2");
  file["model"]["merges"].push_back("nothere x");
  EXPECT_NE(refused(file).find("needs 'nothere', which is not in model.vocab"), std::string::npos) << refused(file);
  file = fixture("gpt2");
  file["model"]["vocab"]["twice"] = 5;
  EXPECT_NE(refused(file).find("have the same id 5"), std::string::npos) << refused(file);
  file["model"]["vocab"]["twice"] = 1 << 30;
  EXPECT_NE(refused(file).find("the id 1073741824 of 'twice'"), std::string::npos) << refused(file);
  file = fixture("gpt2");
  file["added_tokens"][0]["id"] = 7;
  EXPECT_NE(refused(file).find("added_tokens[0].id: '<|endoftext|>' has the id 7 here and 0"), std::string::npos);
  EXPECT_EQ(message_of<DataError>([] { Tokenizer::parse("{}", "t.json"); }).find("t.json: model: is missing"), 0u);
  EXPECT_EQ(message_of<DataError>([] { Tokenizer::parse("[", "t.json"); }).find("t.json: is not JSON"), 0u);
  EXPECT_NE(message_of<DataError>([] { Tokenizer::parse(std::string(1 << 20, '['), "t.json"); }).find("nested"),
            std::string::npos);
  EXPECT_NE(message_of<DataError>([] { Tokenizer::read("/nowhere/t.json"); }).find("cannot read it: No such file"),
            std::string::npos);
  EXPECT_EQ(message_of<DataError>([] { Tokenizer::read("/"); }), "/: is a folder; name its tokenizer.json");
  const Tokenizer gpt2 = Tokenizer::read(fixtures + "gpt2.json");
  EXPECT_EQ(message_of<DataError>([&] { Encoder(gpt2).encode("ab\xff"); }), "byte 2 of the text is not valid UTF-8");
  EXPECT_NE(message_of<DataError>([&] {
              gpt2.decode(Ids{900}, SpecialTokens::keep);
            }).find("token 900 is outside the vocabulary of 900"),
            std::string::npos);
}

// The pairs' queue and the plain search agree: a word alone, and the same symbols below and above the limit.
TEST(Tokenizer, LongWordsMergeAsShortOnes) {
  const Tokenizer gpt2 = Tokenizer::read(fixtures + "gpt2.json");
  Encoder encoder(gpt2);
  const std::string word = "houseworldafter";
  const Ids once = encoder.encode(word);
  std::string spaced, digits;
  Ids expected;
  for (int i = 0; i < 100; ++i) {
    spaced += word + "1";
    expected.insert(expected.end(), once.begin(), once.end());
    expected.push_back(*gpt2.id_of("1"));
  }
  EXPECT_EQ(encoder.encode(spaced), expected);
  std::string joined;
  for (int i = 0; i < 20000; ++i) joined += word;  // 300 kB without a space
  EXPECT_EQ(gpt2.decode(encoder.encode(joined), SpecialTokens::keep), joined);
}

}  // namespace
}  // namespace atl
