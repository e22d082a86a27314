/// A machine's facts as a TOML file: what the planner knows of it. SPDX-License-Identifier: Apache-2.0
///
/// Profiles of some systems ship in examples/systems, with the public source of each figure; `atoll doctor --network`
/// measures and writes one.
#pragma once

#include "io/config/config_table.hpp"
#include "model/options.hpp"
#include "parallel/cost_model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace atl {

struct SystemProfile {
  std::string name;
  std::int64_t nodes = 0;               ///< of the whole system; 0: not given
  std::int64_t ranks_per_node = 0;      ///< accelerators, or cores where those are the ranks
  double memory = 0;                    ///< bytes of a rank; 0: not given
  double memory_bandwidth = 0;          ///< bytes per second of a rank; 0: not given
  double fp64 = 0, fp32 = 0, bf16 = 0;  ///< peak operations per second of a rank; 0: not given
  double efficiency = 0.4;              ///< share of the peak that training reaches
  LinkRates intra;
  LinkRates inter;              ///< of a card, as its maker rates it
  std::int64_t cards = 1;       ///< of a node
  double inter_efficiency = 1;  ///< share of the rated bandwidth that is reached
};

/// Every key of a profile, bound to `profile`, which must outlive the table.
ConfigTable system_profile_table(SystemProfile& profile);

/// Reads the file (empty path: none), then the overrides ("inter.bandwidth=25e9"), and checks that nothing is missing.
/// ConfigError names place, value and fix.
SystemProfile load_system_profile(const std::string& path, const std::vector<std::string>& overrides);

/// The file of a profile: `name` where it is a path, else NAME.toml in one of `folders`. ConfigError with the names
/// that there are.
std::string find_system_profile(const std::string& name, const std::vector<std::string>& folders);

/// Valid TOML; load_system_profile gives the same profile back.
std::string show(const SystemProfile& profile);

/// ConfigError where the peak of that precision is not given.
Machine machine_of(const SystemProfile& profile, Precision precision);

}  // namespace atl
