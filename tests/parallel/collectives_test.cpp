/// Collectives over MPI. SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi_transfer.hpp"
#include "tests/parallel/collectives_suite.hpp"

namespace atl {

std::unique_ptr<Collectives> make_under_test(const Communicator& comm) { return make_mpi_collectives(comm); }

namespace {

TYPED_TEST(CollectivesTest, LargeCountsEitherWay) {
  const LargeCounts before = large_counts();
  for (const auto by : {LargeCounts::By::large_functions, LargeCounts::By::derived_types}) {
    // 7: chunks and a rest; 5 and 1: chunks without one.
    for (const std::size_t limit : {7u, 5u, 1u}) {
      large_counts() = {limit, by};
      for (const std::size_t count : {3u, 8u, 1000u}) {
        this->gather(count);
        this->reduce(count);
        this->all_reduce(count);
      }
    }
  }
  large_counts() = before;
}

TEST(Collectives, TwoOnOneCommunicatorDoNotMeet) {
  const Communicator world(MPI_COMM_WORLD);
  const auto first = make_under_test(world), second = make_under_test(world);
  const auto a = to_device("test::a", std::vector<double>(100, 1.0)),
             b = to_device("test::b", std::vector<double>(100, 2.0));
  // Started in another order on every second rank.
  Ticket x, y;
  if (world.rank() % 2 == 0) x = first->all_reduce(a.data(), 100, Element::f64, Exec());
  y = second->all_reduce(b.data(), 100, Element::f64, Exec());
  if (world.rank() % 2 != 0) x = first->all_reduce(a.data(), 100, Element::f64, Exec());
  for (bool done = false; !done; std::this_thread::yield()) {
    const bool x_done = x.test(), y_done = y.test();  // both make progress
    done = x_done && y_done;
  }
  expect_same_bits(a, std::vector<double>(100, 1.0 * world.size()));
  expect_same_bits(b, std::vector<double>(100, 2.0 * world.size()));
}

TEST(Collectives, ChoosesMpiForKernelsOnTheHost) {
  if (!kernels_on_host) GTEST_SKIP() << "kernels run on a device";
  const Communicator world(MPI_COMM_WORLD);
  EXPECT_EQ(choose_backend({.backend = Backend::automatic}, world).backend, Backend::mpi);
  EXPECT_EQ(choose_backend({.backend = Backend::mpi}, world).backend, Backend::mpi);
  try {
    choose_backend({.backend = Backend::nccl}, world);
    ADD_FAILURE() << "accepted";
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_STREQ(error.what(),
                 "parallel.backend = \"nccl\": kernels of this build run on the host, and NCCL moves memory of devices "
                 "only; or give \"mpi\", or \"auto\"");
  }
  EXPECT_EQ(describe({.backend = Backend::mpi}), "MPI");
}

}  // namespace
}  // namespace atl
