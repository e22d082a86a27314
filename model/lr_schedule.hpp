/// Learning rate of each optimizer step: linear warm-up, then cosine, linear, constant or wsd.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/options.hpp"

#include <cstdint>

namespace atl {

/// The phases of a schedule in whole steps: warm-up [0, warmup), then plateau, decay [decay_begin, decay_end), minimum.
struct SchedulePhases {
  std::int64_t warmup = 0;
  std::int64_t decay_begin = 0;
  std::int64_t decay_end = 0;
};

/// Fractions become the nearest whole number of steps. Throws ConfigError where warm-up and decay do not fit in
/// total_steps (>= 1). cosine, linear: decay follows warm-up at once, over decay_steps or to the end. wsd: the last
/// decay_steps (a tenth of all where 0) decay.
SchedulePhases schedule_phases(const ScheduleOptions& options, std::int64_t total_steps);

/// The learning rate of optimizer step `step` (0-based).
///   warm-up of W steps: peak (step + 1) / W: no step is spent at 0, and step W - 1 has the peak
///   decay of D steps, p = (step - begin) / D, so that step `begin` still has the peak:
///     cosine       min + (peak - min) (1 + cos(pi p)) / 2     (arXiv:1608.03983, eq. 5, without restarts)
///     linear, wsd  min + (peak - min) (1 - p)                 (wsd: arXiv:2404.06395, with a linear decay)
///   afterwards min. These are the values of PyTorch's LinearLR followed by CosineAnnealingLR, LinearLR or ConstantLR.
double learning_rate(const ScheduleOptions& options, double peak, std::int64_t step, std::int64_t total_steps);

}  // namespace atl
