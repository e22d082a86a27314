/// Reading, checking and printing of configuration keys. SPDX-License-Identifier: Apache-2.0
#include "io/config/config_table.hpp"

#include "core/errors.hpp"
#include "core/nearest_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace atl {
namespace {

using nlohmann::json;

[[noreturn]] void wrong_type(const json& value, std::string_view expected) {
  throw WrongValue(fmt::format("is {}; expected {}", kind_of(value), expected));
}

void check_limits(double value, const Limits& limits) {
  const bool low = limits.least_allowed ? value < limits.least : value <= limits.least;
  const bool high = limits.most_allowed ? value > limits.most : value >= limits.most;
  if (low || high) throw WrongValue(fmt::format("is out of range; it must be {}", limits.describe()));
}

template <class Integer>
Integer integer_from(const json& value, Limits limits) {
  if (!value.is_number_integer()) wrong_type(value, "an integer");
  const auto number = value.get<std::int64_t>();
  if constexpr (sizeof(Integer) < sizeof(std::int64_t))
    limits.most = std::min(limits.most, static_cast<double>(std::numeric_limits<Integer>::max()));
  check_limits(static_cast<double>(number), limits);
  return static_cast<Integer>(number);
}

double number_from(const json& value, const Limits& limits) {
  if (!value.is_number()) wrong_type(value, "a number");
  const double number = value.get<double>();
  if (!std::isfinite(number)) throw WrongValue("is not finite");
  check_limits(number, limits);
  return number;
}

bool boolean_from(const json& value) {
  if (!value.is_boolean()) wrong_type(value, "true or false");
  return value.get<bool>();
}

template <class T>
json json_of(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

/// How far a mistyped name may be from the one that is proposed.
std::size_t near(const std::string& name) { return name.size() <= 3 ? 1 : std::max<std::size_t>(2, name.size() / 3); }

}  // namespace

std::string Limits::describe() const {
  std::string out;
  if (least > std::numeric_limits<double>::lowest())
    out = fmt::format("{} {}", least_allowed ? "at least" : "above", least);
  if (most < std::numeric_limits<double>::max())
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", most_allowed ? "at most" : "below", most);
  return out;
}

bool ConfigKey::given() const {
  const json value = get();
  return !value.is_null() && (absent.is_discarded() || value != absent);
}

ConfigKey& ConfigTable::add(const std::string& full_name, const std::string& documentation) {
  const auto dot = full_name.find('.');
  ATOLL_REQUIRE(dot != std::string::npos);
  ConfigKey key;
  key.table = full_name.substr(0, dot);
  key.name = full_name.substr(dot + 1);
  key.documentation = documentation;
  key.absent = json(json::value_t::discarded);
  keys_.push_back(std::move(key));
  return keys_.back();
}

ConfigKey& ConfigTable::add(const std::string& full_name, bool* target, const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "true or false";
  key.set = [target](const json& value) { *target = boolean_from(value); };
  key.get = [target]() -> json { return *target; };
  return key;
}

ConfigKey& ConfigTable::add(const std::string& full_name, std::int64_t* target, Limits limits,
                            const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "integer";
  key.limits = limits.describe();
  key.set = [target, limits](const json& value) { *target = integer_from<std::int64_t>(value, limits); };
  key.get = [target]() -> json { return *target; };
  return key;
}

ConfigKey& ConfigTable::add(const std::string& full_name, int* target, Limits limits,
                            const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "integer";
  key.limits = limits.describe();
  key.set = [target, limits](const json& value) { *target = integer_from<int>(value, limits); };
  key.get = [target]() -> json { return *target; };
  return key;
}

ConfigKey& ConfigTable::add(const std::string& full_name, double* target, Limits limits,
                            const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "number";
  key.limits = limits.describe();
  key.set = [target, limits](const json& value) { *target = number_from(value, limits); };
  key.get = [target]() -> json { return *target; };
  return key;
}

ConfigKey& ConfigTable::add(const std::string& full_name, std::string* target, const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "string";
  key.set = [target](const json& value) {
    if (!value.is_string()) wrong_type(value, "a string");
    *target = value.get<std::string>();
  };
  key.get = [target]() -> json { return *target; };
  return key;
}

ConfigKey& ConfigTable::add(const std::string& full_name, std::optional<std::int64_t>* target, Limits limits,
                            const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "integer";
  key.limits = limits.describe();
  key.set = [target, limits](const json& value) { *target = integer_from<std::int64_t>(value, limits); };
  key.get = [target] { return json_of(*target); };
  return key;
}

ConfigKey& ConfigTable::add(const std::string& full_name, std::optional<double>* target, Limits limits,
                            const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "number";
  key.limits = limits.describe();
  key.set = [target, limits](const json& value) { *target = number_from(value, limits); };
  key.get = [target] { return json_of(*target); };
  return key;
}

ConfigKey& ConfigTable::add(const std::string& full_name, std::optional<bool>* target,
                            const std::string& documentation) {
  ConfigKey& key = add(full_name, documentation);
  key.type = "true or false";
  key.set = [target](const json& value) { *target = boolean_from(value); };
  key.get = [target] { return json_of(*target); };
  return key;
}

void ConfigTable::apply(const TomlValue& entry) {
  ConfigKey* const key = find(entry);
  if (key == nullptr) return;
  // In --set a string needs no quotes, also where it reads as a number: run.dir=7.
  const bool as_typed = !entry.raw.empty() && key->type == "string" && !entry.value.is_string();
  const json value = as_typed ? json(entry.raw) : entry.value;
  try {
    key->set(value);
  } catch (const WrongValue& reason) {
    throw ConfigError(fmt::format("{}: {} = {} {}", entry.place, key->full_name(), to_toml(value), reason.what()));
  }
}

std::vector<std::string> ConfigTable::tables() const {
  std::vector<std::string> names;
  const auto add_name = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& key : keys_) add_name(key.table);
  return names;
}

ConfigKey* ConfigTable::find(const TomlValue& entry) {
  for (auto& key : keys_)
    if (key.table == entry.table && key.name == entry.key) return &key;
  const auto names = tables();
  const bool empty_table = entry.key.empty() && std::find(names.begin(), names.end(), entry.table) != names.end();
  if (!empty_table) unknown(entry);
  return nullptr;
}

void ConfigTable::unknown(const TomlValue& entry) const {
  const auto all_tables = tables();
  // The right name in a wrong place says more than a similar name in this place.
  std::string elsewhere;
  std::vector<std::string> here;
  for (const auto& key : keys_) {
    if (key.table == entry.table) here.push_back(key.name);
    if (elsewhere.empty() && key.name == entry.key) elsewhere = key.full_name();
  }
  if (entry.table.empty()) {
    const std::string table = nearest_name(entry.key, all_tables, near(entry.key));
    const bool table_is_better = table == entry.key || (elsewhere.empty() && !table.empty());
    const std::string fix = table_is_better      ? "write it as a table: [" + table + "]"
                            : !elsewhere.empty() ? "did you mean " + elsewhere + "?"
                                                 : fmt::format("tables are {}", fmt::join(all_tables, ", "));
    throw ConfigError(fmt::format("{}: {} stands outside any table; {}", entry.place, entry.key, fix));
  }
  if (std::find(all_tables.begin(), all_tables.end(), entry.table) == all_tables.end()) {
    const std::string nearest = nearest_name(entry.table, all_tables, near(entry.table));
    throw ConfigError(fmt::format("{}: unknown table [{}]; {}", entry.place, entry.table,
                                  nearest.empty() ? fmt::format("tables are {}", fmt::join(all_tables, ", "))
                                                  : "did you mean [" + nearest + "]?"));
  }
  const std::string nearest = nearest_name(entry.key, here, near(entry.key));
  const std::string fix = !nearest.empty()     ? "did you mean " + entry.table + "." + nearest + "?"
                          : !elsewhere.empty() ? "did you mean " + elsewhere + "?"
                                               : fmt::format("keys of [{}] are {}", entry.table, fmt::join(here, ", "));
  throw ConfigError(fmt::format("{}: unknown key {}.{}; {}", entry.place, entry.table, entry.key, fix));
}

std::string ConfigTable::show(const std::function<json(const ConfigKey&)>& hint) const {
  std::string out, table;
  for (const auto& key : keys_) {
    if (key.table != table) {
      table = key.table;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", table);
    }
    out += fmt::format("# {} ({}{}{})\n", key.documentation, key.type, key.limits.empty() ? "" : ": ", key.limits);
    if (key.given()) {
      out += fmt::format("{} = {}\n", key.name, to_toml(key.get()));
    } else {
      const json value = hint(key);
      out += fmt::format("# {} ={}\n", key.name, value.is_null() ? "" : " " + to_toml(value));
    }
  }
  return out;
}

nlohmann::ordered_json ConfigTable::to_json() const {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& key : keys_)
    if (key.given()) out[key.table][key.name] = key.get();
  return out;
}

std::string ConfigTable::markdown(const std::string& table) const {
  std::string out = "| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const auto& key : keys_) {
    if (key.table != table) continue;
    std::string limits = key.limits;
    for (std::size_t at = 0; (at = limits.find('|', at)) != std::string::npos; at += 2) limits.insert(at, 1, '\\');
    out += fmt::format("| `{}` | {}{}{} | {} | {} |\n", key.name, key.type, limits.empty() ? "" : ": ", limits,
                       key.given() ? "`" + to_toml(key.get()) + "`" : "not given", key.documentation);
  }
  return out;
}

std::string quoted_choices(const std::vector<std::string>& names, const std::string& separator) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : separator) + to_toml(name);
  return out;
}

void require_choice(const json& value, const std::vector<std::string>& names) {
  if (!value.is_string()) wrong_type(value, "a string: " + quoted_choices(names, " or "));
  const auto text = value.get<std::string>();
  if (std::find(names.begin(), names.end(), text) != names.end()) return;
  const std::string nearest = nearest_name(text, names, near(text));
  throw WrongValue(fmt::format("is not one of {}{}", quoted_choices(names, ", "),
                               nearest.empty() ? "" : "; did you mean " + to_toml(nearest) + "?"));
}

}  // namespace atl
