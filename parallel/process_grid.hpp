/// Where a rank stands: federation group, replica, shard. SPDX-License-Identifier: Apache-2.0
///
/// Rank order is shard fastest, then replica, then group, so that a replica sits on neighbouring ranks (one node).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl {

enum class Strategy { ddp, fsdp, hsdp, fl_fsdp, fl_hsdp };

std::string_view name_of(Strategy strategy);  ///< as in the run configuration: "fl+fsdp"

/// The table [parallel] of the run configuration. 0 and an empty list mean "not given".
struct ParallelOptions {
  Strategy strategy = Strategy::fsdp;
  int shard_size = 0;  ///< S: ranks of one replica
  int group_size = 0;  ///< ranks of one federation group
  int groups = 0;      ///< G: number of federation groups
  bool reshard_after_forward = true;
  int prefetch = 1;  ///< units gathered ahead of the one that computes; 0: nothing overlaps
};

/// R replicas of S shards.
struct GroupShape {
  int replicas = 1;
  int shards = 1;
  int ranks() const { return replicas * shards; }
  bool operator==(const GroupShape&) const = default;
};

/// The grid of all ranks and the place of one of them.
class ProcessGrid {
 public:
  /// Throws ConfigError, with the nearest valid choice, unless the options fill `world_size` ranks exactly.
  ///   ddp: one group, S = 1.  fsdp: one group, S = N.  hsdp: one group, S = shard_size.
  ///   fl+fsdp: S = group size; the groups come from group_size, groups or shard_size (any that are given must agree).
  ///   fl+hsdp: groups from group_size or groups, S = shard_size.
  ProcessGrid(const ParallelOptions& options, int world_size, int rank);

  int world_size() const { return world_size_; }
  int rank() const { return rank_; }
  int group() const { return group_; }
  int replica() const { return replica_; }
  int shard() const { return shard_; }
  int number_of_groups() const { return static_cast<int>(groups_.size()); }
  const std::vector<GroupShape>& groups() const { return groups_; }
  const GroupShape& shape() const { return groups_[static_cast<std::size_t>(group_)]; }  ///< of this rank's group
  int rank_in_group() const { return replica_ * shape().shards + shard_; }
  int first_rank(int group) const;  ///< world rank of a group's first rank

  /// For people: "4 ranks = 2 groups x 1 replica x 2 shards".
  std::string describe() const;

 private:
  int world_size_, rank_, group_ = 0, replica_ = 0, shard_ = 0;
  std::vector<GroupShape> groups_;
};

}  // namespace atl
