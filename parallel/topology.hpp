/// Which ranks share a node, or a cell of the network, and the grid that follows. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/communicator.hpp"
#include "parallel/process_grid.hpp"

#include <map>
#include <string>
#include <vector>

namespace atl {

/// The number of each rank's node, counted in the order of their lowest ranks; nodes are what shares memory, as MPI
/// says. Collective.
std::vector<int> find_nodes(const Communicator& world);

/// Cells of a group_file: lines "host cell", both without blanks; # begins a comment. ConfigError with the line for
/// anything else. `path` is for messages.
std::map<std::string, std::string> parse_cells(const std::string& text, const std::string& path);

/// The cell of a host, by its full name or that up to the first dot. ConfigError where the file has neither.
std::string cell_of_host(const std::map<std::string, std::string>& cells, const std::string& host,
                         const std::string& path);

/// The grid of all ranks of `world`; `nodes` from find_nodes, for group_by. Rank 0 reads group_file. Collective; throws
/// CollectiveError.
ProcessGrid make_grid(const ParallelOptions& options, const Communicator& world, const std::vector<int>& nodes);

/// Empty, or a warning that replicas reach over several nodes, though a key says what a replica is: what is gathered in
/// every layer then passes between nodes.
std::string node_warning(const ParallelOptions& options, const ProcessGrid& grid, const std::vector<int>& nodes);

}  // namespace atl
