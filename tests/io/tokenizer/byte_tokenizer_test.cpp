/// Bytes and marks. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/byte_tokenizer.hpp"

#include "core/errors.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

using namespace std::string_literals;

TEST(ByteTokenizer, EncodesBytesBetweenMarks) {
  EXPECT_EQ(ByteTokenizer::encode("aé"), (std::vector<std::int32_t>{256, 97, 0xc3, 0xa9, 257}));
  EXPECT_EQ(ByteTokenizer::encode(""), (std::vector<std::int32_t>{256, 257}));
}

TEST(ByteTokenizer, DecodesWhatItEncoded) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(ByteTokenizer::decode(ByteTokenizer::encode(all)), all);
  EXPECT_EQ(message_of<DataError>([] {
              ByteTokenizer::decode(std::vector<std::int32_t>{65, 258});
            }),
            "token 258 at position 1 is outside the vocabulary of 258 of the tokenizer 'bytes'");
}

}  // namespace
}  // namespace atl
