/// Where a rank stands: federation group, replica, shard. SPDX-License-Identifier: Apache-2.0
///
/// Rank order is shard fastest, then replica, then group, so that a replica sits on neighbouring ranks (one node).
#pragma once

#include "parallel/collectives_options.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace atl {

enum class Strategy { ddp, fsdp, hsdp, fl_fsdp, fl_hsdp };

std::string_view name_of(Strategy strategy);  ///< as in the run configuration: "fl+fsdp"

/// True for those with fl+, whose groups have rounds.
constexpr bool is_federated(Strategy strategy) {
  return strategy == Strategy::fl_fsdp || strategy == Strategy::fl_hsdp;
}

/// The table [parallel] of the run configuration. 0 and what is empty mean "not given".
struct ParallelOptions {
  /// What makes ranks one federation group, other than numbers.
  enum class GroupBy { none, node };

  Strategy strategy = Strategy::fsdp;
  int shard_size = 0;                ///< S: ranks of one replica
  int group_size = 0;                ///< ranks of one federation group
  int groups = 0;                    ///< G: number of federation groups
  std::vector<int> group_sizes;      ///< ranks of each group, where they differ
  GroupBy group_by = GroupBy::none;  ///< node: the ranks of a node are a group
  std::string group_file;            ///< lines "host cell": the ranks on the hosts of a cell are a group
  bool reshard_after_forward = true;
  int prefetch = 1;  ///< units gathered ahead of the one that computes; 0: nothing overlaps
  CollectivesOptions collectives{.backend = Backend::automatic};
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
  /// Both take group_sizes, group_by or group_file instead; the last two need `cells`: for every rank the number of its
  /// node, or cell (parallel/topology.hpp). Their groups are ordered by their lowest ranks, and the ranks of a group
  /// ascend, so that rank 0 is the first of group 0 always; neighbours in a group need not be so in the world.
  ProcessGrid(const ParallelOptions& options, int world_size, int rank, const std::vector<int>& cells = {});

  /// Groups of any shapes; `order` has the world ranks in grid order (shard fastest, then replica, then group), empty:
  /// 0, 1, 2, ... Its first is 0.
  ProcessGrid(std::vector<GroupShape> groups, int rank, std::vector<int> order = {});

  int world_size() const { return world_size_; }
  int rank() const { return rank_; }
  int group() const { return group_; }
  int replica() const { return replica_; }
  int shard() const { return shard_; }
  int number_of_groups() const { return static_cast<int>(groups_.size()); }
  const std::vector<GroupShape>& groups() const { return groups_; }
  const GroupShape& shape() const { return groups_[static_cast<std::size_t>(group_)]; }  ///< of this rank's group
  int rank_in_group() const { return replica_ * shape().shards + shard_; }
  bool equal_groups() const { return equal_; }  ///< all have the same shape
  int world_rank(int group, int rank_in_group) const;
  int first_rank(int group) const { return world_rank(group, 0); }

  /// For people: "4 ranks = 2 groups x 1 replica x 2 shards".
  std::string describe() const;

 private:
  void place();  ///< what follows from groups_, order_ and rank_

  int world_size_ = 0, rank_, group_ = 0, replica_ = 0, shard_ = 0;
  bool equal_ = true;
  std::vector<GroupShape> groups_;
  std::vector<int> first_;  // position in grid order of each group's first rank
  std::vector<int> order_;  // world ranks in grid order; empty: 0, 1, 2, ...
};

}  // namespace atl
