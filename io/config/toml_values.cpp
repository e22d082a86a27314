/// The only file that knows toml++. SPDX-License-Identifier: Apache-2.0
#include "io/config/toml_values.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

namespace atl {
namespace {

using nlohmann::json;

json to_json(const toml::node& node, const std::string& place) {
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* array = node.as_array()) {
    json out = json::array();
    for (const auto& element : *array) out.push_back(to_json(element, place));
    return out;
  }
  if (const auto* table = node.as_table()) {
    json out = json::object();
    for (const auto& [key, element] : *table) out[std::string(key.str())] = to_json(element, place);
    return out;
  }
  throw ConfigError(fmt::format("{}: dates and times mean nothing here; put the value in quotes", place));
}

std::string place_of(const toml::source_region& source, const std::string& name) {
  return fmt::format("{}:{}", name, source.begin.line);
}

/// JSON's strings are TOML's basic strings, but TOML wants DEL escaped too.
std::string quoted(const std::string& text) {
  std::string out = json(text).dump();
  for (std::size_t at = 0; (at = out.find('\x7f', at)) != std::string::npos;) out.replace(at, 1, "\\u007F");
  return out;
}

bool bare_key(const std::string& key) {
  return !key.empty() &&
         key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
}

/// toml++ refuses text that is not UTF-8, but what --set takes as it stands does not pass through it.
void require_utf8(const std::string& text) {
  try {
    static_cast<void>(json(text).dump());
  } catch (const json::exception&) {
    throw ConfigError(fmt::format("--set {}: the value is not UTF-8", text.substr(0, text.find('='))));
  }
}

}  // namespace

std::vector<TomlValue> parse_toml(const std::string& text, const std::string& name) {
  toml::table document;
  try {
    document = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}: not TOML: {}", place_of(error.source(), name), error.description()));
  }
  std::vector<TomlValue> values;
  for (const auto& [table_name, node] : document) {
    const std::string table(table_name.str());
    const std::string place = place_of(node.source(), name);
    if (const auto* entries = node.as_table()) {
      for (const auto& [key, value] : *entries) {
        const std::string value_place = place_of(value.source(), name);
        values.push_back({value_place, table, std::string(key.str()), to_json(value, value_place), {}});
      }
      // An empty table is nothing, but its name is still checked: [trian] must not pass unseen.
      if (entries->empty()) values.push_back({place, table, {}, nullptr, {}});
    } else {
      values.push_back({place, {}, table, to_json(node, place), {}});
    }
  }
  return values;
}

std::vector<TomlValue> read_toml_file(const std::string& path, const std::string& what) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // An empty file is a configuration of defaults, yet sets the stream's failbit: only bad() and errno tell of an error.
  if (file) text << file.rdbuf();
  if (!file.is_open() || file.bad() || (text.tellp() <= 0 && errno != 0))
    throw ConfigError(
        fmt::format("{}: cannot read {}: {}", path, what, errno != 0 ? std::strerror(errno) : "unknown reason"));
  return parse_toml(text.str(), path);
}

TomlValue parse_override(const std::string& text) {
  const auto equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto dot = name.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot == 0 || dot + 1 == name.size() ||
      name.find('.', dot + 1) != std::string::npos)
    throw ConfigError(fmt::format("--set {}: expected table.key=value, for example --set train.steps=100", text));
  require_utf8(text);

  TomlValue out{"--set " + text, name.substr(0, dot), name.substr(dot + 1), nullptr, text.substr(equals + 1)};
  try {
    const toml::table parsed = toml::parse("value = " + out.raw);
    // More than one key: a line break hid another assignment in the text, which then is no single TOML value.
    if (parsed.size() == 1) {
      const toml::node* value = parsed.get("value");
      if (value->is_date() || value->is_time() || value->is_date_time())
        out.value = out.raw;
      else
        out.value = to_json(*value, out.place);
      return out;
    }
  } catch (const toml::parse_error&) {
  }
  out.value = out.raw;
  return out;
}

std::string kind_of(const json& value) {
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_float()) return "a floating-point number";
  if (value.is_number()) return "an integer";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "a table";
  return "nothing";
}

std::string to_toml(const json& value) {
  if (value.is_string()) return quoted(value.get<std::string>());
  if (value.is_array()) {
    std::string out = "[";
    for (const auto& element : value) out += (out.size() > 1 ? ", " : "") + to_toml(element);
    return out + "]";
  }
  if (value.is_object()) {
    std::string out = "{";
    for (const auto& [key, element] : value.items())
      out += (out.size() > 1 ? ", " : " ") + (bare_key(key) ? key : quoted(key)) + " = " + to_toml(element);
    return out + (out.size() > 1 ? " }" : "}");
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  }
  return value.dump();
}

}  // namespace atl
