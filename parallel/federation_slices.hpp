/// Which rank of a group averages which elements of a unit, and with whom. SPDX-License-Identifier: Apache-2.0
///
/// A group of R replicas of S shards cuts every shard into R slices, so that each of its ranks averages one slice, a
/// flat range of the unit, and sends P / (S R) parameters to other groups. Groups of another shape have other slices:
/// they are averaged over the common refinement of all groups' slices, whose pieces have one owner in each group.
#pragma once

#include "parallel/process_grid.hpp"
#include "parallel/shard_layout.hpp"

#include <cstddef>
#include <vector>

namespace atl {

/// The unpadded flat range of a unit of `size` elements that a rank of a group averages; may be empty. Shards are those
/// of ShardLayout. The slices of all ranks of a group are the unit.
Range slice_of(std::size_t size, const GroupShape& shape, int rank_in_group);

/// A part of a rank's slice, and who owns it: a rank in each group, by its place there, in group order.
struct SlicePiece {
  Range range;
  std::vector<int> owners;
};

/// The pieces of a rank's slice, in order; none is empty. A slice has at most as many as there are slices in all groups
/// together, and about as many as other groups have slices for one of this group's.
std::vector<SlicePiece> pieces_of_slice(std::size_t size, const std::vector<GroupShape>& groups, int group,
                                        int rank_in_group);

}  // namespace atl
