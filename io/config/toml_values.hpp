/// TOML text and `--set table.key=value` as a flat list of values with their places. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace atl {

/// One `key = value` of one table. The value is JSON, whose kinds are those of TOML but for dates, which are refused.
struct TomlValue {
  std::string place;  ///< for messages: "run.toml:7" or "--set train.steps=many"
  std::string table;  ///< empty: the key stands outside any table
  std::string key;
  nlohmann::json value;
  /// Of --set only: the text after '=' as typed. A string may be meant even where it reads as a number (run.dir=7).
  std::string raw;
};

/// Reads a file; `what` it is, for the message. ConfigError where it cannot be read, and with file and line where it is
/// not TOML.
std::vector<TomlValue> read_toml_file(const std::string& path, const std::string& what = "the run configuration");

/// The same of text; `name` stands for the file in messages.
std::vector<TomlValue> parse_toml(const std::string& text, const std::string& name);

/// "train.steps=100": the value is read as TOML; what is no TOML value is a string, so that no quotes are needed
/// (parallel.strategy=fl+fsdp, run.dir=/tmp/x).
TomlValue parse_override(const std::string& text);

/// "an integer", "a string", ... of a value, for messages.
std::string kind_of(const nlohmann::json& value);

/// The value as TOML text, on one line: parse_toml gives the same value back.
std::string to_toml(const nlohmann::json& value);

}  // namespace atl
