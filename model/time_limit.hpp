/// When a run must stop so that its last save still fits into the time it has. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace atl {

/// Seconds of "5400", "90m", "1h30m", "2d", "45s" (d, h, m, s in this order), "1:30:00" and Slurm's "1-12", "1-12:30",
/// "1-12:30:00" (days-hours:minutes:seconds). ConfigError, which begins with `what`, unless it is one of these and
/// above 0. "1:30" is refused: it is minutes to Slurm, hours to most people.
double parse_duration(const std::string& text, const std::string& what);
/// What is wrong with it, as "is not a duration; write ..."; empty: nothing.
std::string wrong_duration(const std::string& text);

/// The end of the time that a run has; none at all is a limit that is never reached. It is told how long things take,
/// and asked after every step by one rank, which makes a wish to stop of it.
class TimeLimit {
 public:
  using Clock = std::function<double()>;  ///< seconds since 1970

  TimeLimit() = default;  ///< none
  /// `limit`: train.time_limit, from now on; "none": no limit; empty: SLURM_JOB_END_TIME (seconds since 1970) where it
  /// is set, else none. ConfigError if it is malformed, or over.
  explicit TimeLimit(const std::string& limit, Clock clock = system_clock());

  /// Wall time of a step with all that came with it: data, an aggregation, an evaluation.
  void step(double seconds);
  /// Steps that may end between two questions and the last step: 1 (the default) for one group. Several groups stop at
  /// a common step, which the others hear of a step later: 3.
  void allow_steps(int steps) { steps_ = steps; }
  /// Before the first save: its bytes, at 200 MB/s.
  void expect_save(std::uint64_t bytes);
  void save(double seconds);
  /// What follows the last save.
  void end_takes(double seconds) { end_ = seconds; }

  bool exists() const { return end_time_.has_value(); }
  double seconds_left() const;    ///< infinite without a limit
  double seconds_needed() const;  ///< steps, the longest seen, save and end; a tenth of all that and 2 s on top
  /// True when another step would leave too little time. The first step always fits.
  bool reached() const { return exists() && longest_step_ > 0 && seconds_left() < seconds_needed(); }
  std::string source() const { return source_; }  ///< "train.time_limit = 90m", "SLURM_JOB_END_TIME = 1790000000"

  static Clock system_clock();

 private:
  Clock clock_;
  std::optional<double> end_time_;  // seconds since 1970
  std::string source_;
  int steps_ = 1;
  double longest_step_ = 0, expected_save_ = 0, longest_save_ = 0, end_ = 0;
};

}  // namespace atl
