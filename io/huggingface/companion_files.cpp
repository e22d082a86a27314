/// SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/companion_files.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>

namespace atl {

namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 10> names = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json",      "generation_config.json"};

/// Empty where there is no such file, or something else in it.
nlohmann::json object_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  nlohmann::json object = file ? nlohmann::json::parse(file, nullptr, false) : nlohmann::json::object();
  return object.is_object() ? object : nlohmann::json::object();
}

/// Ids of the added tokens of a tokenizer.json, by name.
std::map<std::string, std::int64_t> added_tokens(const nlohmann::json& tokenizer) {
  std::map<std::string, std::int64_t> ids;
  const auto list = tokenizer.find("added_tokens");
  if (list == tokenizer.end() || !list->is_array()) return ids;
  for (const auto& token : *list)
    if (token.is_object() && token.contains("content") && token["content"].is_string() && token.contains("id") &&
        token["id"].is_number_integer())
      ids[token["content"]] = token["id"];
  return ids;
}

/// The name of a special token in a tokenizer_config.json: text, or an object with the key "content".
std::string name_of(const nlohmann::json& token) {
  const auto content = token.is_object() ? token.find("content") : token.end();
  const nlohmann::json& name = content != token.end() ? *content : token;
  return name.is_string() ? name.get<std::string>() : "";
}

/// What a tokenizer.json says that atoll can read; nothing otherwise.
void add_ids_of_tokenizer(const std::string& path, nlohmann::ordered_json& ids) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  try {
    const Tokenizer tokenizer = Tokenizer::read(path);
    if (const auto begin = tokenizer.begin_of_document()) ids["bos_token_id"] = *begin;
    const auto ends = tokenizer.end_tokens();
    if (ends.size() == 1)
      ids["eos_token_id"] = ends.front();
    else if (!ends.empty())
      ids["eos_token_id"] = ends;
  } catch (const DataError&) {  // of a kind that only transformers reads
  }
}

}  // namespace

std::string folder_of_companions(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  folder = fs::absolute(folder.empty() ? "." : folder, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (folder.parent_path().filename() == "checkpoints") folder = folder.parent_path().parent_path();
  return folder.string();
}

std::vector<std::string> companion_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const char* name : names)
    if (fs::is_regular_file(folder + "/" + name, error)) found.emplace_back(name);
  return found;
}

bool has_tokenizer(const std::vector<std::string>& companions) {
  return std::any_of(companions.begin(), companions.end(), [](const std::string& name) {
    return name == "tokenizer.json" || name == "tokenizer.model" || name == "vocab.json";
  });
}

void copy_files(const std::vector<std::string>& files, const std::string& from, const std::string& to) {
  for (const std::string& name : files) {
    std::error_code error;
    fs::copy_file(from + "/" + name, to + "/" + name, error);
    if (error) throw DataError(fmt::format("{}/{}: cannot be copied to {}: {}", from, name, to, error.message()));
  }
}

std::vector<std::int64_t> end_tokens_beside(const std::string& folder) {
  constexpr const char* key = "eos_token_id";
  const nlohmann::json generation = object_of(folder + "/generation_config.json");
  const bool said = generation.contains(key) && !generation[key].is_null();
  const nlohmann::json ids = said ? generation[key] : nlohmann::json(special_token_ids(folder)[key]);
  std::vector<std::int64_t> ends;
  const auto add = [&](const nlohmann::json& id) {
    if (!id.is_number_integer())
      throw DataError(fmt::format("{}/{}: {} = {} is neither a token id nor a list of them", folder,
                                  said ? "generation_config.json" : "config.json", key, ids.dump()));
    ends.push_back(id.get<std::int64_t>());
  };
  if (ids.is_array())
    for (const auto& id : ids) add(id);
  else if (!ids.is_null())
    add(ids);
  return ends;
}

nlohmann::ordered_json special_token_ids(const std::string& folder) {
  nlohmann::ordered_json ids;
  const nlohmann::json model = object_of(folder + "/config.json");
  const nlohmann::json names = model.empty() ? object_of(folder + "/tokenizer_config.json") : nlohmann::json::object();
  const auto added = added_tokens(names.empty() ? names : object_of(folder + "/tokenizer.json"));
  for (const std::string token : {"bos_token", "eos_token", "pad_token"}) {
    const std::string key = token + "_id";
    ids[key] = nullptr;
    if (model.contains(key)) ids[key] = model[key];
    if (!names.contains(token)) continue;
    if (const auto found = added.find(name_of(names[token])); found != added.end()) ids[key] = found->second;
  }
  if (model.empty() && names.empty()) add_ids_of_tokenizer(folder + "/tokenizer.json", ids);
  return ids;
}

}  // namespace atl
