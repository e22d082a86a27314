/// Checks a grid's options against the number of ranks, and places a rank. SPDX-License-Identifier: Apache-2.0
#include "parallel/process_grid.hpp"

#include "core/errors.hpp"

#include <fmt/format.h>

#include <array>
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

/// Federation keys have a meaning only with fl+fsdp and fl+hsdp: ignoring them would train something else.
void require_no_groups(const ParallelOptions& options, int ranks) {
  const auto refuse = [&](std::string_view key, int value) {
    if (value == 0) return;
    throw ConfigError(fmt::format(
        "parallel.{} = {} has no meaning with parallel.strategy = \"{}\" on {} (one group of all ranks); remove "
        "it, or use strategy \"fl+{}\"",
        key, value, name_of(options.strategy), counted(ranks, "rank"),
        options.strategy == Strategy::hsdp ? "hsdp" : "fsdp"));
  };
  refuse("groups", options.groups);
  refuse("group_size", options.group_size);
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
      const int size = ranks_of_group(options, ranks);
      return std::vector<GroupShape>(static_cast<std::size_t>(ranks / size), GroupShape{1, size});
    }
    case Strategy::fl_hsdp: {
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

ProcessGrid::ProcessGrid(const ParallelOptions& options, int world_size, int rank)
    : world_size_(world_size), rank_(rank) {
  ATOLL_REQUIRE(world_size >= 1 && rank >= 0 && rank < world_size);
  groups_ = shapes_of_groups(options, world_size);
  int before = 0;
  while (rank >= before + shape().ranks()) {
    before += shape().ranks();
    ++group_;
  }
  replica_ = (rank - before) / shape().shards;
  shard_ = (rank - before) % shape().shards;
}

int ProcessGrid::first_rank(int group) const {
  ATOLL_REQUIRE(group >= 0 && group < number_of_groups());
  int before = 0;
  for (int g = 0; g < group; ++g) before += groups_[static_cast<std::size_t>(g)].ranks();
  return before;
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
