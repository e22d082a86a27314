/// Learning-rate schedules. SPDX-License-Identifier: Apache-2.0
#include "model/lr_schedule.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>

#include <cmath>

namespace atl {
namespace {

using Kind = ScheduleOptions::Kind;

std::int64_t whole_steps(double steps_or_fraction, std::int64_t total_steps) {
  return std::llround(steps_or_fraction < 1.0 ? steps_or_fraction * static_cast<double>(total_steps)
                                              : steps_or_fraction);
}

}  // namespace

SchedulePhases schedule_phases(const ScheduleOptions& options, std::int64_t total_steps) {
  ATOLL_REQUIRE(total_steps >= 1);
  SchedulePhases phases;
  phases.warmup = whole_steps(options.warmup, total_steps);
  if (phases.warmup > total_steps)
    throw ConfigError(
        fmt::format("schedule.warmup = {} is longer than train.steps = {}; give fewer steps, or a fraction "
                    "below 1",
                    options.warmup, total_steps));
  std::int64_t decay = whole_steps(options.decay_steps, total_steps);
  switch (options.kind) {
    case Kind::constant:
      phases.decay_begin = phases.decay_end = total_steps;
      return phases;
    case Kind::wsd:
      if (options.decay_steps == 0) decay = whole_steps(0.1, total_steps);
      phases.decay_begin = total_steps - decay;
      phases.decay_end = total_steps;
      break;
    case Kind::cosine:
    case Kind::linear:
      if (options.decay_steps == 0) decay = total_steps - phases.warmup;
      phases.decay_begin = phases.warmup;
      phases.decay_end = phases.warmup + decay;
      break;
  }
  if (phases.warmup + decay > total_steps)
    throw ConfigError(
        fmt::format("schedule.warmup and schedule.decay_steps are {} and {} steps, together more than "
                    "train.steps = {}",
                    phases.warmup, decay, total_steps));
  return phases;
}

double learning_rate(const ScheduleOptions& options, double peak, std::int64_t step, std::int64_t total_steps) {
  const SchedulePhases phases = schedule_phases(options, total_steps);
  if (step < phases.warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(phases.warmup);
  if (options.kind == Kind::constant || step < phases.decay_begin) return peak;
  if (step >= phases.decay_end) return options.min_lr;
  const double progress =
      static_cast<double>(step - phases.decay_begin) / static_cast<double>(phases.decay_end - phases.decay_begin);
  constexpr double pi = 3.14159265358979323846;
  const double remaining = options.kind == Kind::cosine ? 0.5 * (1.0 + std::cos(pi * progress)) : 1.0 - progress;
  return options.min_lr + (peak - options.min_lr) * remaining;
}

}  // namespace atl
