/// main() of tests that start the program, outside of MPI. SPDX-License-Identifier: Apache-2.0
#include "core/kokkos_compat.hpp"

#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (!atl::kernels_on_host && atl::number_of_devices() < 1) {
    std::printf("skipped: this build's kernels run on a device (%s), and there is none\n", atl::Exec::name());
    return 77;  // which ctest takes for skipped
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
