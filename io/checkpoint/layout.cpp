/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/layout.hpp"

#include "core/errors.hpp"
#include "parallel/federation_slices.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>

namespace atl {

namespace {
constexpr const char* quantity_names[] = {"model",        "moment1",       "moment2",
                                          "outer_anchor", "outer_moment1", "outer_moment2"};
}  // namespace

std::string CheckpointArray::name() const {
  const char* const text = quantity_names[static_cast<int>(quantity)];
  return group < 0 ? std::string(text) : fmt::format("groups/g{:04d}/{}", group, text);
}

CheckpointArray CheckpointArray::from_name(const std::string& name) {
  CheckpointArray array;
  const std::string quantity = name.substr(name.rfind('/') + 1);
  if (name.rfind("groups/g", 0) == 0 && name.find_first_not_of("0123456789", 8) > 8) array.group = std::atoi(&name[8]);
  for (int q = 0; q < static_cast<int>(std::size(quantity_names)); ++q)
    if (quantity == quantity_names[q]) array.quantity = static_cast<Quantity>(q);
  if (array.name() != name) throw DataError(fmt::format("a checkpoint has no array \"{}\"", name));
  return array;
}

std::vector<CheckpointArray> CheckpointContents::arrays() const {
  using Quantity = CheckpointArray::Quantity;
  std::vector<CheckpointArray> result{{Quantity::model, -1}};
  const auto of_groups = [&](Quantity quantity) {
    for (int g = 0; g < groups; ++g) result.push_back({quantity, g});
  };
  if (in_round && groups > 1) of_groups(Quantity::model);
  for (int i = 0; i < moments; ++i) {
    const Quantity quantity = i == 0 ? Quantity::moment1 : Quantity::moment2;
    if (!moments_differ || groups == 1)
      result.push_back({quantity, -1});
    else if (saved == SavedMoments::all)
      of_groups(quantity);
    else if (saved == SavedMoments::average)
      result.push_back({quantity, -1});
  }
  if (in_round && outer.has_anchor()) result.push_back({Quantity::outer_anchor, -1});
  if (outer.has_moment1()) result.push_back({Quantity::outer_moment1, -1});
  if (outer.has_moment2()) result.push_back({Quantity::outer_moment2, -1});
  return result;
}

std::vector<CheckpointPart> parts_of_rank(const std::vector<CheckpointArray>& arrays,
                                          const std::vector<std::size_t>& sizes, const std::vector<GroupShape>& groups,
                                          int group, int rank_in_group) {
  std::vector<CheckpointPart> parts;
  for (const CheckpointArray& array : arrays) {
    if (array.group >= 0 && array.group != group) continue;
    for (std::size_t unit = 0; unit < sizes.size(); ++unit) {
      if (array.group < 0 && unit % groups.size() != static_cast<std::size_t>(group)) continue;
      const Range range = slice_of(sizes[unit], groups[static_cast<std::size_t>(group)], rank_in_group);
      if (!range.empty()) parts.push_back({array, unit, range});
    }
  }
  return parts;
}

std::uint64_t checkpoint_elements(const CheckpointContents& contents, std::uint64_t parameters) {
  return contents.arrays().size() * parameters;
}

std::uint64_t largest_copy(const CheckpointContents& contents, const std::vector<UnitSpec>& units,
                           const ProcessGrid& grid) {
  std::vector<std::size_t> sizes;
  for (const UnitSpec& unit : units) sizes.push_back(ShardLayout(unit, 1).size());
  // Slices of a shard shrink with their number, so the first rank of a group has the most.
  std::uint64_t elements = 0;
  for (const CheckpointPart& part : parts_of_rank(contents.arrays(), sizes, grid.groups(), grid.group(), 0))
    elements += part.range.size();
  return elements;
}

std::vector<int> files_of_ranks(int writers, int ranks) {
  if (writers > ranks)
    throw ConfigError(
        fmt::format("checkpoint.writers = {} is more than the {} ranks; give at most as many, or 0 for one file a rank",
                    writers, ranks));
  if (writers == 0) writers = ranks;
  std::vector<int> files;
  for (std::int64_t rank = 0; rank < ranks; ++rank) files.push_back(static_cast<int>(rank * writers / ranks));
  return files;
}

}  // namespace atl
