/// The progress line, and numbers for people. SPDX-License-Identifier: Apache-2.0
#include "io/report/progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl {
namespace {

TEST(Progress, NumbersForPeople) {
  EXPECT_EQ(human_count(0, "steps"), "0 steps");
  EXPECT_EQ(human_count(9999, "steps"), "9999 steps");
  EXPECT_EQ(human_count(12345, "tokens"), "12.3 k tokens");
  EXPECT_EQ(human_count(999960, "tokens"), "1.00 M tokens");
  EXPECT_EQ(human_count(0.517, "steps"), "0.52 steps");
  EXPECT_EQ(human_count(999, "B"), "999 B");
  EXPECT_EQ(human_count(1234, "B"), "1.23 kB");
  EXPECT_EQ(human_count(5.6e12, "B"), "5.60 TB");
  EXPECT_EQ(human_duration(42.4), "42 s");
  EXPECT_EQ(human_duration(187), "3:07 min");
  EXPECT_EQ(human_duration(3723), "1:02:03 h");
}

/// What `use` writes.
template <class Use>
std::string written(bool terminal, double seconds, int columns, const Use& use) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(100, "steps", 0, {.file = file, .terminal = terminal, .seconds = seconds, .columns = columns});
    use(progress);
  }
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(Progress, PlainLinesAreRare) {
  const auto text = written(false, 1000, 80, [](Progress& progress) {
    for (int i = 1; i <= 100; ++i) progress.update(i, "loss 3.2");
    progress.finish();
    progress.finish();
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.find("100 %  100 steps of 100 steps  "), 0u) << text;
  EXPECT_NE(text.find("  loss 3.2\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, TerminalLineIsRenewedAndFits) {
  for (const int columns : {10, 40, 80, 300}) {
    const auto text = written(true, 0, columns, [](Progress& progress) {
      progress.update(50, "loss 3.2");
      progress.clear();
      progress.update(51);
      progress.finish();
    });
    std::size_t longest = 0, length = 0;
    for (const char c : text) {
      length = c == '\r' || c == '\n' ? 0 : length + 1;
      longest = std::max(longest, length);
    }
    EXPECT_LT(longest, static_cast<std::size_t>(columns) + 3);  // with the 3 characters that erase the line
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
    EXPECT_EQ(text.back(), '\n');
    if (columns >= 80) {
      EXPECT_NE(text.find("[###"), std::string::npos) << text;
    }
  }
}

TEST(Progress, WithoutFinishTheTerminalIsClean) {
  const auto text = written(true, 0, 80, [](Progress& progress) { progress.update(50); });
  EXPECT_EQ(text.substr(text.size() - 4), "\r\033[K");
}

}  // namespace
}  // namespace atl
