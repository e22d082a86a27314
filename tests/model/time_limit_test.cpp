/// Durations, and when a run wishes to stop. SPDX-License-Identifier: Apache-2.0
#include "model/time_limit.hpp"

#include "core/errors.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace atl {
namespace {

std::string refusal(
    const std::string& limit, const TimeLimit::Clock& clock = [] { return 1000.0; }) {
  try {
    TimeLimit(limit, clock);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

/// SLURM_JOB_END_TIME for the life of this.
struct SlurmEnd {
  explicit SlurmEnd(const char* value) { setenv("SLURM_JOB_END_TIME", value, 1); }
  ~SlurmEnd() { unsetenv("SLURM_JOB_END_TIME"); }
};

TEST(TimeLimit, ReadsDurations) {
  const auto read = [](const char* text) { return parse_duration(text, "limit"); };
  EXPECT_EQ(read("5400"), 5400);
  EXPECT_EQ(read("45s"), 45);
  EXPECT_EQ(read("90m"), 5400);
  EXPECT_EQ(read("1h30m"), 5400);
  EXPECT_EQ(read("2d"), 172800);
  EXPECT_EQ(read("1d2h3m4s"), 86400 + 7200 + 180 + 4);
  EXPECT_EQ(read("1:30:00"), 5400);
  EXPECT_EQ(read("100:00:01"), 360001);
  EXPECT_EQ(read("1-12"), 129600);
  EXPECT_EQ(read("1-12:30"), 131400);
  EXPECT_EQ(read("1-12:30:05"), 131405);
}

TEST(TimeLimit, RefusesOthers) {
  for (const char* text : {"1h30", "soon", "h", "-5", "1.5h", "30m1h", "1:2:3:4", "1:60:00", "1-", "5 m", "1e3", " 5",
                           "99999999999999999999"})
    EXPECT_NE(wrong_duration(text).find("is not a duration; write seconds (5400)"), std::string::npos) << text;
  EXPECT_NE(wrong_duration("").find("is not a duration"), std::string::npos);
  EXPECT_NE(wrong_duration("1:30").find("hours:minutes to others"), std::string::npos);
  for (const char* text : {"0", "0s", "0:00:00", "0-0"})
    EXPECT_EQ(wrong_duration(text), "is no time at all; give more, or \"none\" for no limit") << text;
  EXPECT_EQ(refusal("soon").substr(0, 43), "train.time_limit = soon is not a duration; ");
}

TEST(TimeLimit, NoneIsNeverReached) {
  unsetenv("SLURM_JOB_END_TIME");
  TimeLimit limit;
  limit.step(1e30);
  EXPECT_FALSE(limit.reached());
  EXPECT_EQ(limit.seconds_left(), std::numeric_limits<double>::infinity());
  EXPECT_FALSE(TimeLimit("").exists());
  const SlurmEnd slurm("5000");
  EXPECT_FALSE(TimeLimit("none").exists());
}

TEST(TimeLimit, LeavesTimeForAStepASaveAndTheEnd) {
  double now = 1000;
  TimeLimit limit("1h", [&] { return now; });
  EXPECT_EQ(limit.source(), "train.time_limit = 1h");
  EXPECT_EQ(limit.seconds_left(), 3600);
  now += 3599;
  EXPECT_FALSE(limit.reached()) << "the first step is always done";
  now = 1000;
  /// First whole second at which it is reached.
  const auto reached_at = [&] {
    for (now = 1000; !limit.reached(); ++now) {
    }
    return now - 1000;
  };
  limit.step(30), limit.step(101), limit.step(50);  // no sum below is a whole number
  EXPECT_EQ(reached_at(), std::floor(3600 - (1.1 * 101 + 2)) + 1);
  limit.expect_save(40'000'000'000);  // 200 s
  EXPECT_EQ(reached_at(), std::floor(3600 - (1.1 * 301 + 2)) + 1);
  limit.save(20);
  EXPECT_EQ(reached_at(), std::floor(3600 - (1.1 * 121 + 2)) + 1);
  limit.save(60), limit.save(10);
  EXPECT_EQ(reached_at(), std::floor(3600 - (1.1 * 161 + 2)) + 1);
  limit.end_takes(8);
  limit.allow_steps(3);
  EXPECT_EQ(reached_at(), std::floor(3600 - (1.1 * 371 + 2)) + 1);
}

// Whatever a step and a save take, within what was seen: the last save ends in time, and no step is given away.
TEST(TimeLimit, ARunEndsInTime) {
  for (const double step : {0.5, 7.0, 60.0})
    for (const double save : {0.0, 1.0, 90.0}) {
      double now = 5e6;
      TimeLimit limit("1800", [&] { return now; });
      limit.save(save);
      while (!limit.reached()) {
        now += step;
        limit.step(step);
      }
      now += save;
      EXPECT_LE(now, 5e6 + 1800);
      EXPECT_GT(now + 1.1 * (2 * step + save) + 2, 5e6 + 1800) << step << ' ' << save;
    }
}

TEST(TimeLimit, TakesTheEndOfTheJobFromSlurm) {
  {
    const SlurmEnd slurm("1600");
    const TimeLimit limit("", [] { return 1000.0; });
    EXPECT_EQ(limit.seconds_left(), 600);
    EXPECT_EQ(limit.source(), "SLURM_JOB_END_TIME = 1600");
    EXPECT_EQ(TimeLimit("10s", [] { return 1000.0; }).seconds_left(), 10);  // goes first
  }
  const SlurmEnd over("900");
  EXPECT_EQ(refusal(""),
            "SLURM_JOB_END_TIME = 900 was 100 s ago: the job has no time left; unset it, or give train.time_limit "
            "(\"none\" for no limit)");
  const SlurmEnd malformed("tomorrow");
  EXPECT_EQ(refusal(""),
            "SLURM_JOB_END_TIME = tomorrow is not a time in seconds since 1970; unset it, or give train.time_limit "
            "(\"none\" for no limit)");
}

}  // namespace
}  // namespace atl
