/// Line plots as self-contained SVG. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace atl {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x, y; above 0, as both axes are logarithmic
};

struct PlotLabels {
  std::string title, subtitle, x, y;
};

/// Both axes logarithmic; series in the order of a fixed list of colours, with a legend. Text that is XML to the
/// letter; needs no script, font or file. Empty series are left out.
std::string line_plot_svg(const PlotLabels& labels, const std::vector<PlotSeries>& series);

}  // namespace atl
