/// SPDX-License-Identifier: Apache-2.0
#include "io/data/tokenizer_of_data.hpp"

#include "core/errors.hpp"
#include "io/config/run_config.hpp"
#include "io/data/token_file.hpp"
#include "io/data/token_formats.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace atl {

std::string tokenizer_of_data(const TokenSource& data) {
  const auto* const file = dynamic_cast<const TokenFile*>(&data);
  if (file == nullptr || file->tokenizer() == ByteTokenizer::name) return file == nullptr ? "" : ByteTokenizer::name;
  const std::string beside = (std::filesystem::path(file->name()).parent_path() / "tokenizer.json").string();
  if (!std::filesystem::exists(beside)) return "";
  if (!is_named(Tokenizer::read(beside), file->tokenizer()))
    throw DataError(fmt::format("{}: is not the tokenizer that {} was made with ({}); give --tokenizer", beside,
                                file->name(), file->tokenizer()));
  return beside;
}

std::string tokenizer_of_data(const std::string& eval) {
  if (eval.empty() || eval == synthetic_data || !std::filesystem::exists(eval)) return "";
  return tokenizer_of_data(*open_tokens(eval, {}));
}

bool is_named(const Tokenizer& tokenizer, const std::string& name_in_token_file) {
  return name_in_token_file.find(tokenizer.checksum()) != std::string::npos;
}

}  // namespace atl
