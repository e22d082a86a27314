/// Tests of io/report/svg_plot.hpp. SPDX-License-Identifier: Apache-2.0
#include "io/report/svg_plot.hpp"

#include <gtest/gtest.h>

#include <regex>

namespace atl {
namespace {

/// Every tag that is opened is closed, in order.
bool well_formed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)([^>]*)>");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), tag); it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[2], rest = (*it)[3];
    if ((*it)[1] == "/") {
      if (open.empty() || open.back() != name) return false;
      open.pop_back();
    } else if (rest.empty() || rest.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(SvgPlot, DrawsEveryPointInPlace) {
  const std::string svg =
      line_plot_svg({"a < b & \"c\"", "sub", "x", "y"}, {{"one", {{1, 10}, {10, 100}, {1000, 10000}}}, {"two", {}}});
  EXPECT_TRUE(well_formed(svg)) << svg;
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0u);
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(count(svg, "<circle"), 3u);
  EXPECT_EQ(count(svg, ">one<"), 1u);
  EXPECT_EQ(count(svg, ">two<"), 0u);  // nothing to show
  // Decades: x from 1 at 80 to 1000 at 650, y from 10 at 500 to 10000 at 70.
  EXPECT_NE(svg.find("d=\"M80.0 500.0 L270.0 356.7 L650.0 70.0\""), std::string::npos) << svg;
}

TEST(SvgPlot, NarrowRangesAndNothingAreFine) {
  EXPECT_TRUE(well_formed(line_plot_svg({"", "", "", ""}, {})));
  const std::string svg = line_plot_svg({"", "", "", ""}, {{"one", {{4, 3}}}});
  EXPECT_TRUE(well_formed(svg));
  EXPECT_EQ(count(svg, "<circle"), 1u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace atl
