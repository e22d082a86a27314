/// The progress line. SPDX-License-Identifier: Apache-2.0
#include "io/report/progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <sys/ioctl.h>
#include <unistd.h>

namespace atl {

std::string human_count(double value, std::string_view unit) {
  const bool bytes = unit == "B";
  const double plain_below = bytes ? 1000 : 10000;
  static constexpr std::array<const char*, 7> prefixes = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  double scaled = value;
  while ((prefix > 0 || value >= plain_below) && scaled >= 999.5 && prefix + 1 < prefixes.size()) {
    scaled /= 1000;
    ++prefix;
  }
  const bool whole = prefix == 0 && value == static_cast<double>(static_cast<std::int64_t>(value));
  const int decimals = whole || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}{}", scaled, decimals, prefixes[prefix], prefix > 0 && !bytes ? " " : "", unit);
}

std::string human_bytes(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  constexpr double ki = 1024;
  if (value < ki * ki) return fmt::format("{:.1f} KiB", value / ki);
  if (value < ki * ki * ki) return fmt::format("{:.1f} MiB", value / ki / ki);
  return fmt::format("{:.2f} GiB", value / ki / ki / ki);
}

std::string human_duration(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02} h", s / 3600, s / 60 % 60, s % 60);
}

Progress::Output Progress::Output::standard() {
  Output output;
  output.terminal = ::isatty(STDERR_FILENO) == 1;
  if (output.terminal) {
    output.seconds = 0.1;
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) output.columns = size.ws_col;
  }
  return output;
}

Progress::Progress(std::int64_t total, std::string unit, std::int64_t start, Output output)
    : total_(total), done_(start), start_(start), unit_(std::move(unit)), output_(output), begin_(Clock::now()) {
  // The first line of a log comes after one interval, so that short tasks write only their last line.
  next_ = begin_ + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(output_.terminal ? 0.0 : output_.seconds));
}

void Progress::update(std::int64_t done, std::string_view suffix) {
  done_ = done;
  suffix_ = suffix;
  if (Clock::now() >= next_) write(false);
}

void Progress::finish(std::string_view suffix) {
  if (finished_) return;
  if (!suffix.empty()) suffix_ = suffix;
  write(true);
  finished_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", output_.file);
  std::fflush(output_.file);
  shown_ = false;
  next_ = Clock::now();
}

std::string Progress::line() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double share =
      total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0) : 1.0;
  const double rate = seconds > 0 ? static_cast<double>(done_ - start_) / seconds : 0.0;
  std::string text = fmt::format("{:3.0f} %  {} of {}", 100 * share, human_count(static_cast<double>(done_), unit_),
                                 human_count(static_cast<double>(total_), unit_));
  if (rate > 0) text += fmt::format("  {}/s", human_count(rate, unit_));
  if (done_ < total_ && rate > 0) {
    text += fmt::format("  {} left", human_duration(static_cast<double>(total_ - done_) / rate));
  } else if (done_ >= total_) {
    text += fmt::format("  in {}", human_duration(seconds));
  }
  if (!suffix_.empty()) text += "  " + suffix_;
  if (!output_.terminal) return text;

  // A bar in the room that is left, and never a line that wraps: it could not be renewed in place.
  const auto columns = static_cast<std::size_t>(std::max(output_.columns - 1, 1));
  if (text.size() + 13 <= columns) {
    const auto width = std::min<std::size_t>(columns - text.size() - 3, 30);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
    text = fmt::format("[{:#>{}}{:.>{}}] {}", "", filled, "", width - filled, text);
  }
  return text.substr(0, columns);
}

void Progress::write(bool last) {
  if (output_.terminal) {
    fmt::print(output_.file, "\r\033[K{}{}", line(), last ? "\n" : "");
    shown_ = !last;
  } else {
    fmt::print(output_.file, "{}\n", line());
  }
  std::fflush(output_.file);
  next_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(output_.seconds));
}

}  // namespace atl
