/// Versions of atoll and of what it is built on. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace atl {

std::string version();       ///< "0.1.0"
std::string git_revision();  ///< of the source tree at configuration; empty outside git
std::string version_text();  ///< one line for people
/// {"atoll": ..., "kokkos": ..., "execution_space": ..., "mpi": ..., "hdf5": ..., "gemm_fp32": ..., "gemm_fp64": ...,
/// "gemm_bf16": ...}
nlohmann::ordered_json versions(const std::string& mpi);

/// Whether the HDF5 library was built with MPI.
bool hdf5_is_parallel();

}  // namespace atl
