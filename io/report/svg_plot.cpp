/// SPDX-License-Identifier: Apache-2.0
#include "io/report/svg_plot.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace atl {

namespace {

constexpr double width = 900, height = 560, left = 80, right = 250, top = 70, bottom = 60;
/// Told apart also by those who do not see red and green (Okabe and Ito).
constexpr std::array<const char*, 7> colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string text_at(double x, double y, const std::string& attributes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, escaped(text));
}

/// A logarithmic axis over whole decades, or whole powers of two where it spans few of them.
class Axis {
 public:
  Axis(double least, double most, double from, double to) : from_(from), to_(to) {
    base_ = most / least > 100 ? 10 : 2;
    low_ = std::floor(std::log(least) / std::log(base_) + 1e-9);
    high_ = std::max(low_ + 1, std::ceil(std::log(most) / std::log(base_) - 1e-9));
  }
  double place(double value) const {
    return from_ + (to_ - from_) * (std::log(value) / std::log(base_) - low_) / (high_ - low_);
  }
  std::vector<double> ticks() const {
    std::vector<double> values;
    for (double power = low_; power <= high_; ++power) values.push_back(std::pow(base_, power));
    return values;
  }

 private:
  double from_, to_, base_, low_, high_;
};

std::string number(double value) {
  constexpr std::array<const char*, 5> prefixes = {"", " k", " M", " G", " T"};
  std::size_t prefix = 0;
  while (value >= 9999.5 && prefix + 1 < prefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{:.4g}{}", value, prefixes[prefix]);
}

}  // namespace

std::string line_plot_svg(const PlotLabels& labels, const std::vector<PlotSeries>& series) {
  double x_least = INFINITY, x_most = 0, y_least = INFINITY, y_most = 0;
  for (const auto& one : series)
    for (const auto& [x, y] : one.points) {
      ATOLL_REQUIRE(x > 0 && y > 0);
      x_least = std::min(x_least, x);
      x_most = std::max(x_most, x);
      y_least = std::min(y_least, y);
      y_most = std::max(y_most, y);
    }
  if (x_most == 0) x_least = x_most = y_least = y_most = 1;
  const Axis x_axis(x_least, x_most, left, width - right), y_axis(y_least, y_most, height - bottom, top);

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height);
  out += text_at(left, 28, "font-size=\"17\" font-weight=\"bold\"", labels.title);
  out += text_at(left, 48, "fill=\"#555555\"", labels.subtitle);
  out += text_at((left + width - right) / 2, height - 16, "text-anchor=\"middle\"", labels.x);
  out += fmt::format("<text transform=\"translate(20 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (top + height - bottom) / 2, escaped(labels.y));
  for (const double tick : x_axis.ticks()) {
    const double at = x_axis.place(tick);
    out += fmt::format("<path d=\"M{0:.1f} {1} V{2}\" stroke=\"#dddddd\"/>\n", at, top, height - bottom);
    out += text_at(at, height - bottom + 18, "text-anchor=\"middle\"", number(tick));
  }
  for (const double tick : y_axis.ticks()) {
    const double at = y_axis.place(tick);
    out += fmt::format("<path d=\"M{0} {1:.1f} H{2}\" stroke=\"#dddddd\"/>\n", left, at, width - right);
    out += text_at(left - 8, at + 4, "text-anchor=\"end\"", number(tick));
  }
  std::size_t shown = 0;
  for (const auto& one : series) {
    if (one.points.empty()) continue;
    const char* colour = colours[shown % colours.size()];
    std::string path;
    for (const auto& [x, y] : one.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_axis.place(x), y_axis.place(y));
      out +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}: {} at {}</title></circle>\n",
                      x_axis.place(x), y_axis.place(y), colour, escaped(one.name), number(y), number(x));
    }
    out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, colour);
    const double at = top + 10 + 20 * static_cast<double>(shown);
    out +=
        fmt::format("<path d=\"M{0} {1} h20\" stroke=\"{2}\" stroke-width=\"3\"/>\n", width - right + 16, at, colour);
    out += text_at(width - right + 42, at + 4, "", one.name);
    ++shown;
  }
  return out + "</svg>\n";
}

}  // namespace atl
