/// How far a long task is: one line that renews itself on a terminal, now and then a plain line elsewhere.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace atl {

/// Writes to stderr: count, share, rate, time left, and what the caller adds. For one rank and one thread.
class Progress {
 public:
  /// Where and how to write; the default asks stderr whether it is a terminal.
  struct Output {
    std::FILE* file = stderr;
    bool terminal = false;
    double seconds = 5.0;  ///< between two lines (on a terminal: between two renewals)
    int columns = 80;      ///< width of the terminal
    static Output standard();
  };

  /// `total` in units of `unit`: "steps", "tokens"; "B" (bytes) and counts above 9999 are shown as kB, MB, ...
  /// `start`: how much was done before, by an earlier run; rates count from there.
  Progress(std::int64_t total, std::string unit, std::int64_t start = 0, Output output = Output::standard());
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total`; writes only when the last line is old enough, so call it as often as you like.
  void update(std::int64_t done, std::string_view suffix = {});
  /// The last line, which stays.
  void finish(std::string_view suffix = {});
  /// Takes the line off a terminal, before a log line is written; the next update brings it back.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string line() const;
  void write(bool last);

  std::int64_t total_, done_, start_;
  std::string unit_, suffix_;
  Output output_;
  Clock::time_point begin_;
  Clock::time_point next_;
  bool shown_ = false, finished_ = false;
};

/// "9999 steps", "12.3 k steps", "1.20 GB": three digits and a decimal prefix.
std::string human_count(double value, std::string_view unit);
/// "42 s", "3:07 min", "1:02:03 h".
std::string human_duration(double seconds);

/// "1.5 KiB", "2.00 GiB".
std::string human_bytes(std::uint64_t bytes);

}  // namespace atl
