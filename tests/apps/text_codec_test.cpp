/// Text that comes token by token is the text, in whole characters. SPDX-License-Identifier: Apache-2.0
#include "apps/text_codec.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/utf8.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

const std::string folder = std::string(ATOLL_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

TEST(TextStream, GivesTheTextInWholeCharacters) {
  const std::string prompt = "It was", text = " a caf\u00e9 \u2014 \u4f60\u597d, \U0001f600\U0001f9d1 ok\n  x";
  for (const std::string& name : {std::string("bytes"), folder + "gpt2.json", folder + "llama2.json",
                                  folder + "llama3.json", folder + "smollm.json"}) {
    const TextCodec codec = make_text_codec(name, 1 << 20);
    const auto before = codec.encode(prompt), all = codec.encode(prompt + text);
    ASSERT_GT(all.size(), before.size()) << name;
    TextStream stream(codec, before);
    std::string told;
    std::size_t silent = 0;
    for (std::size_t i = before.size(); i < all.size(); ++i) {
      const std::string piece = stream.add(all[i]);
      EXPECT_FALSE(first_invalid_utf8(piece)) << name;
      EXPECT_EQ(piece.find("\ufffd"), std::string::npos) << name;
      silent += piece.empty();
      told += piece;
    }
    EXPECT_EQ(told + stream.finish(), text) << name;
    EXPECT_GT(silent, 0u) << name;  // characters of several tokens were there
  }
}

TEST(TextStream, TellsUnfinishedCharactersAtTheEnd) {
  const TextCodec codec = make_text_codec("bytes", 300);
  TextStream stream(codec, {256, 'a'});
  EXPECT_EQ(stream.add('b'), "b");
  EXPECT_EQ(stream.add(0xe4), "");
  EXPECT_EQ(stream.add(0xbd), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextCodec, BeginsDocumentsAndLeavesMarksOut) {
  const TextCodec bytes = make_text_codec("bytes", 258);
  EXPECT_EQ(bytes.encode("a"), (std::vector<std::int32_t>{256, 'a'}));
  EXPECT_EQ(bytes.decode(std::vector<std::int32_t>{256, 'a', 257, 299}), "a");
  const TextCodec llama = make_text_codec(folder + "llama2.json", 1 << 20);
  const auto begun = llama.encode("a");
  ASSERT_FALSE(begun.empty());
  EXPECT_EQ(llama.decode(begun), "a");
  EXPECT_FALSE(llama.end_tokens.empty());
  EXPECT_EQ(llama.decode(std::vector<std::int32_t>{1 << 19}), "");  // the model's, not the tokenizer's
  EXPECT_FALSE(make_text_codec(folder + "gpt2.json", 1 << 20).encode("").empty());
}

TEST(TextCodec, RefusesOtherVocabularies) {
  EXPECT_THROW(make_text_codec("bytes", 257), ConfigError);
  EXPECT_THROW(make_text_codec(folder + "gpt2.json", 10), ConfigError);
  EXPECT_THROW(make_text_codec(folder + "missing.json", 10), ConfigError);
  EXPECT_THROW(make_text_codec("ids", 10).encode("3 x"), ConfigError);
  EXPECT_THROW(make_text_codec("ids", 10).encode("10"), ConfigError);
  EXPECT_EQ(make_text_codec("ids", 10).encode(" 3\n9 "), (std::vector<std::int32_t>{3, 9}));
}

}  // namespace
}  // namespace atl
