/// Tests of io/config/system_profile.hpp, and of the profiles that ship. SPDX-License-Identifier: Apache-2.0
#include "io/config/system_profile.hpp"

#include "core/errors.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace atl {
namespace {

const std::string systems = std::string(ATOLL_SOURCE_DIR) + "/examples/systems";

const char* const small = R"([system]
ranks_per_node = 4
fp32 = 2e12
efficiency = 0.5
[intra]
latency = 1e-6
bandwidth = 8e9
[inter]
latency = 2e-5
bandwidth = 1e9
cards = 2
efficiency = 0.75
)";

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const ScratchFolder folder;
  const std::string path = folder.write("my.toml", text);
  return message_of<ConfigError>([&] { load_system_profile(path, overrides); });
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(SystemProfile, BecomesAMachine) {
  const ScratchFolder folder;
  const SystemProfile profile = load_system_profile(folder.write("my.toml", small), {"inter.cards=3"});
  const Machine machine = machine_of(profile, Precision::fp32);
  EXPECT_EQ(machine.ranks_per_node, 4);
  EXPECT_EQ(machine.flops, 1e12);
  EXPECT_EQ(machine.intra.latency, 1e-6);
  EXPECT_EQ(machine.intra.bandwidth, 8e9);
  EXPECT_EQ(machine.inter.latency, 2e-5);
  EXPECT_EQ(machine.inter.bandwidth, 0.75e9);
  EXPECT_EQ(machine.cards, 3);
  EXPECT_EQ(machine.memory_bandwidth, 0);
  expect_part(message_of<ConfigError>([&] { machine_of(profile, Precision::bf16); }), "system.bf16 is missing");
}

TEST(SystemProfile, ReadsBackWhatItWrites) {
  const ScratchFolder folder;
  SystemProfile profile =
      load_system_profile(folder.write("my.toml", small), {"system.name=a \"b\"", "system.nodes=7"});
  profile.inter.bandwidth = 1.0 / 3;
  const std::string text = show(profile);
  const SystemProfile again = load_system_profile(folder.write("again.toml", text), {});
  EXPECT_EQ(show(again), text);
  EXPECT_EQ(again.inter.bandwidth, 1.0 / 3);
  EXPECT_EQ(again.name, "a \"b\"");
  EXPECT_EQ(again.nodes, 7);
  EXPECT_EQ(again.bf16, 0);
}

TEST(SystemProfile, TellsWhatIsWrong) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = small;
    return text.replace(text.find(from), from.size(), to);
  };
  expect_part(error_of(with("ranks_per_node", "rank_per_node")),
              "my.toml:2: unknown key system.rank_per_node; did you mean system.ranks_per_node?");
  expect_part(error_of(with("[intra]", "[intre]")), "unknown table [intre]; did you mean [int");
  expect_part(error_of(with("bandwidth = 8e9", "bandwidth = \"fast\"")),
              "my.toml:7: intra.bandwidth = \"fast\" is a string; expected a number");
  expect_part(error_of(with("bandwidth = 8e9", "bandwidth = -1")),
              "intra.bandwidth = -1 is out of range; it must be above 0");
  expect_part(error_of(with("cards = 2", "cards = 0")), "inter.cards = 0");
  expect_part(error_of(with("efficiency = 0.5", "efficiency = 1.5")), "system.efficiency = 1.5");
  expect_part(error_of(with("bandwidth = 8e9\n", "")), "my.toml: intra.bandwidth is missing");
  expect_part(error_of(with("bandwidth = 1e9\n", "")), "inter.bandwidth is missing");
  expect_part(error_of(with("ranks_per_node = 4\n", "")), "system.ranks_per_node is missing");
  expect_part(error_of(with("fp32 = 2e12\n", "")), "system.fp32 is missing");
  expect_part(error_of("[system\n"), "my.toml:1: not TOML");
  expect_part(message_of<ConfigError>([] { load_system_profile("no/such.toml", {}); }),
              "cannot read the system profile");
  expect_part(message_of<ConfigError>([] { load_system_profile("", {}); }), "system.ranks_per_node is missing");
  expect_part(message_of<ConfigError>([] {
                find_system_profile("leonard", {"nowhere", systems});
              }),
              "did you mean leonardo?");
  expect_part(message_of<ConfigError>([] { find_system_profile("x", {"nowhere"}); }), "no profiles are installed");
}

TEST(SystemProfile, ThoseThatShipAreComplete) {
  for (const char* name : {"dgx-h100", "frontier", "leonardo", "lumi-g", "marenostrum5", "two-laptops"}) {
    SCOPED_TRACE(name);
    const std::string path = find_system_profile(name, {systems});
    const SystemProfile profile = load_system_profile(path, {});
    EXPECT_FALSE(profile.name.empty());
    EXPECT_GT(profile.nodes, 0);
    EXPECT_GT(profile.memory, 1e9);
    EXPECT_GT(profile.memory_bandwidth, 1e9);
    EXPECT_GT(profile.intra.latency, 0);
    EXPECT_GT(profile.inter.latency, 0);
    const Machine machine = machine_of(profile, std::string(name) == "two-laptops" ? Precision::fp32 : Precision::bf16);
    EXPECT_GE(machine.intra.bandwidth, machine.inter.bandwidth);
    // Every figure has its source or says that it is assumed.
    std::istringstream lines(content_of(path));
    for (std::string line; std::getline(lines, line);) {
      const bool figure = line.find(" = ") != std::string::npos && line[0] != '#' && line.rfind("name", 0) != 0;
      const bool obvious = line.rfind("cards", 0) == 0 || std::string(name) == "two-laptops";
      if (figure && !obvious) {
        EXPECT_TRUE(line.find("# [") != std::string::npos || line.find("assumption") != std::string::npos) << line;
      }
    }
  }
}

}  // namespace
}  // namespace atl
