/// Tests of model/lr_schedule.hpp. SPDX-License-Identifier: Apache-2.0
#include "model/lr_schedule.hpp"

#include "core/errors.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace atl {
namespace {

using Kind = ScheduleOptions::Kind;
using nlohmann::json;

Kind kind_named(const std::string& name) {
  if (name == "cosine") return Kind::cosine;
  if (name == "linear") return Kind::linear;
  if (name == "constant") return Kind::constant;
  EXPECT_EQ(name, "wsd");
  return Kind::wsd;
}

TEST(LrSchedule, AgreesWithPyTorch) {
  std::ifstream file(ATOLL_SOURCE_DIR "/tests/fixtures/lr_schedules.json");
  const json schedules = json::parse(file).at("schedules");
  ASSERT_EQ(schedules.size(), 7u);
  for (const auto& schedule : schedules) {
    const ScheduleOptions options{.kind = kind_named(schedule["kind"]),
                                  .warmup = schedule["warmup"],
                                  .min_lr = schedule["min_lr"],
                                  .decay_steps = schedule["decay_steps"]};
    const auto steps = schedule["steps"].get<std::int64_t>();
    const double peak = schedule["peak"];
    ASSERT_EQ(schedule["values"].size(), 50u);
    for (std::int64_t step = 0; step < steps; ++step) {
      const double expected = schedule["values"][static_cast<std::size_t>(step)];
      // PyTorch multiplies up its rates step by step, so it carries the rounding errors of 50 of them.
      EXPECT_NEAR(learning_rate(options, peak, step, steps), expected, 1e-13 * peak)
          << schedule["kind"] << " decay_steps " << schedule["decay_steps"] << ", step " << step;
    }
  }
}

TEST(LrSchedule, WarmsUpFromTheFirstStep) {
  const ScheduleOptions options{.kind = Kind::constant, .warmup = 4};
  EXPECT_EQ(learning_rate(options, 8.0, 0, 10), 2.0);
  EXPECT_EQ(learning_rate(options, 8.0, 3, 10), 8.0);
  EXPECT_EQ(learning_rate(options, 8.0, 9, 10), 8.0);
}

TEST(LrSchedule, WithoutWarmUpStartsAtThePeak) {
  for (const Kind kind : {Kind::cosine, Kind::linear, Kind::constant, Kind::wsd}) {
    const ScheduleOptions options{.kind = kind, .warmup = 0};
    EXPECT_EQ(learning_rate(options, 3e-4, 0, 10), 3e-4);
  }
}

TEST(LrSchedule, EndsAtTheMinimum) {
  for (const Kind kind : {Kind::cosine, Kind::linear, Kind::wsd}) {
    const ScheduleOptions options{.kind = kind, .warmup = 3, .min_lr = 1e-5};
    EXPECT_EQ(learning_rate(options, 3e-4, 100, 100), 1e-5);
    EXPECT_GT(learning_rate(options, 3e-4, 99, 100), 1e-5);
  }
}

TEST(LrSchedule, WarmUpMayFillTheRun) {
  const ScheduleOptions options{.kind = Kind::cosine, .warmup = 10, .min_lr = 1e-5};
  EXPECT_EQ(learning_rate(options, 3e-4, 9, 10), 3e-4);
  EXPECT_EQ(learning_rate(options, 3e-4, 10, 10), 1e-5);  // no step decays: not 0 / 0
}

TEST(LrSchedule, FractionsBecomeTheNearestWholeStep) {
  EXPECT_EQ(schedule_phases({.warmup = 0.1}, 64).warmup, 6);     // 6.4
  EXPECT_EQ(schedule_phases({.warmup = 0.07}, 100).warmup, 7);   // 7.000000000000001 in binary
  EXPECT_EQ(schedule_phases({.warmup = 0.29}, 100).warmup, 29);  // 28.999999999999996 in binary
  EXPECT_EQ(schedule_phases({.warmup = 0.1}, 1).warmup, 0);
  EXPECT_EQ(schedule_phases({.warmup = 1}, 64).warmup, 1);
  EXPECT_EQ(schedule_phases({.kind = Kind::wsd, .warmup = 0, .decay_steps = 0}, 30).decay_begin, 27);
}

TEST(LrSchedule, RefusesPhasesThatDoNotFit) {
  EXPECT_THROW(schedule_phases({.warmup = 11}, 10), ConfigError);
  EXPECT_THROW(schedule_phases({.kind = Kind::wsd, .warmup = 5, .decay_steps = 6}, 10), ConfigError);
  EXPECT_THROW(schedule_phases({.kind = Kind::cosine, .warmup = 5, .decay_steps = 6}, 10), ConfigError);
  EXPECT_NO_THROW(schedule_phases({.kind = Kind::wsd, .warmup = 5, .decay_steps = 5}, 10));
  EXPECT_NO_THROW(schedule_phases({.kind = Kind::cosine, .warmup = 10}, 10));
}

}  // namespace
}  // namespace atl
