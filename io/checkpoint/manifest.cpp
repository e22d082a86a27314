/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/manifest.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <xxhash.h>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view format_name = "atoll-checkpoint";

std::string hexadecimal(const std::vector<std::uint64_t>& hashes) {
  std::string text;
  for (const std::uint64_t hash : hashes) text += fmt::format("{:016x}", hash);
  return text;
}

/// Throws std::invalid_argument.
std::vector<std::uint64_t> from_hexadecimal(const std::string& text) {
  if (text.size() % 16 != 0 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw std::invalid_argument("a list of hashes is not hexadecimal, 16 digits each");
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < text.size(); i += 16) hashes.push_back(std::stoull(text.substr(i, 16), nullptr, 16));
  return hashes;
}

Json to_json(const TrainingPosition& position) {
  return {{"step", position.step},
          {"round", position.round},
          {"in_round", position.in_round},
          {"cursor", position.cursor},
          {"tokens", position.tokens},
          {"optimizer_steps", position.optimizer_steps},
          {"optimizer_reset", position.optimizer_reset},
          {"tokens_in_round", position.tokens_in_round},
          {"tokens_last_round", position.tokens_last_round}};
}

TrainingPosition position_from(const Json& json) {
  TrainingPosition position;
  json.at("step").get_to(position.step);
  json.at("round").get_to(position.round);
  json.at("in_round").get_to(position.in_round);
  json.at("cursor").get_to(position.cursor);
  json.at("tokens").get_to(position.tokens);
  json.at("optimizer_steps").get_to(position.optimizer_steps);
  json.at("optimizer_reset").get_to(position.optimizer_reset);
  json.at("tokens_in_round").get_to(position.tokens_in_round);
  json.at("tokens_last_round").get_to(position.tokens_last_round);
  return position;
}

/// Throws std::invalid_argument for a part whose unit, file or bytes are not there.
void require_place(const CheckpointManifest& manifest, const StoredPart& part) {
  if (part.unit >= manifest.units.size() || part.file >= manifest.files.size() || part.range.begin >= part.range.end ||
      part.range.end > manifest.unit_sizes[part.unit])
    throw std::invalid_argument("a part names a unit, range or file that is not there");
  const std::uint64_t bytes = part.range.size() * size_of(manifest.element), size = manifest.files[part.file].size;
  if (part.offset > size || bytes > size - part.offset)
    throw std::invalid_argument("a part does not lie inside its file");
  if (const std::uint64_t segments = (bytes + segment_bytes - 1) / segment_bytes; part.hashes.size() != segments)
    throw std::invalid_argument(
        fmt::format("a part of {} bytes has {} hashes, not {}", bytes, part.hashes.size(), segments));
}

/// Throws std::invalid_argument for numbers that do not fit each other.
void require_consistent(const CheckpointManifest& manifest) {
  const TrainingPosition& position = manifest.position;
  const std::size_t groups = manifest.groups.size();
  for (const GroupShape& group : manifest.groups)
    if (group.replicas < 1 || group.shards < 1) throw std::invalid_argument("a group has no ranks");
  if (groups == 0 || position.tokens_in_round.size() != groups ||
      (!position.tokens_last_round.empty() && position.tokens_last_round.size() != groups))
    throw std::invalid_argument(fmt::format("it has the tokens of another number of groups than {}", groups));
  if (std::min({position.step, position.round, position.cursor, position.tokens, position.optimizer_steps}) < 0)
    throw std::invalid_argument("the position of training is negative");
  for (const CheckpointFile& file : manifest.files)
    for (const Segment& rest : file.rest)
      if (rest.size > segment_bytes || rest.offset > file.size || rest.size > file.size - rest.offset)
        throw std::invalid_argument(fmt::format("a segment of {} does not lie inside its file", file.name));
}

std::string read_all(const std::string& path, const std::string& meaning) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad())
    throw DataError(fmt::format("{}: {} ({})", path, meaning, errno != 0 ? std::strerror(errno) : "cannot be read"));
  return text.str();
}

}  // namespace

Json to_json(const CheckpointFile& file) {
  Json rest = Json::array();
  for (const Segment& segment : file.rest)
    rest.push_back(Json::array({segment.offset, segment.size, hexadecimal({segment.hash})}));
  return {{"name", file.name}, {"size", file.size}, {"rest", std::move(rest)}};
}

CheckpointFile file_from(const Json& json) {
  CheckpointFile file{json.at("name"), json.at("size"), {}};
  for (const Json& segment : json.at("rest"))
    file.rest.push_back({segment.at(0), segment.at(1), from_hexadecimal(segment.at(2)).at(0)});
  return file;
}

Json to_json(const StoredPart& part) {
  return Json::array({part.array.name(), part.unit, part.range.begin, part.range.end, part.file, part.offset,
                      hexadecimal(part.hashes)});
}

StoredPart part_from(const Json& json) {
  StoredPart part;
  part.array = CheckpointArray::from_name(json.at(0));
  json.at(1).get_to(part.unit);
  part.range = {json.at(2), json.at(3)};
  json.at(4).get_to(part.file);
  json.at(5).get_to(part.offset);
  part.hashes = from_hexadecimal(json.at(6));
  return part;
}

std::uint64_t hash_of_bytes(const void* bytes, std::size_t count) { return XXH3_64bits(bytes, count); }

std::uint64_t CheckpointManifest::bytes() const {
  std::uint64_t total = 0;
  for (const CheckpointFile& file : files) total += file.size;
  return total;
}

bool CheckpointManifest::has(const CheckpointArray& array) const {
  for (const StoredPart& part : parts)
    if (part.array == array) return true;
  return false;
}

std::string to_text(const CheckpointManifest& manifest) {
  Json grid = Json::array(), units = Json::array(), files = Json::array(), parts = Json::array();
  for (const GroupShape& group : manifest.groups)
    grid.push_back(Json{{"replicas", group.replicas}, {"shards", group.shards}});
  for (std::size_t u = 0; u < manifest.units.size(); ++u)
    units.push_back(Json{{"name", manifest.units[u]}, {"size", manifest.unit_sizes[u]}});
  for (const CheckpointFile& file : manifest.files) files.push_back(to_json(file));
  for (const StoredPart& part : manifest.parts) parts.push_back(to_json(part));
  const Json json{{"format", format_name},
                  {"version", checkpoint_version},
                  {"atoll", manifest.atoll},
                  {"run_id", manifest.run_id},
                  {"element", name_of(manifest.element)},
                  {"position", to_json(manifest.position)},
                  {"configuration", manifest.configuration},
                  {"model", Json::parse(manifest.model)},
                  {"data", manifest.data},
                  {"groups", std::move(grid)},
                  {"units", std::move(units)},
                  {"files", std::move(files)},
                  {"parts", std::move(parts)}};
  return json.dump() + "\n";
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    const Json json = Json::parse(text);
    if (json.value("format", "") != format_name)
      throw DataError(fmt::format("{}: not the manifest of a checkpoint (no format \"{}\")", path, format_name));
    if (const std::int64_t version = json.at("version"); version != checkpoint_version)
      throw DataError(
          fmt::format("{}: checkpoint of version {}, this program reads version {}; use the atoll that "
                      "wrote it ({}), or a newer one",
                      path, version, checkpoint_version, json.value("atoll", "unknown version")));
    CheckpointManifest manifest;
    json.at("atoll").get_to(manifest.atoll);
    json.at("run_id").get_to(manifest.run_id);
    const std::string element = json.at("element");
    if (element != name_of(Element::f32) && element != name_of(Element::f64))
      throw std::invalid_argument(fmt::format("element \"{}\" is neither fp32 nor fp64", element));
    manifest.element = element == name_of(Element::f64) ? Element::f64 : Element::f32;
    manifest.position = position_from(json.at("position"));
    manifest.configuration = json.at("configuration");
    manifest.model = json.at("model").dump();
    manifest.data = json.at("data");
    for (const Json& group : json.at("groups")) manifest.groups.push_back({group.at("replicas"), group.at("shards")});
    for (const Json& unit : json.at("units")) {
      manifest.units.push_back(unit.at("name"));
      manifest.unit_sizes.push_back(unit.at("size"));
    }
    for (const Json& file : json.at("files")) manifest.files.push_back(file_from(file));
    for (const Json& part : json.at("parts")) {
      manifest.parts.push_back(part_from(part));
      require_place(manifest, manifest.parts.back());
    }
    require_consistent(manifest);
    return manifest;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("{}: not a manifest that this program understands: {}", path, error.what()));
  }
}

std::string commit_text(std::string_view manifest) {
  return fmt::format("xxh3-64:{:016x}\n", hash_of_bytes(manifest.data(), manifest.size()));
}

CheckpointManifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/MANIFEST.json";
  const std::string commit = read_all(folder + "/COMMIT", "missing, so this is not a complete checkpoint");
  const std::string text = read_all(path, "missing from a checkpoint that has a COMMIT");
  if (commit != commit_text(text))
    throw DataError(fmt::format("{}: does not have the hash that COMMIT says: one of the two was changed", path));
  return parse_manifest(text, path);
}

}  // namespace atl
