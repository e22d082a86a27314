/// Every element of a checkpoint is written once, whatever the grid. SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/layout.hpp"

#include "core/errors.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace atl {
namespace {

using Quantity = CheckpointArray::Quantity;

CheckpointContents contents_of(int groups, bool in_round, bool differ, SavedMoments saved = SavedMoments::all) {
  CheckpointContents contents;
  contents.groups = groups;
  contents.in_round = in_round;
  contents.moments = 2;
  contents.moments_differ = differ;
  contents.saved = saved;
  return contents;
}

std::vector<std::string> names(const CheckpointContents& contents) {
  std::vector<std::string> result;
  for (const CheckpointArray& array : contents.arrays()) result.push_back(array.name());
  return result;
}

TEST(CheckpointLayout, PartsOfAllRanksAreEveryElementOnce) {
  const std::vector<std::size_t> sizes{1, 3, 17, 64, 257, 0x180000005};  // the last one is above 2^32
  const std::vector<std::vector<GroupShape>> grids{
      {{1, 1}},         {{1, 4}},         {{4, 1}},         {{2, 3}},
      {{1, 2}, {1, 2}}, {{2, 2}, {2, 2}}, {{1, 3}, {1, 5}}, {{2, 2}, {1, 3}, {1, 1}}};
  for (const auto& groups : grids)
    for (const bool in_round : {false, true}) {
      const auto arrays = contents_of(static_cast<int>(groups.size()), in_round, true).arrays();
      std::map<std::pair<std::string, std::size_t>, std::vector<Range>> found;
      for (int g = 0; g < static_cast<int>(groups.size()); ++g)
        for (int r = 0; r < groups[static_cast<std::size_t>(g)].ranks(); ++r)
          for (const CheckpointPart& part : parts_of_rank(arrays, sizes, groups, g, r)) {
            EXPECT_FALSE(part.range.empty());
            EXPECT_TRUE(part.array.group < 0 || part.array.group == g);
            found[{part.array.name(), part.unit}].push_back(part.range);
          }
      EXPECT_EQ(found.size(), arrays.size() * sizes.size());
      for (auto& [key, ranges] : found) {
        std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; });
        std::size_t end = 0;
        for (const Range& range : ranges) {
          EXPECT_EQ(range.begin, end) << key.first << " unit " << key.second;
          end = range.end;
        }
        EXPECT_EQ(end, sizes[key.second]) << key.first << " unit " << key.second;
      }
    }
}

TEST(CheckpointLayout, HoldsWhatDiffersBetweenGroupsAndNothingTwice) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(contents_of(1, false, true)), (Names{"model", "moment1", "moment2"}));
  EXPECT_EQ(names(contents_of(2, false, false)), (Names{"model", "moment1", "moment2"}));
  EXPECT_EQ(names(contents_of(2, false, true)), (Names{"model", "groups/g0000/moment1", "groups/g0001/moment1",
                                                       "groups/g0000/moment2", "groups/g0001/moment2"}));
  EXPECT_EQ(names(contents_of(2, false, true, SavedMoments::average)), (Names{"model", "moment1", "moment2"}));
  EXPECT_EQ(names(contents_of(2, false, true, SavedMoments::none)), (Names{"model"}));
  EXPECT_EQ(names(contents_of(2, true, true, SavedMoments::none)),
            (Names{"model", "groups/g0000/model", "groups/g0001/model"}));
  CheckpointContents outer = contents_of(2, false, false);
  outer.moments = 0;
  outer.outer.kind = FederationOptions::Outer::adam;
  EXPECT_EQ(names(outer), (Names{"model", "outer_moment1", "outer_moment2"}));  // x_0 is the model
  outer.in_round = true;
  EXPECT_EQ(names(outer), (Names{"model", "groups/g0000/model", "groups/g0001/model", "outer_anchor", "outer_moment1",
                                 "outer_moment2"}));
  EXPECT_EQ(checkpoint_elements(outer, 10), 60u);
}

TEST(CheckpointLayout, NamesAreReadBack) {
  for (const int group : {-1, 0, 7, 12345})
    for (int q = 0; q < 6; ++q) {
      const CheckpointArray array{static_cast<Quantity>(q), group};
      EXPECT_EQ(CheckpointArray::from_name(array.name()), array) << array.name();
    }
  for (const char* const wrong : {"", "models", "groups/g0001", "groups/gx/model", "groups/g01/model", "group/model"})
    EXPECT_NE(message_of<DataError>([&] { CheckpointArray::from_name(wrong); }), "") << wrong;
}

TEST(CheckpointLayout, AFileARankOrAsManyAsAsked) {
  using Files = std::vector<int>;
  EXPECT_EQ(files_of_ranks(0, 4), (Files{0, 1, 2, 3}));
  EXPECT_EQ(files_of_ranks(1, 3), (Files{0, 0, 0}));
  EXPECT_EQ(files_of_ranks(2, 4), (Files{0, 0, 1, 1}));
  EXPECT_EQ(files_of_ranks(4, 4), (Files{0, 1, 2, 3}));
  const Files uneven = files_of_ranks(3, 8);
  EXPECT_EQ((std::set<int>(uneven.begin(), uneven.end())), (std::set<int>{0, 1, 2}));
  const std::string message = message_of<ConfigError>([] { files_of_ranks(5, 4); });
  EXPECT_NE(message.find("checkpoint.writers = 5"), std::string::npos) << message;
}

TEST(CheckpointLayout, TheFirstRankHasTheLargestCopy) {
  std::vector<UnitSpec> units;
  for (const std::size_t size : {5, 64, 257}) units.push_back({"unit", {{"tensor", {size}}}});
  const std::vector<std::size_t> sizes{5, 64, 257};
  for (const GroupShape shape : {GroupShape{1, 4}, GroupShape{3, 2}, GroupShape{2, 1}}) {
    const std::vector<GroupShape> groups(2, shape);
    const CheckpointContents contents = contents_of(2, true, true);
    for (int g = 0; g < 2; ++g) {
      std::uint64_t largest = 0;
      for (int r = 0; r < shape.ranks(); ++r) {
        std::uint64_t elements = 0;
        for (const auto& part : parts_of_rank(contents.arrays(), sizes, groups, g, r)) elements += part.range.size();
        largest = std::max(largest, elements);
      }
      EXPECT_EQ(largest_copy(contents, units, ProcessGrid(groups, g * shape.ranks())), largest);
    }
  }
}

}  // namespace
}  // namespace atl
