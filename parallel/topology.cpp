/// SPDX-License-Identifier: Apache-2.0
#include "parallel/topology.hpp"

#include "core/nearest_name.hpp"
#include "parallel/mpi_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

namespace atl {

namespace {

std::string name_of_host() {
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  ATOLL_MPI(MPI_Get_processor_name(name, &length));
  return {name, static_cast<std::size_t>(length)};
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad())
    throw ConfigError(fmt::format("parallel.group_file = \"{}\" cannot be read: {}", path, std::strerror(errno)));
  return text.str();
}

/// One value of every rank.
std::vector<int> gather(const Communicator& world, int mine) {
  std::vector<int> all;
  for (const double value : world.all_gather({static_cast<double>(mine)})) all.push_back(static_cast<int>(value));
  return all;
}

/// The number of each rank's cell in the order of the cells' names.
std::vector<int> find_cells(const Communicator& world, const std::string& path) {
  std::string text;
  collectively(world, [&] {
    if (world.rank() == 0) text = read_text(path);
  });
  text = world.broadcast(text);
  int mine = 0;
  collectively(world, [&] {
    const auto cells = parse_cells(text, path);
    const std::string cell = cell_of_host(cells, name_of_host(), path);
    std::vector<std::string> names;
    for (const auto& [host, name] : cells) names.push_back(name);
    std::sort(names.begin(), names.end());
    mine = static_cast<int>(std::lower_bound(names.begin(), names.end(), cell) - names.begin());
  });
  return gather(world, mine);
}

}  // namespace

std::vector<int> find_nodes(const Communicator& world) {
  world.barrier();  // the split spins until all have come; this waits in the quiet way
  MPI_Comm split = MPI_COMM_NULL;
  ATOLL_MPI(MPI_Comm_split_type(world.get(), MPI_COMM_TYPE_SHARED, world.rank(), MPI_INFO_NULL, &split));
  std::vector<double> lowest{static_cast<double>(world.rank())};
  {
    const Communicator node(split);
    node.broadcast(lowest);
  }
  ATOLL_MPI(MPI_Comm_free(&split));
  const std::vector<int> first = gather(world, static_cast<int>(lowest[0]));
  std::vector<int> different(first);
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  std::vector<int> nodes;
  for (const int rank : first)
    nodes.push_back(static_cast<int>(std::lower_bound(different.begin(), different.end(), rank) - different.begin()));
  return nodes;
}

std::map<std::string, std::string> parse_cells(const std::string& text, const std::string& path) {
  std::map<std::string, std::string> cells;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, cell, more;
    if (!(words >> host)) continue;
    if (!(words >> cell) || words >> more)
      throw ConfigError(fmt::format("{}:{}: \"{}\" is not a host and its cell; write one pair a line, as \"node17 3\"",
                                    path, number, line));
    const auto [place, added] = cells.try_emplace(host, cell);
    if (!added && place->second != cell)
      throw ConfigError(fmt::format("{}:{}: host {} is in cell {} and in cell {}; give it one", path, number, host,
                                    place->second, cell));
  }
  if (cells.empty()) throw ConfigError(fmt::format("{}: no host in it; write lines \"host cell\"", path));
  return cells;
}

std::string cell_of_host(const std::map<std::string, std::string>& cells, const std::string& host,
                         const std::string& path) {
  const auto name = [](const std::string& full) { return full.substr(0, full.find('.')); };
  if (const auto exact = cells.find(host); exact != cells.end()) return exact->second;
  std::vector<std::string> hosts;
  for (const auto& [known, cell] : cells) {
    if (name(known) == name(host)) return cell;
    hosts.push_back(known);
  }
  throw ConfigError(
      fmt::format("{}: host {}, on which ranks run, is missing (the nearest there is {}); add a line \"{} "
                  "CELL\"",
                  path, host, nearest_name(host, hosts), host));
}

ProcessGrid make_grid(const ParallelOptions& options, const Communicator& world, const std::vector<int>& nodes) {
  const std::vector<int> cells = options.group_file.empty() ? nodes : find_cells(world, options.group_file);
  std::optional<ProcessGrid> grid;
  collectively(world, [&] { grid.emplace(options, world.size(), world.rank(), cells); });
  return *grid;
}

std::string node_warning(const ParallelOptions& options, const ProcessGrid& grid, const std::vector<int>& nodes) {
  // ddp and fsdp say themselves where the parameters are; there is nothing to choose.
  if (options.strategy == Strategy::ddp || options.strategy == Strategy::fsdp) return "";
  int replicas = 0, spread = 0;
  std::string first;
  for (int g = 0; g < grid.number_of_groups(); ++g) {
    const GroupShape& shape = grid.groups()[static_cast<std::size_t>(g)];
    for (int r = 0; r < shape.replicas; ++r) {
      const auto node = [&](int s) {
        return nodes[static_cast<std::size_t>(grid.world_rank(g, r * shape.shards + s))];
      };
      ++replicas;
      for (int s = 1; s < shape.shards; ++s) {
        if (node(s) == node(0)) continue;
        if (spread++ == 0)
          first = fmt::format("replica {} of group {}, with shards on nodes {} and {}", r, g, node(0), node(s));
        break;
      }
    }
  }
  if (spread == 0) return "";
  const bool shard_size = options.shard_size != 0;
  return fmt::format(
      "{} of {} replicas reach over several nodes (the first: {}): every layer is gathered over the network between "
      "them. Choose parallel.{} so that a replica fits on a node, unless its memory is too small",
      spread, replicas, first, shard_size ? "shard_size" : "group_size");
}

}  // namespace atl
