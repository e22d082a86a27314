/// SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/companion_files.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

namespace atl {

namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 10> names = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json",      "generation_config.json"};

}  // namespace

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

nlohmann::ordered_json special_token_ids(const std::string& folder) {
  nlohmann::ordered_json ids{{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  std::ifstream file(folder + "/config.json", std::ios::binary);
  if (!file) return ids;
  const auto config = nlohmann::json::parse(file, nullptr, false);
  for (auto& [key, id] : ids.items())
    if (config.is_object() && config.contains(key)) id = config[key];
  return ids;
}

}  // namespace atl
