/// Tests of kernels that run on a device, where there is none. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"

#include <cstdio>

namespace atl::test {

inline constexpr int skipped = 77;  ///< exit code which ctest takes for skipped

/// Whether the build's kernels need a device that this machine has not; says so.
inline bool lacks_device() {
  if (kernels_on_host || number_of_devices() > 0) return false;
  std::printf("skipped: this build's kernels run on a device (%s), and there is none\n", Exec::name());
  return true;
}

}  // namespace atl::test
