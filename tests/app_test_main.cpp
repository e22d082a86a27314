/// main() of tests that start the program, outside of MPI. SPDX-License-Identifier: Apache-2.0
#include "tests/skip_without_device.hpp"

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  if (atl::test::lacks_device()) return atl::test::skipped;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
