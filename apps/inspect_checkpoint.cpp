/// SPDX-License-Identifier: Apache-2.0
#include "apps/inspect_checkpoint.hpp"

#include "core/errors.hpp"
#include "io/checkpoint/reader.hpp"
#include "io/report/progress.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>

namespace atl {

namespace {

/// "2 groups x 1 replica x 4 shards", or one after another where they differ.
std::string describe(const std::vector<GroupShape>& groups) {
  bool equal = true;
  for (const GroupShape& group : groups) equal = equal && group == groups.front();
  if (equal)
    return fmt::format("{} groups of {} replicas x {} shards", groups.size(), groups.front().replicas,
                       groups.front().shards);
  std::vector<std::string> shapes;
  for (const GroupShape& group : groups) shapes.push_back(fmt::format("{} x {}", group.replicas, group.shards));
  return fmt::format("{} groups of replicas x shards: {}", groups.size(), fmt::join(shapes, ", "));
}

/// Bytes by array; those of the groups together.
std::map<std::string, std::uint64_t> sizes_of_arrays(const CheckpointManifest& manifest) {
  std::map<std::string, std::uint64_t> sizes;
  for (const StoredPart& part : manifest.parts) {
    CheckpointArray array = part.array;
    const bool of_groups = array.group >= 0;
    array.group = -1;
    sizes[(of_groups ? "groups/*/" : "") + array.name()] += part.range.size() * size_of(manifest.element);
  }
  return sizes;
}

}  // namespace

int inspect_checkpoint(const std::string& folder, bool verify, bool json) {
  CheckpointReader reader(folder);
  const CheckpointManifest& manifest = reader.manifest();
  const TrainingPosition& position = manifest.position;
  if (verify) {
    const Progress::Output output = Progress::Output::standard();
    std::optional<Progress> progress;
    if (output.terminal) progress.emplace(static_cast<std::int64_t>(manifest.bytes()), "bytes");
    reader.verify_all([&](std::uint64_t done) {
      if (progress) progress->update(static_cast<std::int64_t>(done), "");
    });
    if (progress) progress->finish();
  }
  if (json) {
    nlohmann::ordered_json out{{"checkpoint", folder},
                               {"run_id", manifest.run_id},
                               {"atoll", manifest.atoll},
                               {"step", position.step},
                               {"round", position.round},
                               {"in_round", position.in_round},
                               {"tokens", position.tokens},
                               {"cursor", position.cursor},
                               {"element", name_of(manifest.element)},
                               {"groups", manifest.groups.size()},
                               {"files", manifest.files.size()},
                               {"bytes", manifest.bytes()},
                               {"arrays", sizes_of_arrays(manifest)},
                               {"verified", verify},
                               {"configuration", manifest.configuration}};
    fmt::print("{}\n", out.dump(2));
    return static_cast<int>(ExitCode::done);
  }
  std::size_t parameters = 0;
  for (const std::size_t size : manifest.unit_sizes) parameters += size;
  fmt::print("checkpoint   {}\n", folder);
  fmt::print("written by   atoll {}, run {}\n", manifest.atoll, manifest.run_id);
  fmt::print("position     step {}, round {}{}, {} tokens, {} sequences\n", position.step, position.round,
             position.in_round ? " and into the next" : "", position.tokens, position.cursor);
  fmt::print("grid         {}\n", describe(manifest.groups));
  fmt::print("model        {} parameters in {}, {} units\n", parameters, name_of(manifest.element),
             manifest.units.size());
  for (const auto& [name, bytes] : sizes_of_arrays(manifest)) fmt::print("  {:<26}{:>12}\n", name, human_bytes(bytes));
  fmt::print("files        {}, {} in all\n", manifest.files.size(), human_bytes(manifest.bytes()));
  fmt::print("{}\n",
             verify ? "verified     every byte has its hash" : "not verified; --verify reads and checks every byte");
  return static_cast<int>(ExitCode::done);
}

}  // namespace atl
