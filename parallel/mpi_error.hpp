/// The one check around every MPI call. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/errors.hpp"

#include <mpi.h>

#include <string>

namespace atl {

/// Throws Error with the expression and MPI's own text. MPI returns codes only where the communicator's error handler
/// is MPI_ERRORS_RETURN: Runtime sets it on MPI_COMM_WORLD, Communicator on what it owns.
#define ATOLL_MPI(call)                                                                              \
  do {                                                                                               \
    const int atoll_mpi_code = (call);                                                               \
    if (atoll_mpi_code != MPI_SUCCESS) ::atl::mpi_failed(atoll_mpi_code, #call, __FILE__, __LINE__); \
  } while (false)

[[noreturn]] inline void mpi_failed(int code, const char* call, const char* file, int line) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw Error(std::string("MPI failed: ") + call + ": " + std::string(text, static_cast<std::size_t>(length)) +
              " (error code " + std::to_string(code) + ") at " + file + ":" + std::to_string(line));
}

}  // namespace atl
