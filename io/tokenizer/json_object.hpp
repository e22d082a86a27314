/// Objects of a tokenizer.json, read with checks that name the key. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// One JSON object and where it is ("x/tokenizer.json: pre_tokenizer.pattern"). A key that is null counts as absent.
/// All faults are DataErrors that name file and key. Refers to `value`, which must outlive it.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& value, std::string where);

  bool has(const char* key) const;
  const nlohmann::json& at(const char* key) const;  ///< any type; an error when absent
  JsonObject object(const char* key) const { return {at(key), path(key)}; }
  std::vector<JsonObject> objects(const char* key) const;  ///< of an array
  std::string text(const char* key) const;
  std::string text(const char* key, const char* otherwise) const { return has(key) ? text(key) : otherwise; }
  bool flag(const char* key, bool otherwise) const;
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const;

  /// An error for the first key that is none of `known`: what is not understood is never passed over.
  void only(std::initializer_list<std::string_view> known) const;
  /// Throws: this key (or, empty, the object) is wrong or not supported, for a reason.
  [[noreturn]] void refuse(std::string_view key, const std::string& reason) const;

  const nlohmann::json& json() const { return *value_; }
  std::string path(std::string_view key) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace atl
