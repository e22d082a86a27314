/// A table of configuration keys: name, target, limits and documentation of each, written once. It serves reading,
/// printing, checking and the documentation. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/config/toml_values.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace atl {

/// Why a value cannot be taken: "is a string; expected an integer". ConfigTable adds place, key and value.
class WrongValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a number may be.
struct Limits {
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
  bool least_allowed = true;  ///< false: above `least`
  bool most_allowed = true;   ///< false: below `most`

  std::string describe() const;  ///< "at least 1", "above 0, at most 1"; empty: any
};
inline Limits at_least(double least) { return {.least = least}; }
inline Limits above(double least) { return {.least = least, .least_allowed = false}; }
inline Limits between(double least, double most) { return {.least = least, .most = most}; }

/// One key. `get` gives null, and `set` accepts nothing, where a key has no value and none is a choice of its own.
struct ConfigKey {
  std::string table, name;
  std::string type;                                ///< for people: "integer", "number", "string", "true or false", ...
  std::string limits;                              ///< for people: "at least 1", "\"fp32\" | \"bf16\""; may be empty
  std::string documentation;                       ///< one sentence or two
  nlohmann::json absent;                           ///< the value that means "not given"; discarded where there is none
  std::function<void(const nlohmann::json&)> set;  ///< throws WrongValue
  std::function<nlohmann::json()> get;

  std::string full_name() const { return table + "." + name; }
  bool given() const;  ///< has a value, other than `absent`
};

class ConfigTable {
 public:
  /// A key "table.name" bound to *target, which must outlive this table.
  ConfigKey& add(const std::string& full_name, bool* target, const std::string& documentation);
  ConfigKey& add(const std::string& full_name, std::int64_t* target, Limits limits, const std::string& documentation);
  ConfigKey& add(const std::string& full_name, int* target, Limits limits, const std::string& documentation);
  ConfigKey& add(const std::string& full_name, double* target, Limits limits, const std::string& documentation);
  ConfigKey& add(const std::string& full_name, std::string* target, const std::string& documentation);
  /// Keys without a value until one is given.
  ConfigKey& add(const std::string& full_name, std::optional<std::int64_t>* target, Limits limits,
                 const std::string& documentation);
  ConfigKey& add(const std::string& full_name, std::optional<double>* target, Limits limits,
                 const std::string& documentation);
  ConfigKey& add(const std::string& full_name, std::optional<bool>* target, const std::string& documentation);
  /// A name that stands for a value: {{"fp32", Precision::fp32}, ...}.
  template <class Choice>
  ConfigKey& add_choice(const std::string& full_name, Choice* target,
                        const std::vector<std::pair<std::string, Choice>>& choices, const std::string& documentation);
  /// Any other key; fill in type, set and get.
  ConfigKey& add(const std::string& full_name, const std::string& documentation);

  /// Sets one key. ConfigError with the place, and the nearest valid name or what was expected.
  void apply(const TomlValue& entry);

  const std::vector<ConfigKey>& keys() const& { return keys_; }
  void keys() const&& = delete;  // of a temporary they would dangle in a loop

  /// Valid TOML with every key and its documentation; keys that are not given are commented out. `hint` may give the
  /// value in force of such a key (or null).
  std::string show(const std::function<nlohmann::json(const ConfigKey&)>& hint) const;

  /// {"train": {"steps": 100, ...}, ...} of the keys that are given.
  nlohmann::ordered_json to_json() const;

  /// One table of the reference, in Markdown, of a `table`: key, type, value in force, meaning.
  std::string markdown(const std::string& table) const;

 private:
  ConfigKey* find(const TomlValue& entry);  ///< null: an empty table of a known name
  [[noreturn]] void unknown(const TomlValue& entry) const;
  std::vector<std::string> tables() const;

  std::vector<ConfigKey> keys_;
};

/// "a" or "b" or "c"; throws WrongValue with the nearest name unless `value` is one of `names`.
void require_choice(const nlohmann::json& value, const std::vector<std::string>& names);
std::string quoted_choices(const std::vector<std::string>& names, const std::string& separator);

template <class Choice>
ConfigKey& ConfigTable::add_choice(const std::string& full_name, Choice* target,
                                   const std::vector<std::pair<std::string, Choice>>& choices,
                                   const std::string& documentation) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  ConfigKey& key = add(full_name, documentation);
  key.type = "string";
  key.limits = quoted_choices(names, " | ");
  key.set = [target, choices, names](const nlohmann::json& value) {
    require_choice(value, names);
    for (const auto& choice : choices)
      if (choice.first == value.get<std::string>()) *target = choice.second;
  };
  key.get = [target, choices]() -> nlohmann::json {
    for (const auto& choice : choices)
      if (choice.second == *target) return choice.first;
    return nullptr;
  };
  return key;
}

}  // namespace atl
