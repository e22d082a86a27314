/// What a checkpoint holds, and which rank writes which part of it. SPDX-License-Identifier: Apache-2.0
///
/// A checkpoint is a set of arrays, each with one element for every parameter of the model, cut into units as the model
/// is. Every element is written once: inside a group a rank writes the slice that it averages
/// (parallel/federation_slices.hpp), and of arrays that all groups hold alike group g writes the units g, g + G, ...
#pragma once

#include "parallel/outer_optimizer.hpp"
#include "parallel/process_grid.hpp"
#include "parallel/shard_layout.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace atl {

/// Which moments of the groups' own optimizers are saved: those of every group, their weighted mean, or none.
enum class SavedMoments { all, average, none };

/// One array, and whose it is.
struct CheckpointArray {
  enum class Quantity { model, moment1, moment2, outer_anchor, outer_moment1, outer_moment2 };
  Quantity quantity = Quantity::model;
  int group = -1;  ///< -1: all groups hold the same; `model` is their weighted mean then

  std::string name() const;                                   ///< "model", "groups/g0001/moment2"
  static CheckpointArray from_name(const std::string& name);  ///< DataError for any other name
  bool operator==(const CheckpointArray&) const = default;
};

/// What decides which arrays there are.
struct CheckpointContents {
  int groups = 1;               ///< G
  bool in_round = false;        ///< between two aggregations: the groups' models differ, x_0 is no longer the model
  int moments = 0;              ///< of the optimizer: 0, 1 or 2
  bool moments_differ = false;  ///< between groups
  SavedMoments saved = SavedMoments::all;
  OuterOptions outer;

  std::vector<CheckpointArray> arrays() const;
};

/// A contiguous piece of an array: a flat unpadded range of a unit.
struct CheckpointPart {
  CheckpointArray array;
  std::size_t unit = 0;
  Range range;
};

/// The parts that a rank writes, in order of arrays and units; none is empty. `sizes` are those of the units.
std::vector<CheckpointPart> parts_of_rank(const std::vector<CheckpointArray>& arrays,
                                          const std::vector<std::size_t>& sizes, const std::vector<GroupShape>& groups,
                                          int group, int rank_in_group);

/// Elements that all ranks write together.
std::uint64_t checkpoint_elements(const CheckpointContents& contents, std::uint64_t parameters);

/// Elements that the rank with most of them writes, of the ranks of the group of `grid`.
std::uint64_t largest_copy(const CheckpointContents& contents, const std::vector<UnitSpec>& units,
                           const ProcessGrid& grid);

/// The data file that each of `ranks` ranks writes to: `writers` files for neighbouring ranks, as many each; 0: one for
/// each rank, since ranks that write into one file wait for each other in most file systems. Files are numbered from 0,
/// none is empty. ConfigError if there are more writers than ranks.
std::vector<int> files_of_ranks(int writers, int ranks);

}  // namespace atl
