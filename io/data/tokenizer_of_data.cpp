/// SPDX-License-Identifier: Apache-2.0
#include "io/data/tokenizer_of_data.hpp"

#include "core/errors.hpp"
#include "io/data/token_file.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"
#include "io/tokenizer/tokenizer.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace atl {

std::string tokenizer_of_data(const TokenSource& data) {
  const auto* const file = dynamic_cast<const TokenFile*>(&data);
  if (file == nullptr || file->tokenizer() == ByteTokenizer::name) return file == nullptr ? "" : ByteTokenizer::name;
  const std::string beside = (std::filesystem::path(file->name()).parent_path() / "tokenizer.json").string();
  if (!std::filesystem::exists(beside)) return "";
  if (file->tokenizer().find(Tokenizer::read(beside).checksum()) == std::string::npos)
    throw DataError(fmt::format("{}: is not the tokenizer that {} was made with ({}); give --tokenizer", beside,
                                file->name(), file->tokenizer()));
  return beside;
}

}  // namespace atl
