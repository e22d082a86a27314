/// Checked access to JSON. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/json_object.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace atl {

JsonObject::JsonObject(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) throw DataError(fmt::format("{}: is no JSON object but {}", where_, value.type_name()));
}

std::string JsonObject::path(std::string_view key) const {
  if (key.empty()) return where_;
  const bool inside = where_.find(": ") != std::string::npos;  // of the file: "file: key", then "file: key.key"
  return fmt::format("{}{}{}", where_, inside ? "." : ": ", key);
}

void JsonObject::refuse(std::string_view key, const std::string& reason) const {
  throw DataError(fmt::format("{}: {}", path(key), reason));
}

bool JsonObject::has(const char* key) const {
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

const nlohmann::json& JsonObject::at(const char* key) const {
  if (!has(key)) refuse(key, "is missing");
  return *value_->find(key);
}

std::vector<JsonObject> JsonObject::objects(const char* key) const {
  const nlohmann::json& array = at(key);
  if (!array.is_array()) refuse(key, fmt::format("is {}, not an array", array.type_name()));
  std::vector<JsonObject> all;
  all.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) all.emplace_back(array[i], fmt::format("{}[{}]", path(key), i));
  return all;
}

std::string JsonObject::text(const char* key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_string()) refuse(key, fmt::format("is {}, not a string", value.type_name()));
  return value.get<std::string>();
}

bool JsonObject::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const nlohmann::json& value = at(key);
  if (!value.is_boolean()) refuse(key, fmt::format("is {}, not true or false", value.type_name()));
  return value.get<bool>();
}

std::int64_t JsonObject::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const nlohmann::json& value = at(key);
  if (!value.is_number_integer()) refuse(key, fmt::format("is {}, not an integer", value.type_name()));
  const bool above = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (above || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
    refuse(key, fmt::format("{} is not in [{}, {}]", value.dump(), low, high));
  }
  return value.get<std::int64_t>();
}

void JsonObject::only(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) refuse(key, "is not supported");
  }
}

}  // namespace atl
