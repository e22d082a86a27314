/// Nodes, cells, and grids that follow from them. SPDX-License-Identifier: Apache-2.0
#include "parallel/topology.hpp"

#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl {
namespace {

const Communicator& world() {
  static const Communicator comm(MPI_COMM_WORLD);
  return comm;
}

ParallelOptions by_node(Strategy strategy, int shard_size = 0) {
  ParallelOptions options;
  options.strategy = strategy;
  options.group_by = ParallelOptions::GroupBy::node;
  options.shard_size = shard_size;
  return options;
}

TEST(Topology, RanksOfThisNodeAreFound) {
  const std::vector<int> nodes = find_nodes(world());
  ASSERT_EQ(nodes.size(), static_cast<std::size_t>(world().size()));
  EXPECT_EQ(nodes[0], 0);
  // As many nodes as there are different numbers, counted from 0 in the order of the lowest ranks.
  int seen = 0;
  for (const int node : nodes) {
    EXPECT_LE(node, seen);
    seen = std::max(seen, node + 1);
  }
}

TEST(Topology, CellsAreReadFromLines) {
  const auto cells =
      parse_cells("# hosts of the machine\nnode1 3\n\n  node2.cluster\tB # in the corner\nnode1 3\n", "f");
  EXPECT_EQ(cells, (std::map<std::string, std::string>{{"node1", "3"}, {"node2.cluster", "B"}}));
  EXPECT_EQ(cell_of_host(cells, "node1", "f"), "3");
  EXPECT_EQ(cell_of_host(cells, "node1.cluster", "f"), "3");
  EXPECT_EQ(cell_of_host(cells, "node2", "f"), "B");
  const auto failure = [](const std::string& text) {
    return message_of<ConfigError>([&] { parse_cells(text, "cells"); });
  };
  EXPECT_EQ(failure("a 1\nb\n"), "cells:2: \"b\" is not a host and its cell; write one pair a line, as \"node17 3\"");
  EXPECT_NE(failure("a 1 2\n").find("cells:1"), std::string::npos);
  EXPECT_EQ(failure("a 1\na 2\n"), "cells:2: host a is in cell 1 and in cell 2; give it one");
  EXPECT_NE(failure("# nothing\n").find("no host in it"), std::string::npos);
  EXPECT_EQ(
      message_of<ConfigError>([&] { cell_of_host(cells, "node7", "cells"); }),
      "cells: host node7, on which ranks run, is missing (the nearest there is node1); add a line \"node7 CELL\"");
}

TEST(Topology, GridsOfTheNodes) {
  const std::vector<int> nodes = find_nodes(world());
  const ProcessGrid grid = make_grid(by_node(Strategy::fl_fsdp), world(), nodes);
  EXPECT_EQ(grid.number_of_groups(), *std::max_element(nodes.begin(), nodes.end()) + 1);
  EXPECT_EQ(grid.group(), nodes[static_cast<std::size_t>(world().rank())]);
}

TEST(Topology, AFileOfCellsMakesGroups) {
  const ScratchFolder folder;
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  ParallelOptions options;
  options.strategy = Strategy::fl_hsdp;
  options.shard_size = 1;
  // Every rank names a file of its own, and that of rank 0 counts.
  options.group_file = folder.write("cells", std::string(name) + " 7\nother 2\n");
  const ProcessGrid grid = make_grid(options, world(), find_nodes(world()));
  EXPECT_EQ(grid.number_of_groups(), 1);
  EXPECT_EQ(grid.shape(), (GroupShape{world().size(), 1}));

  const auto failure = [&](const std::string& path) {
    options.group_file = path;
    const std::vector<int> nodes = find_nodes(world());
    return message_of<CollectiveError>([&] { make_grid(options, world(), nodes); });
  };
  EXPECT_NE(failure(folder / "none").find("cannot be read"), std::string::npos);
  EXPECT_NE(failure(folder.write("others", "other 2\n")).find("is missing"), std::string::npos);
  world().barrier();
}

// What is wrong on every rank, or on one, is an error on all.
TEST(Topology, AGridThatCannotBeIsAnErrorOnEveryRank) {
  ParallelOptions options = by_node(Strategy::fl_fsdp);
  options.groups = 1;
  EXPECT_EQ(message_of<CollectiveError>([&] { make_grid(options, world(), find_nodes(world())); }),
            "parallel.group_by = \"node\" and parallel.groups = 1 exclude each other: both say what the federation "
            "groups are; remove one");
  world().barrier();
}

TEST(Topology, WarnsOfReplicasOverSeveralNodes) {
  const auto warning = [](const ParallelOptions& options, int ranks, const std::vector<int>& nodes) {
    return node_warning(options, ProcessGrid(options, ranks, 0, nodes), nodes);
  };
  ParallelOptions options;
  options.strategy = Strategy::fl_hsdp;
  options.groups = 2;
  options.shard_size = 2;
  EXPECT_EQ(warning(options, 8, {0, 0, 0, 0, 1, 1, 1, 1}), "");
  EXPECT_EQ(warning(options, 8, {0, 0, 0, 1, 1, 1, 2, 2}),
            "1 of 4 replicas reach over several nodes (the first: replica 1 of group 0, with shards on nodes 0 and 1): "
            "every layer is gathered over the network between them. Choose parallel.shard_size so that a replica fits "
            "on a node, unless its memory is too small");
  options.shard_size = 4;
  EXPECT_EQ(warning(options, 8, {0, 0, 0, 0, 1, 1, 1, 1}), "");
  EXPECT_EQ(warning(options, 8, {0, 0, 1, 1, 2, 2, 3, 3}).substr(0, 6), "2 of 2");
  options.strategy = Strategy::fl_fsdp;
  options.shard_size = 0;
  EXPECT_NE(warning(options, 4, {0, 1, 0, 1}).find("parallel.group_size"), std::string::npos);
  EXPECT_EQ(warning(by_node(Strategy::fl_fsdp), 4, {0, 1, 0, 1}), "");
  options = ParallelOptions();  // fsdp over all ranks is what was asked for
  EXPECT_EQ(warning(options, 4, {0, 0, 1, 1}), "");
}

}  // namespace
}  // namespace atl
