/// SPDX-License-Identifier: Apache-2.0
#include "model/time_limit.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <regex>
#include <utility>

namespace atl {

namespace {

constexpr double minute = 60, hour = 3600, day = 86400;

/// The groups of a match times their units; those that are absent count nothing.
double total(const std::smatch& match, const std::array<double, 4>& units) {
  double seconds = 0;
  for (std::size_t i = 0; i < units.size() && i + 1 < match.size(); ++i)
    if (match[i + 1].matched) seconds += units[i] * std::strtod(match[i + 1].str().c_str(), nullptr);
  return seconds;
}

std::optional<double> seconds_of(const std::string& text) {
  const std::string n = "([0-9]{1,9})";
  static const std::regex plain(n), units("(?:" + n + "d)?(?:" + n + "h)?(?:" + n + "m)?(?:" + n + "s)?"),
      clock(n + ":([0-5]?[0-9]):([0-5]?[0-9])"), slurm(n + "-([0-9]{1,2})(?::([0-5]?[0-9]))?(?::([0-5]?[0-9]))?");
  std::smatch match;
  if (text.empty()) return std::nullopt;
  if (std::regex_match(text, match, plain)) return total(match, {1});
  if (std::regex_match(text, match, clock)) return total(match, {hour, minute, 1});
  if (std::regex_match(text, match, units) || std::regex_match(text, match, slurm))
    return total(match, {day, hour, minute, 1});
  return std::nullopt;
}

}  // namespace

std::string wrong_duration(const std::string& text) {
  constexpr auto forms = "write seconds (5400), 90m, 1h30m, 1:30:00, or days-hours:minutes:seconds (1-12:00:00)";
  static const std::regex ambiguous("[0-9]+:[0-9]+");
  if (std::regex_match(text, ambiguous))
    return fmt::format("is minutes:seconds to some and hours:minutes to others; {}", forms);
  const std::optional<double> seconds = seconds_of(text);
  if (!seconds) return fmt::format("is not a duration; {}", forms);
  return *seconds > 0 ? "" : "is no time at all; give more, or \"none\" for no limit";
}

double parse_duration(const std::string& text, const std::string& what) {
  const std::string wrong = wrong_duration(text);
  if (!wrong.empty()) throw ConfigError(fmt::format("{} {}", what, wrong));
  return *seconds_of(text);
}

TimeLimit::Clock TimeLimit::system_clock() {
  return [] { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); };
}

TimeLimit::TimeLimit(const std::string& limit, Clock clock) : clock_(std::move(clock)) {
  if (limit == "none") return;
  if (!limit.empty()) {
    source_ = "train.time_limit = " + limit;
    end_time_ = clock_() + parse_duration(limit, source_);
    return;
  }
  const char* const slurm = std::getenv("SLURM_JOB_END_TIME");
  if (slurm == nullptr || *slurm == '\0') return;
  source_ = fmt::format("SLURM_JOB_END_TIME = {}", slurm);
  constexpr auto fix = "unset it, or give train.time_limit (\"none\" for no limit)";
  char* end = nullptr;
  end_time_ = std::strtod(slurm, &end);
  if (std::string(slurm).find_first_not_of("0123456789") != std::string::npos)
    throw ConfigError(fmt::format("{} is not a time in seconds since 1970; {}", source_, fix));
  const double left = *end_time_ - clock_();
  if (left <= 0)
    throw ConfigError(fmt::format("{} was {:.0f} s ago: the job has no time left; {}", source_, -left, fix));
}

void TimeLimit::step(double seconds) { longest_step_ = std::max(longest_step_, seconds); }

void TimeLimit::expect_save(std::uint64_t bytes) { expected_save_ = static_cast<double>(bytes) / 200e6; }

void TimeLimit::save(double seconds) { longest_save_ = std::max(longest_save_, seconds); }

double TimeLimit::seconds_left() const {
  return exists() ? *end_time_ - clock_() : std::numeric_limits<double>::infinity();
}

double TimeLimit::seconds_needed() const {
  const double save = longest_save_ > 0 ? longest_save_ : expected_save_;
  return 1.1 * (steps_ * longest_step_ + save + end_) + 2;
}

}  // namespace atl
