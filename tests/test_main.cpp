/// main() of every test program: MPI and Kokkos around GoogleTest. SPDX-License-Identifier: Apache-2.0
///
/// A failure on any rank is a failure of the test on all of them; ranks other than 0 print only failures.
#include "tests/skip_without_device.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (atl::test::lacks_device()) return atl::test::skipped;
  MPI_Init(&argc, &argv);
  int failed = 0;
  {
    Kokkos::initialize(argc, argv);
    ::testing::InitGoogleTest(&argc, argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0) {
      auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
      delete listeners.Release(listeners.default_result_printer());
      class Failures : public ::testing::EmptyTestEventListener {
        void OnTestPartResult(const ::testing::TestPartResult& result) override {
          if (!result.failed()) return;
          int r = 0;
          MPI_Comm_rank(MPI_COMM_WORLD, &r);
          std::fprintf(stderr, "[rank %d] %s:%d: %s\n", r, result.file_name() ? result.file_name() : "?",
                       result.line_number(), result.message());
        }
      };
      listeners.Append(new Failures);
    }
    failed = RUN_ALL_TESTS();
    Kokkos::finalize();
  }
  int any_failed = 0;
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any_failed;
}
