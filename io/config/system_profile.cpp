/// SPDX-License-Identifier: Apache-2.0
#include "io/config/system_profile.hpp"

#include "core/errors.hpp"
#include "core/nearest_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace atl {

namespace fs = std::filesystem;

ConfigTable system_profile_table(SystemProfile& p) {
  ConfigTable table;
  const auto or_none = [](ConfigKey& key) { key.absent = 0; };
  table.add("system.name", &p.name, "For people.");
  or_none(table.add("system.nodes", &p.nodes, between(1, 1e9), "Nodes of the whole system."));
  or_none(table.add("system.ranks_per_node", &p.ranks_per_node, between(1, 1e6),
                    "Accelerators of a node, or cores where those are the ranks."));
  or_none(table.add("system.memory", &p.memory, above(0), "Bytes of memory of a rank."));
  or_none(table.add("system.memory_bandwidth", &p.memory_bandwidth, above(0),
                    "Bytes per second of a rank's memory, read and written."));
  or_none(table.add("system.fp64", &p.fp64, above(0), "Peak of a rank in fp64, operations per second."));
  or_none(table.add("system.fp32", &p.fp32, above(0), "Peak of a rank in fp32, operations per second."));
  or_none(table.add("system.bf16", &p.bf16, above(0), "Peak of a rank in bf16, operations per second."));
  table.add("system.efficiency", &p.efficiency, {.least = 0, .most = 1, .least_allowed = false},
            "Share of the peak that training reaches.");
  table.add("intra.latency", &p.intra.latency, at_least(0), "Seconds of a short message inside a node.");
  or_none(table.add("intra.bandwidth", &p.intra.bandwidth, above(0),
                    "Bytes per second that each rank sends inside its node while all others do the same."));
  table.add("inter.latency", &p.inter.latency, at_least(0), "Seconds of a short message between nodes.");
  or_none(table.add("inter.bandwidth", &p.inter.bandwidth, above(0),
                    "Bytes per second that one network card sends, one direction."));
  table.add("inter.cards", &p.cards, between(1, 1e6), "Network cards of a node.");
  table.add("inter.efficiency", &p.inter_efficiency, {.least = 0, .most = 1, .least_allowed = false},
            "Share of that bandwidth that is reached.");
  return table;
}

SystemProfile load_system_profile(const std::string& path, const std::vector<std::string>& overrides) {
  SystemProfile profile;
  ConfigTable table = system_profile_table(profile);
  if (!path.empty())
    for (const auto& entry : read_toml_file(path, "the system profile")) table.apply(entry);
  for (const auto& text : overrides) table.apply(parse_override(text));
  const auto require = [&](bool given, const std::string& key, const std::string& example) {
    if (!given)
      throw ConfigError(fmt::format("{}{} is missing; add it, as in --set {}={}", path.empty() ? "" : path + ": ", key,
                                    key, example));
  };
  require(profile.ranks_per_node > 0, "system.ranks_per_node", "4");
  require(profile.intra.bandwidth > 0, "intra.bandwidth", "100e9");
  require(profile.inter.bandwidth > 0, "inter.bandwidth", "12.5e9");
  require(profile.fp64 > 0 || profile.fp32 > 0 || profile.bf16 > 0, "system.fp32", "20e12");
  return profile;
}

std::string find_system_profile(const std::string& name, const std::vector<std::string>& folders) {
  if (name.find('/') != std::string::npos || fs::path(name).extension() == ".toml") return name;
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    const fs::path file = fs::path(folder) / (name + ".toml");
    if (fs::exists(file)) return file.string();
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
      if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.empty())
    throw ConfigError(fmt::format("--system {}: no profiles are installed; give the path of a .toml file", name));
  const std::string nearest = nearest_name(name, names);
  throw ConfigError(fmt::format("--system {}: unknown; did you mean {}? There are {}; or give the path of a .toml file",
                                name, nearest, fmt::join(names, ", ")));
}

std::string show(const SystemProfile& profile) {
  SystemProfile copy = profile;
  return system_profile_table(copy).show([](const ConfigKey&) { return nlohmann::json(); });
}

Machine machine_of(const SystemProfile& profile, Precision precision) {
  const double peak = precision == Precision::bf16   ? profile.bf16
                      : precision == Precision::fp32 ? profile.fp32
                                                     : profile.fp64;
  if (peak <= 0) {
    const std::string_view key = precision == Precision::bf16 ? "bf16" : precision == Precision::fp32 ? "fp32" : "fp64";
    throw ConfigError(
        fmt::format("system.{} is missing, the peak of train.precision = \"{}\"; add it, as in --set "
                    "system.{}=20e12",
                    key, key, key));
  }
  Machine machine;
  machine.ranks_per_node = profile.ranks_per_node;
  machine.intra = profile.intra;
  machine.inter = {profile.inter.latency, profile.inter.bandwidth * profile.inter_efficiency};
  machine.cards = profile.cards;
  machine.flops = peak * profile.efficiency;
  machine.memory_bandwidth = profile.memory_bandwidth;
  return machine;
}

}  // namespace atl
