/// How `atoll plan` tells what it found: text, JSON, a plot. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/config/system_profile.hpp"
#include "model/plan.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace atl {

struct PlanReport {
  std::string system;  ///< name, and where it comes from
  SystemProfile profile;
  PlanOptions options;
  std::vector<PlanRow> rows;  ///< best first
  std::size_t left_out = 0;   ///< grids that cannot deal the batch
  bool paper = false;         ///< the published experiment: compare with it
};

void print_plan(const PlanReport& report, std::size_t most_rows);
std::string plan_json(const PlanReport& report);
/// Tokens per second by number of ranks: the best grid that fits of each strategy.
std::string plan_svg(const PlanReport& report);

}  // namespace atl
