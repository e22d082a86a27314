/// JSON from files that nobody vouches for: no key twice, no deep nesting. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// Text for a message: cut at a character's begin where it is longer than `most` bytes.
inline std::string brief(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most) + "...";
}

/// The value as text for a message, cut where it is long.
inline std::string brief_json(const nlohmann::json& value) {
  return brief(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 100);
}

/// What is wrong with a text that is not JSON, and where: the library quotes what it read last, however long.
inline std::string brief_message(const nlohmann::json::exception& error) { return brief(error.what(), 200); }

/// Parses an object of which readers could not make different things: std::runtime_error says why where the text is not
/// JSON or not an object, where a key is there twice, or where it nests deeper than 16 levels.
inline nlohmann::json parse_strict_object(std::string_view text) {
  using nlohmann::json;
  constexpr int deepest = 16;
  std::vector<std::set<std::string>> keys;
  const auto check = [&keys](int depth, json::parse_event_t event, const json& value) {
    if (depth > deepest) throw std::runtime_error("it nests deeper than " + std::to_string(deepest) + " levels");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw std::runtime_error("it has the key " + brief_json(value) + " twice");
    return true;
  };
  json object;
  try {
    object = json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    throw std::runtime_error("not JSON: " + brief_message(error));
  }
  if (!object.is_object()) throw std::runtime_error("not a JSON object");
  return object;
}

}  // namespace atl
