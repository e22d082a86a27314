/// Non-blocking MPI calls with counts of any size. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <mpi.h>

#include <cstddef>
#include <vector>

namespace atl {

/// How counts above `direct` reach MPI: by the large-count functions of MPI-4, or as one element of a derived type.
/// One setting for the process; tests lower `direct`, so that both ways run with little data.
struct LargeCounts {
  enum class By { large_functions, derived_types };
  std::size_t direct = INT_MAX;  ///< at most INT_MAX
  By by = MPI_VERSION >= 4 ? By::large_functions : By::derived_types;
};
LargeCounts& large_counts();

// Each appends its request to `requests`; buffers must stay until that is complete. Counts are elements of `type`.

void start_send(const void* from, std::size_t count, MPI_Datatype type, int to_rank, int tag, MPI_Comm comm,
                std::vector<MPI_Request>& requests);
void start_receive(void* to, std::size_t count, MPI_Datatype type, int from_rank, int tag, MPI_Comm comm,
                   std::vector<MPI_Request>& requests);
/// count elements from every rank; `from` may be MPI_IN_PLACE.
void start_all_gather(const void* from, void* to, std::size_t count, MPI_Datatype type, MPI_Comm comm,
                      std::vector<MPI_Request>& requests);
void start_broadcast(void* data, std::size_t count, MPI_Datatype type, int root, MPI_Comm comm,
                     std::vector<MPI_Request>& requests);

}  // namespace atl
