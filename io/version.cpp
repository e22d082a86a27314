/// SPDX-License-Identifier: Apache-2.0
#include "io/version.hpp"

#include "core/gemm.hpp"

#include <fmt/format.h>
#include <hdf5.h>

namespace atl {

std::string version() { return ATOLL_VERSION; }
std::string git_revision() { return ATOLL_GIT_REVISION; }

namespace {
std::string kokkos_version_text() {
  return fmt::format("{}.{}.{}", kokkos_version() / 10000, kokkos_version() / 100 % 100, kokkos_version() % 100);
}
}  // namespace

std::string version_text() {
  const std::string revision = git_revision();
  return fmt::format("atoll {}{}, Kokkos {} on {}", version(), revision.empty() ? "" : " (" + revision + ")",
                     kokkos_version_text(), Exec::name());
}

nlohmann::ordered_json versions(const std::string& mpi) {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return {{"atoll", version()},
          {"kokkos", kokkos_version_text()},
          {"execution_space", Exec::name()},
          {"mpi", mpi},
          {"hdf5", fmt::format("{}.{}.{}", major, minor, release)},
          {"gemm_fp32", gemm_library(Element::f32)},
          {"gemm_fp64", gemm_library(Element::f64)},
          {"gemm_bf16", gemm_library(Element::bf16)}};
}

bool hdf5_is_parallel() {
#ifdef H5_HAVE_PARALLEL
  return true;
#else
  return false;
#endif
}

}  // namespace atl
