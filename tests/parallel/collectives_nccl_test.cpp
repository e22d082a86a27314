/// Collectives over NCCL, which is emulated on the host: see emulated_nccl.cpp. SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/collectives_suite.hpp"
#include "tests/parallel/emulated_nccl/emulated_nccl.hpp"

namespace atl {

std::unique_ptr<Collectives> make_under_test(const Communicator& comm) { return emulation::make_collectives(comm); }

namespace {

using emulation::events;

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Arrays that kernels of Exec may only read when an operation is complete.
struct Arrays {
  explicit Arrays(std::size_t ranks)
      : all(allocate<float>("test::all", 100 * ranks)), mine(allocate<float>("test::mine", 100)) {
    fill(Exec(), all, 1.0f);
  }
  View1<float> all, mine;
};

Ticket reduce(Collectives& collectives, const Arrays& arrays) {
  return collectives.reduce_scatter(arrays.all.data(), arrays.mine.data(), 100, Element::f32, false, Exec());
}

// Sums of whole numbers are exact in any order.
TEST(Nccl, SumsInTheOrderOfTheLibrary) {
  const Communicator world(MPI_COMM_WORLD);
  const auto ranks = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
  const auto collectives = emulation::make_collectives(world, {.sums = SumOrder::library});
  std::vector<double> numbers(7 * ranks), sum(7);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(10 * me + i);
  for (std::size_t i = 0; i < 7; ++i)
    for (std::size_t r = 0; r < ranks; ++r) sum[i] += static_cast<double>(10 * r + 7 * me + i);
  const auto send = to_device("test::send", numbers);
  const auto recv = allocate<double>("test::recv", 7);
  collectives->reduce_scatter(send.data(), recv.data(), 7, Element::f64, false, Exec()).wait();
  EXPECT_EQ(to_host(recv), sum);
  collectives->reduce_scatter(send.data(), recv.data(), 7, Element::f64, true, Exec()).wait();
  for (double& x : sum) x *= 2;
  EXPECT_EQ(to_host(recv), sum);
  const auto data = to_device("test::data", numbers);
  collectives->all_reduce(data.data(), numbers.size(), Element::f64, Exec()).wait();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    double total = 0;
    for (std::size_t r = 0; r < ranks; ++r) total += static_cast<double>(10 * r + i);
    numbers[i] = total;
  }
  EXPECT_EQ(to_host(data), numbers);
}

// Of two communicators, one is on the device at a time; each rank waits in another order.
TEST(Nccl, OneOperationAtATime) {
  const Communicator world(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "one rank sends nothing";
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto first = emulation::make_collectives(world), second = emulation::make_collectives(world);
  events() = {};
  for (int round = 0; round < 20; ++round) {
    const Arrays a(ranks), b(ranks);
    Ticket x = reduce(*first, a), y = reduce(*second, b);
    Ticket z = first->all_reduce(b.all.data(), 100 * ranks, Element::f32, Exec());
    (world.rank() % 2 == 0 ? x : z).wait();
    (world.rank() % 2 == 0 ? z : x).wait();
    y.wait();
    EXPECT_EQ(to_host(a.mine), std::vector<float>(100, static_cast<float>(ranks)));
    EXPECT_EQ(to_host(b.mine), std::vector<float>(100, static_cast<float>(ranks)));
    EXPECT_EQ(to_host(b.all), std::vector<float>(100 * ranks, static_cast<float>(ranks)));
  }
  EXPECT_EQ(events().transfers, 20 * 4);  // an all-reduce is two
  EXPECT_EQ(events().together, 0);
}

TEST(Nccl, CommunicatorsEndInOrder) {
  const Communicator world(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "one rank has none";
  events() = {};
  {
    const auto first = emulation::make_collectives(world), second = emulation::make_collectives(world);
    const Arrays a(static_cast<std::size_t>(world.size()));
    const Ticket forgotten = reduce(*first, a);
  }
  EXPECT_EQ(events().destroyed, 2);
  EXPECT_EQ(events().aborted, 0);
}

// What follows leaves communicators aborted, so it comes last.

TEST(NcclFailures, AnErrorOfAnotherRankIsToldAndAbortsAll) {
  const Communicator world(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "one rank sends nothing";
  const Arrays a(static_cast<std::size_t>(world.size()));
  for (const bool by_test : {false, true}) {
    const auto first = emulation::make_collectives(world), second = emulation::make_collectives(world);
    events() = {};
    events().fail_transfer = 2;
    reduce(*first, a).wait();
    const std::string failure = failure_of([&] {
      Ticket ticket = reduce(*first, a);  // the error may show here already
      while (by_test && !ticket.test()) std::this_thread::yield();
      ticket.wait();
    });
    EXPECT_NE(failure.find("remote process exited or there was a network error (last words)"), std::string::npos)
        << failure;
    EXPECT_NE(failure.find("NCCL failed on rank " + std::to_string(world.rank()) + " of the "), std::string::npos);
    EXPECT_EQ(events().aborted, 2);
    EXPECT_EQ(failure_of([&] { reduce(*second, a); }), "NCCL was aborted after an error of this process");
    world.barrier();
  }
}

TEST(NcclFailures, AnOperationThatNeverEndsIsAborted) {
  const Communicator world(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "one rank sends nothing";
  const Arrays a(static_cast<std::size_t>(world.size()));
  const auto collectives = emulation::make_collectives(world, {.time_out = 0.2});
  events() = {};
  events().hang_transfer = 1;
  const std::string failure = failure_of([&] { reduce(*collectives, a).wait(); });
  EXPECT_NE(failure.find("a collective operation did not end within 0.2 seconds: another rank is gone"),
            std::string::npos)
      << failure;
  EXPECT_EQ(events().aborted, 1);
}

// The exception is not held up by the operation that it leaves behind, whose arrays are freed.
TEST(NcclFailures, AnExceptionAbortsWhatIsUnderWay) {
  const Communicator world(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "one rank sends nothing";
  events() = {};
  const auto collectives = emulation::make_collectives(world);
  EXPECT_EQ(failure_of([&] {
              const Arrays a(static_cast<std::size_t>(world.size()));
              events().hang_transfer = 1;
              const Ticket ticket = reduce(*collectives, a);
              throw Error("something else");
            }),
            "something else");
  EXPECT_EQ(events().aborted, 1);
}

TEST(NcclFailures, ACommunicatorThatCannotBeMadeIsAnError) {
  const Communicator world(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "one rank has none";
  events() = {};
  events().fail_init = true;
  const std::string failure = failure_of([&] { emulation::make_collectives(world); });
  EXPECT_NE(failure.find("ncclCommInitRankConfig: unhandled system error"), std::string::npos) << failure;
  EXPECT_EQ(events().aborted, 1);
  events() = {};
}

}  // namespace
}  // namespace atl
