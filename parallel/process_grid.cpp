/// Checks a grid's options against the number of ranks, and places a rank. SPDX-License-Identifier: Apache-2.0
#include "parallel/process_grid.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

namespace atl {

namespace {

constexpr std::array<std::pair<Strategy, std::string_view>, 5> strategy_names{{{Strategy::ddp, "ddp"},
                                                                               {Strategy::fsdp, "fsdp"},
                                                                               {Strategy::hsdp, "hsdp"},
                                                                               {Strategy::fl_fsdp, "fl+fsdp"},
                                                                               {Strategy::fl_hsdp, "fl+hsdp"}}};

/// "8 ranks", "1 rank".
std::string counted(int n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

/// The divisors of `total` next below and above `value`: "2 or 4".
std::string nearest_divisors(int total, int value) {
  int below = 0, above = 0;
  for (int d = 1; d <= total; ++d) {
    if (total % d != 0) continue;
    if (d < value) below = d;
    if (d > value && above == 0) above = d;
  }
  if (below == 0) return std::to_string(above);
  return above == 0 ? std::to_string(below) : fmt::format("{} or {}", below, above);
}

/// All divisors: "1, 2, 4, 8".
std::string divisors(int total) {
  std::string list;
  for (int d = 1; d <= total; ++d) {
    if (total % d == 0) list += (list.empty() ? "" : ", ") + std::to_string(d);
  }
  return list;
}

void require_divides(std::string_view key, int value, int total, const std::string& whole, std::string_view reason) {
  if (total % value == 0) return;
  throw ConfigError(fmt::format("parallel.{} = {} does not divide {} ({}); nearest: {}", key, value, whole, reason,
                                nearest_divisors(total, value)));
}

void require_not_negative(std::string_view key, int value, int ranks) {
  if (value >= 0) return;
  throw ConfigError(
      fmt::format("parallel.{} = {} must be at least 1 ({}); nearest: 1", key, value, counted(ranks, "rank")));
}

/// Every key that says what the groups are, and is given: name, "name = value".
std::vector<std::pair<std::string, std::string>> keys_of_groups(const ParallelOptions& options) {
  std::vector<std::pair<std::string, std::string>> given;
  const auto add = [&](bool is_given, const char* key, const std::string& value) {
    if (is_given) given.emplace_back(key, fmt::format("parallel.{} = {}", key, value));
  };
  add(options.groups != 0, "groups", std::to_string(options.groups));
  add(options.group_size != 0, "group_size", std::to_string(options.group_size));
  add(!options.group_sizes.empty(), "group_sizes", fmt::format("[{}]", fmt::join(options.group_sizes, ", ")));
  add(options.group_by == ParallelOptions::GroupBy::node, "group_by", "\"node\"");
  add(!options.group_file.empty(), "group_file", fmt::format("\"{}\"", options.group_file));
  return given;
}

/// Federation keys have a meaning only with fl+fsdp and fl+hsdp: ignoring them would train something else.
void require_no_groups(const ParallelOptions& options, int ranks) {
  for (const auto& [key, text] : keys_of_groups(options))
    throw ConfigError(fmt::format(
        "{} has no meaning with parallel.strategy = \"{}\" on {} (one group of all ranks); remove it, or use strategy "
        "\"fl+{}\"",
        text, name_of(options.strategy), counted(ranks, "rank"), options.strategy == Strategy::hsdp ? "hsdp" : "fsdp"));
}

/// group_sizes, group_by and group_file say all about the groups, so nothing else may.
void require_alone(const ParallelOptions& options, const std::string& key) {
  const auto given = keys_of_groups(options);
  const auto mine = std::find_if(given.begin(), given.end(), [&](const auto& entry) { return entry.first == key; });
  for (const auto& other : given) {
    if (other.first == key) continue;
    throw ConfigError(fmt::format("{} and {} exclude each other: both say what the federation groups are; remove one",
                                  mine->second, other.second));
  }
  if (options.strategy == Strategy::fl_fsdp && options.shard_size != 0)
    throw ConfigError(fmt::format(
        "parallel.shard_size = {} and {} exclude each other with strategy \"fl+fsdp\", where a group is one replica; "
        "remove one, or use strategy \"fl+hsdp\"",
        options.shard_size, mine->second));
}

/// ddp and fsdp fix S themselves; a shard_size beside them is allowed only if it says the same.
void require_fixed_shard_size(const ParallelOptions& options, int ranks, int fixed) {
  if (options.shard_size == 0 || options.shard_size == fixed) return;
  throw ConfigError(
      fmt::format("parallel.shard_size = {} contradicts parallel.strategy = \"{}\", which has shard_size {} on {}; "
                  "remove it, or use "
                  "strategy \"hsdp\"",
                  options.shard_size, name_of(options.strategy), fixed, counted(ranks, "rank")));
}

/// S of hsdp and fl+hsdp: must be given, and divide the ranks of a group.
int shards_of_replica(const ParallelOptions& options, int group_ranks, const std::string& whole) {
  if (options.shard_size == 0) {
    throw ConfigError(
        fmt::format("parallel.shard_size is missing: parallel.strategy = \"{}\" needs the ranks of one replica; "
                    "for {}: {}",
                    name_of(options.strategy), whole, divisors(group_ranks)));
  }
  require_divides("shard_size", options.shard_size, group_ranks, whole, "replicas need equal shards");
  return options.shard_size;
}

/// Ranks of a federation group, from the keys that are given; those must agree.
int ranks_of_group(const ParallelOptions& options, int ranks) {
  const std::string all = counted(ranks, "rank");
  constexpr std::string_view equal = "federation groups must be equal";
  // In fl+fsdp the group is one replica, so that shard_size is another name of group_size.
  const bool shard_is_group = options.strategy == Strategy::fl_fsdp;

  int size = 0;
  std::string from;
  const auto agree = [&](std::string_view key, int value, int group_size, std::string_view fix) {
    if (size != 0 && size != group_size) {
      throw ConfigError(
          fmt::format("parallel.{} = {} contradicts {} on {} (groups of {} or of {} ranks?); remove one, or set {}",
                      key, value, from, all, group_size, size, fix));
    }
    size = group_size;
    from = fmt::format("parallel.{} = {}", key, value);
  };
  if (options.groups != 0) {
    require_divides("groups", options.groups, ranks, all, equal);
    agree("groups", options.groups, ranks / options.groups, "");
  }
  if (options.group_size != 0) {
    require_divides("group_size", options.group_size, ranks, all, equal);
    agree("group_size", options.group_size, options.group_size, fmt::format("group_size = {}", size));
  }
  if (shard_is_group && options.shard_size != 0) {
    require_divides("shard_size", options.shard_size, ranks, all, equal);
    agree("shard_size", options.shard_size, options.shard_size, fmt::format("shard_size = {}", size));
  }
  if (size == 0) {
    throw ConfigError(
        fmt::format("parallel.groups or parallel.group_size is missing: parallel.strategy = \"{}\" needs the "
                    "federation groups; for {}: {}",
                    name_of(options.strategy), all, divisors(ranks)));
  }
  return size;
}

/// One group for each number of ranks; each divided into replicas of shard_size with fl+hsdp.
std::vector<GroupShape> shapes_of_sizes(const ParallelOptions& options, const std::vector<int>& sizes, int ranks) {
  std::vector<GroupShape> shapes;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const int size = sizes[g];
    const int shards = options.strategy == Strategy::fl_fsdp
                           ? size
                           : shards_of_replica(options, size,
                                               fmt::format("the {} of group {} ({} in all)", counted(size, "rank"), g,
                                                           counted(ranks, "rank")));
    shapes.push_back({size / shards, shards});
  }
  return shapes;
}

std::vector<GroupShape> shapes_of_given_sizes(const ParallelOptions& options, int ranks) {
  require_alone(options, "group_sizes");
  const std::string text = fmt::format("parallel.group_sizes = [{}]", fmt::join(options.group_sizes, ", "));
  std::int64_t total = 0;
  for (const int size : options.group_sizes) {
    if (size < 1) throw ConfigError(fmt::format("{} has a group of {} ranks; each needs at least 1", text, size));
    total += size;
  }
  if (total != ranks)
    throw ConfigError(fmt::format("{} are {} ranks, but there are {}: start {} ranks, or give sizes that add up to {}",
                                  text, total, ranks, total, ranks));
  return shapes_of_sizes(options, options.group_sizes, ranks);
}

/// The cells by their lowest ranks, each with its ranks in order.
std::vector<std::vector<int>> members_of_cells(const std::vector<int>& cells) {
  std::map<int, std::size_t> number;
  std::vector<std::vector<int>> members;
  for (std::size_t rank = 0; rank < cells.size(); ++rank) {
    const auto [place, added] = number.try_emplace(cells[rank], members.size());
    if (added) members.emplace_back();
    members[place->second].push_back(static_cast<int>(rank));
  }
  return members;
}

std::vector<GroupShape> shapes_of_groups(const ParallelOptions& options, int ranks) {
  require_not_negative("shard_size", options.shard_size, ranks);
  require_not_negative("group_size", options.group_size, ranks);
  require_not_negative("groups", options.groups, ranks);
  switch (options.strategy) {
    case Strategy::ddp:
      require_no_groups(options, ranks);
      require_fixed_shard_size(options, ranks, 1);
      return {{ranks, 1}};
    case Strategy::fsdp:
      require_no_groups(options, ranks);
      require_fixed_shard_size(options, ranks, ranks);
      return {{1, ranks}};
    case Strategy::hsdp: {
      require_no_groups(options, ranks);
      const int shards = shards_of_replica(options, ranks, counted(ranks, "rank"));
      return {{ranks / shards, shards}};
    }
    case Strategy::fl_fsdp: {
      if (!options.group_sizes.empty()) return shapes_of_given_sizes(options, ranks);
      const int size = ranks_of_group(options, ranks);
      return std::vector<GroupShape>(static_cast<std::size_t>(ranks / size), GroupShape{1, size});
    }
    case Strategy::fl_hsdp: {
      if (!options.group_sizes.empty()) return shapes_of_given_sizes(options, ranks);
      const int size = ranks_of_group(options, ranks);
      const int shards = shards_of_replica(
          options, size, fmt::format("the {} of a group ({} in all)", counted(size, "rank"), counted(ranks, "rank")));
      return std::vector<GroupShape>(static_cast<std::size_t>(ranks / size), GroupShape{size / shards, shards});
    }
  }
  contract_violated("strategy is one of the enumeration", __FILE__, __LINE__);
}

std::string describe_shape(const GroupShape& shape) {
  return fmt::format("{} x {}", counted(shape.replicas, "replica"), counted(shape.shards, "shard"));
}

}  // namespace

std::string_view name_of(Strategy strategy) {
  for (const auto& [value, name] : strategy_names) {
    if (value == strategy) return name;
  }
  return "?";
}

ProcessGrid::ProcessGrid(const ParallelOptions& options, int world_size, int rank, const std::vector<int>& cells)
    : rank_(rank) {
  ATOLL_REQUIRE(world_size >= 1 && rank >= 0 && rank < world_size);
  const bool federated = is_federated(options.strategy);
  const bool by_node = options.group_by == ParallelOptions::GroupBy::node;
  if (federated && (by_node || !options.group_file.empty())) {
    require_alone(options, by_node ? "group_by" : "group_file");
    require_not_negative("shard_size", options.shard_size, world_size);
    ATOLL_REQUIRE(cells.size() == static_cast<std::size_t>(world_size));
    std::vector<int> sizes;
    for (const auto& members : members_of_cells(cells)) {
      sizes.push_back(static_cast<int>(members.size()));
      order_.insert(order_.end(), members.begin(), members.end());
    }
    groups_ = shapes_of_sizes(options, sizes, world_size);
    if (std::is_sorted(order_.begin(), order_.end())) order_.clear();
  } else {
    groups_ = shapes_of_groups(options, world_size);
  }
  place();
}

ProcessGrid::ProcessGrid(std::vector<GroupShape> groups, int rank, std::vector<int> order)
    : rank_(rank), groups_(std::move(groups)), order_(std::move(order)) {
  place();
}

void ProcessGrid::place() {
  for (const GroupShape& group : groups_) {
    ATOLL_REQUIRE(group.replicas >= 1 && group.shards >= 1);
    first_.push_back(world_size_);
    world_size_ += group.ranks();
    equal_ = equal_ && group == groups_.front();
  }
  // Rank 0 writes what group 0's first replica gathers.
  ATOLL_REQUIRE(order_.empty() || (order_.size() == static_cast<std::size_t>(world_size_) && order_[0] == 0));
  const auto found = std::find(order_.begin(), order_.end(), rank_);
  const int position = order_.empty() ? rank_ : static_cast<int>(found - order_.begin());
  ATOLL_REQUIRE(position >= 0 && position < world_size_);
  group_ = static_cast<int>(std::upper_bound(first_.begin(), first_.end(), position) - first_.begin()) - 1;
  const int rank_in_group = position - first_[static_cast<std::size_t>(group_)];
  replica_ = rank_in_group / shape().shards;
  shard_ = rank_in_group % shape().shards;
}

int ProcessGrid::world_rank(int group, int rank_in_group) const {
  ATOLL_REQUIRE(group >= 0 && group < number_of_groups());
  const int position = first_[static_cast<std::size_t>(group)] + rank_in_group;
  return order_.empty() ? position : order_[static_cast<std::size_t>(position)];
}

std::string ProcessGrid::describe() const {
  std::string text = counted(world_size_, "rank") + " = ";
  // Neighbouring groups of one shape are written once, so that unequal groups stay readable.
  for (std::size_t begin = 0, end = 0; begin < groups_.size(); begin = end) {
    while (end < groups_.size() && groups_[end] == groups_[begin]) ++end;
    if (begin > 0) text += " + ";
    text += counted(static_cast<int>(end - begin), "group") + " x " + describe_shape(groups_[begin]);
  }
  return text;
}

}  // namespace atl
