/// What lies beside a model and goes with it: tokenizer files, generation_config.json. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace atl {

/// Where the files that go with a model, or a tokenizer, are: beside it, or in the folder of the run that a checkpoint
/// belongs to.
std::string folder_of_companions(const std::string& path);

/// Names of those of transformers' files that a folder has: the tokenizer's, and generation_config.json.
std::vector<std::string> companion_files(const std::string& folder);
bool has_tokenizer(const std::vector<std::string>& companions);

/// Copies files from one folder to another. DataError where that fails.
void copy_files(const std::vector<std::string>& names, const std::string& from, const std::string& to);

/// bos_token_id, eos_token_id and pad_token_id of the folder's config.json, as they are there: a number, a list, null.
/// Without a config.json they are those of the tokens that tokenizer_config.json names, if tokenizer.json has them as
/// added tokens; without either, what a tokenizer.json that atoll can read says: the token of its template before a
/// text, and Tokenizer::end_tokens. Null where nothing says them.
nlohmann::ordered_json special_token_ids(const std::string& folder);

/// Where transformers' generate ends a text: eos_token_id of generation_config.json, or where that does not say it, of
/// special_token_ids. Empty where nothing does. DataError where it is no number and no list of them.
std::vector<std::int64_t> end_tokens_beside(const std::string& folder);

}  // namespace atl
