/// Collectives against sequential references, to the bit: tests for any library. SPDX-License-Identifier: Apache-2.0
///
/// The source that includes it, once a test program, says which collectives they are.
#pragma once

#include "core/launch.hpp"
#include "core/random.hpp"
#include "parallel/collectives.hpp"
#include "parallel/communicator.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

namespace atl {

std::unique_ptr<Collectives> make_under_test(const Communicator& comm);

namespace {

/// Value `index` of a rank: magnitudes from 2^-26 to 2^26, so that another order of additions gives other bits. The
/// product is exact, so that a compiler which fuses it with a later addition changes nothing.
template <class T>
T value(int rank, std::size_t index, int salt = 0) {
  const std::uint64_t key = random_key(static_cast<std::uint64_t>(rank + 100 * salt), "collectives");
  const int exponent = static_cast<int>(random_bits(key, 2 * index) % 53) - 26;
  return static_cast<T>(std::ldexp(random_uniform(key, 2 * index + 1) - 0.5, exponent));
}

template <class T>
std::vector<T> values(int rank, std::size_t begin, std::size_t count, int salt = 0) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = value<T>(rank, begin + i, salt);
  return result;
}

/// Sum of elements [begin, begin + count) over all ranks, in rank order.
template <class T>
std::vector<T> sums(int ranks, std::size_t begin, std::size_t count, int salt = 0) {
  std::vector<T> result = values<T>(0, begin, count, salt);
  for (int r = 1; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) result[i] += value<T>(r, begin + i, salt);
  }
  return result;
}

template <class T>
void expect_same_bits(const View1<T>& actual, const std::vector<T>& expected) {
  const std::vector<T> host = to_host(actual);
  ASSERT_EQ(host.size(), expected.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    ASSERT_EQ(std::memcmp(&host[i], &expected[i], sizeof(T)), 0)
        << "element " << i << ": " << host[i] << ", " << expected[i];
  }
}

template <class T>
void launch_kernel(const View1<T>& x) {
  for_each(
      "test::kernel", Exec(), x.extent(0), KOKKOS_LAMBDA(const std::int64_t i) { x(i) = T(0); });
}

template <class T>
class CollectivesTest : public ::testing::Test {
 protected:
  Communicator world{MPI_COMM_WORLD};
  std::unique_ptr<Collectives> collectives = make_under_test(world);
  int n = world.size(), me = world.rank();
  std::size_t ranks = static_cast<std::size_t>(n), place = static_cast<std::size_t>(me);
  Element element = element_of<T>();

  void gather(std::size_t count) {
    std::vector<T> expected;
    for (int r = 0; r < n; ++r) {
      for (const T x : values<T>(r, 0, count)) expected.push_back(x);
    }
    const auto send = to_device("test::send", values<T>(me, 0, count));
    const auto recv = allocate<T>("test::recv", ranks * count);
    collectives->all_gather(send.data(), recv.data(), count, element, Exec()).wait();
    expect_same_bits(recv, expected);

    const auto in_place = allocate<T>("test::in_place", ranks * count);
    T* const my_place = in_place.data() + place * count;
    copy_to_device(values<T>(me, 0, count), View1<T>(my_place, count));
    collectives->all_gather(my_place, in_place.data(), count, element, Exec()).wait();
    expect_same_bits(in_place, expected);
  }

  void reduce(std::size_t count) {
    const auto send = to_device("test::send", values<T>(me, 0, ranks * count));
    const std::vector<T> expected = sums<T>(n, place * count, count);
    const auto recv = allocate<T>("test::recv", count);
    collectives->reduce_scatter(send.data(), recv.data(), count, element, false, Exec()).wait();
    expect_same_bits(recv, expected);
    expect_same_bits(send, values<T>(me, 0, ranks * count));

    // The sum is added as one value: (a + b) + c and a + (b + c) differ.
    std::vector<T> accumulated = values<T>(me, 0, count, 7);
    copy_to_device(accumulated, recv);
    for (std::size_t i = 0; i < count; ++i) accumulated[i] += expected[i];
    collectives->reduce_scatter(send.data(), recv.data(), count, element, true, Exec()).wait();
    expect_same_bits(recv, accumulated);

    T* const my_place = send.data() + place * count;
    collectives->reduce_scatter(send.data(), my_place, count, element, false, Exec()).wait();
    expect_same_bits(View1<T>(my_place, count), expected);
  }

  void all_reduce(std::size_t count) {
    const auto data = to_device("test::data", values<T>(me, 0, count));
    collectives->all_reduce(data.data(), count, element, Exec()).wait();
    expect_same_bits(data, sums<T>(n, 0, count));
  }
};

using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CollectivesTest, Floats);

constexpr std::size_t counts[] = {0, 1, 2, 3, 5, 7, 511, 513, 1000, 20000};

TYPED_TEST(CollectivesTest, AllGatherAnywhereAndInPlace) {
  for (const std::size_t count : counts) this->gather(count);
}
TYPED_TEST(CollectivesTest, ReduceScatterAddsInRankOrder) {
  for (const std::size_t count : counts) this->reduce(count);
}
TYPED_TEST(CollectivesTest, AllReduceAddsInRankOrder) {
  for (const std::size_t count : counts) this->all_reduce(count);
}

TYPED_TEST(CollectivesTest, ReferenceDependsOnTheOrder) {
  // Otherwise the tests above would pass with any order.
  if (this->n < 3) GTEST_SKIP() << "two numbers have one sum";
  const std::vector<TypeParam> forward = sums<TypeParam>(this->n, 0, 1000);
  std::vector<TypeParam> backward(1000, TypeParam(0));
  for (int r = this->n - 1; r >= 0; --r) {
    for (std::size_t i = 0; i < 1000; ++i) backward[i] += value<TypeParam>(r, i);
  }
  EXPECT_NE(forward, backward);
}

TYPED_TEST(CollectivesTest, SeveralAtOnceInAnyOrder) {
  using T = TypeParam;
  const std::size_t count = 1000, operations = 6;
  std::vector<View1<T>> send, recv, reduced;
  for (int round = 0; round < 10; ++round) {
    send.clear(), recv.clear(), reduced.clear();
    std::vector<Ticket> tickets;
    for (std::size_t k = 0; k < operations; ++k) {
      const int salt = static_cast<int>(k) + 10 * round;
      const std::size_t mine = count + k;
      send.push_back(to_device("test::send", values<T>(this->me, 0, this->ranks * mine, salt)));
      recv.push_back(allocate<T>("test::recv", this->ranks * mine));
      reduced.push_back(allocate<T>("test::reduced", mine));
      tickets.push_back(
          this->collectives->reduce_scatter(send[k].data(), reduced[k].data(), mine, this->element, false, Exec()));
      tickets.push_back(this->collectives->all_gather(send[k].data(), recv[k].data(), mine, this->element, Exec()));
    }
    std::vector<View1<T>> summed;
    for (std::size_t k = 0; k < operations; ++k) {
      summed.push_back(to_device("test::summed", values<T>(this->me, 0, count + k, 50 + static_cast<int>(k))));
      tickets.push_back(this->collectives->all_reduce(summed[k].data(), count + k, this->element, Exec()));
      // Some ranks get to the second stage before they start the next operation, some after.
      for (int t = 0; (this->me + static_cast<int>(k)) % 2 == 0 && t < 30; ++t) {
        tickets.back().test();
        std::this_thread::yield();
      }
    }
    // Each rank waits in another order: from another start, and every second rank backwards.
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      const std::size_t j = (i + 5 * this->place) % tickets.size();
      tickets[this->me % 2 == 0 ? j : tickets.size() - 1 - j].wait();
    }
    for (std::size_t k = 0; k < operations; ++k) {
      const int salt = static_cast<int>(k) + 10 * round;
      const std::size_t mine = count + k;
      expect_same_bits(reduced[k], sums<T>(this->n, this->place * mine, mine, salt));
      std::vector<T> gathered;
      for (int r = 0; r < this->n; ++r) {
        for (const T x : values<T>(r, 0, mine, salt)) gathered.push_back(x);
      }
      expect_same_bits(recv[k], gathered);
      expect_same_bits(summed[k], sums<T>(this->n, 0, mine, 50 + static_cast<int>(k)));
    }
  }
}

TYPED_TEST(CollectivesTest, TestAloneCompletes) {
  const auto data = to_device("test::data", values<TypeParam>(this->me, 0, 1000));
  Ticket ticket = this->collectives->all_reduce(data.data(), 1000, this->element, Exec());
  while (!ticket.test()) std::this_thread::yield();
  EXPECT_TRUE(ticket.test());
  expect_same_bits(data, sums<TypeParam>(this->n, 0, 1000));
}

// An all-reduce goes on by itself through both of its exchanges while kernels are launched: nobody tests or waits.
TYPED_TEST(CollectivesTest, KernelsLetTransfersGoOn) {
  const auto data = allocate<TypeParam>("test::data", 1000);
  fill(Exec(), data, TypeParam(1));
  Ticket ticket = this->collectives->all_reduce(data.data(), data.extent(0), this->element, Exec());
  const auto other = allocate<TypeParam>("test::other", 10);
  const std::vector<TypeParam> sum(data.extent(0), static_cast<TypeParam>(this->ranks));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto launched = [&] {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    launch_kernel(other);
    return to_host(data) == sum;
  };
  while (!launched() && std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(to_host(data), sum);
  // The others may still need this rank's messages.
  ticket.wait();
  this->world.barrier();
}

TYPED_TEST(CollectivesTest, CountsTheBytesOfARing) {
  const std::uint64_t others = this->ranks - 1, size = sizeof(TypeParam);
  const auto bytes = [&] { return this->collectives->stats().bytes_sent; };
  EXPECT_EQ(bytes(), 0u);
  this->collectives->all_gather(nullptr, nullptr, 0, this->element, Exec()).wait();
  EXPECT_EQ(bytes(), 0u);
  const auto send = allocate<TypeParam>("test::send", this->ranks * 30);
  const auto recv = allocate<TypeParam>("test::recv", this->ranks * 30);
  this->collectives->all_gather(send.data(), recv.data(), 30, this->element, Exec()).wait();
  EXPECT_EQ(bytes(), others * 30 * size);  // (m-1)/m of m * 30 elements
  this->collectives->reduce_scatter(send.data(), recv.data(), 30, this->element, false, Exec()).wait();
  EXPECT_EQ(bytes(), 2 * others * 30 * size);
  this->collectives->all_reduce(recv.data(), this->ranks * 30, this->element, Exec()).wait();
  EXPECT_EQ(bytes(), 4 * others * 30 * size);
  this->collectives->all_reduce(recv.data(), this->ranks * 30 - (this->n > 1 ? 1 : 0), this->element, Exec()).wait();
  EXPECT_EQ(bytes(), 6 * others * 30 * size);  // slices are rounded up
}

TYPED_TEST(CollectivesTest, CountsTheTimeOfWaits) {
  const auto send = allocate<TypeParam>("test::send", this->ranks);
  const auto recv = allocate<TypeParam>("test::recv", 1);
  this->world.barrier();
  if (this->me == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  this->collectives->reduce_scatter(send.data(), recv.data(), 1, this->element, false, Exec()).wait();
  if (this->me == 0) return;
  EXPECT_GT(this->collectives->stats().seconds_waited, 0.05);
  EXPECT_LT(this->collectives->stats().seconds_waited, 10.0);
}

TEST(Collectives, GathersOtherElements) {
  const Communicator world(MPI_COMM_WORLD);
  const auto collectives = make_under_test(world);
  const auto ranks = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
  const auto half = allocate<bf16>("test::half", 3 * ranks);
  const auto integers = allocate<std::int32_t>("test::integers", ranks);
  copy_to_device({bf16(1.0f * static_cast<float>(me)), bf16(0.5f), bf16(-2.0f)}, part(half, 3 * me, 3));
  copy_to_device({-static_cast<std::int32_t>(me) - 70000}, part(integers, me, 1));
  collectives->all_gather(half.data() + 3 * me, half.data(), 3, Element::bf16, Exec()).wait();
  collectives->all_gather(integers.data() + me, integers.data(), 1, Element::i32, Exec()).wait();
  const auto halves = to_host(half);
  const auto host_integers = to_host(integers);
  for (std::size_t r = 0; r < ranks; ++r) {
    EXPECT_EQ(static_cast<float>(halves[3 * r]), static_cast<float>(r));
    EXPECT_EQ(static_cast<float>(halves[3 * r + 1]), 0.5f);
    EXPECT_EQ(static_cast<float>(halves[3 * r + 2]), -2.0f);
    EXPECT_EQ(host_integers[r], -static_cast<std::int32_t>(r) - 70000);
  }
  EXPECT_THROW(collectives->all_reduce(half.data(), 3, Element::bf16, Exec()), Error);
}

/// values(), each rounded to bf16.
std::vector<float> rounded_values(int rank, std::size_t begin, std::size_t count) {
  std::vector<float> result = values<float>(rank, begin, count);
  for (float& x : result) x = bf16(x);
  return result;
}
std::vector<float> rounded_sums(int ranks, std::size_t begin, std::size_t count) {
  std::vector<float> result = rounded_values(0, begin, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> term = rounded_values(r, begin, count);
    for (std::size_t i = 0; i < count; ++i) result[i] += term[i];
  }
  return result;
}

// Terms travel as bf16, in half the bytes; every sum is that of fp32, in rank order, to the bit.
TEST(Collectives, TermsInBf16AreSummedInFp32) {
  const Communicator world(MPI_COMM_WORLD);
  const auto collectives = make_under_test(world);
  const int n = world.size(), me = world.rank();
  if (n == 1) return;
  const auto ranks = static_cast<std::size_t>(n), place = static_cast<std::size_t>(me);
  for (const std::size_t count : counts) {
    const auto send = to_device("test::send", values<float>(me, 0, ranks * count));
    std::vector<float> expected = rounded_sums(n, place * count, count);
    const auto recv = allocate<float>("test::recv", count);
    std::uint64_t before = collectives->stats().bytes_sent;
    collectives->reduce_scatter(send.data(), recv.data(), count, Element::f32, false, Exec(), Wire::bf16).wait();
    EXPECT_EQ(collectives->stats().bytes_sent - before, 2 * (ranks - 1) * count);
    expect_same_bits(recv, expected);
    expect_same_bits(send, values<float>(me, 0, ranks * count));
    float* const my_place = send.data() + place * count;
    collectives->reduce_scatter(send.data(), my_place, count, Element::f32, false, Exec(), Wire::bf16).wait();
    expect_same_bits(View1<float>(my_place, count), expected);
    collectives->reduce_scatter(recv.data(), recv.data(), 0, Element::f32, false, Exec(), Wire::bf16).wait();

    // Two at once, and accumulated.
    const auto other = to_device("test::send", values<float>(me, 0, ranks * count));
    Ticket one = collectives->reduce_scatter(other.data(), recv.data(), count, Element::f32, true, Exec(), Wire::bf16);
    const auto data = to_device("test::data", values<float>(me, 0, count));
    before = collectives->stats().bytes_sent;
    Ticket two = collectives->all_reduce(data.data(), count, Element::f32, Exec(), Wire::bf16);
    EXPECT_EQ(collectives->stats().bytes_sent - before, 2 * 2 * (ranks - 1) * ((count + ranks - 1) / ranks));
    one.wait();
    two.wait();
    for (float& x : expected) x += x;
    expect_same_bits(recv, expected);
    // All ranks have the same bits: the sums are rounded before they are gathered, and where they were made.
    std::vector<float> all = rounded_sums(n, 0, count);
    for (float& x : all) x = bf16(x);
    expect_same_bits(data, all);
  }
  const auto doubles = allocate<double>("test::doubles", 4);
  EXPECT_THROW(collectives->all_reduce(doubles.data(), 4, Element::f64, Exec(), Wire::bf16), Error);
}

TEST(Collectives, AddsNegativeZeros) {
  const Communicator world(MPI_COMM_WORLD);
  const auto collectives = make_under_test(world);
  const auto data = to_device("test::data", std::vector<float>{-0.0f, -0.0f, -0.0f});
  collectives->all_reduce(data.data(), 3, Element::f32, Exec()).wait();
  expect_same_bits(data, std::vector<float>{-0.0f, -0.0f, -0.0f});
}

/// What Kokkos Tools hear: labels of allocations and kernels.
std::vector<std::string>& heard() {
  static std::vector<std::string> labels;
  return labels;
}

TEST(Collectives, AllocatesOnlyAtFirstAndLabelsEverything) {
  const Communicator world(MPI_COMM_WORLD);
  const auto collectives = make_under_test(world);
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto send = allocate<float>("test::send", 1000 * ranks), all = allocate<float>("test::all", 1000 * ranks);
  const auto first = allocate<float>("test::first", 1000), second = allocate<float>("test::second", 1000),
             summed = allocate<float>("test::summed", 1000);
  const auto step = [&] {
    for (const std::size_t count : {1000u, 10u, 500u}) {
      Ticket one = collectives->reduce_scatter(send.data(), first.data(), count, Element::f32, true, Exec());
      Ticket two = collectives->reduce_scatter(send.data(), second.data(), count, Element::f32, true, Exec());
      collectives->all_gather(summed.data(), all.data(), count, Element::f32, Exec()).wait();
      one.wait();
      two.wait();
      collectives->all_reduce(summed.data(), count, Element::f32, Exec()).wait();
    }
  };
  namespace tools = Kokkos::Tools::Experimental;
  const auto hear_kernels = [] {
    tools::set_begin_parallel_for_callback(
        [](const char* name, std::uint32_t, std::uint64_t*) { heard().push_back(name); });
  };
  const auto hear_allocations = [] {
    tools::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, const char* name, const void*, std::uint64_t) { heard().push_back(name); });
  };
  hear_kernels();
  hear_allocations();
  step();
  std::set<std::string> labels(heard().begin(), heard().end());
  EXPECT_TRUE(labels.count("atoll::sum_in_rank_order") == 1);
  EXPECT_EQ(labels.count("atoll::receive_workspace"), ranks > 1 ? 1u : 0u);
  for (const std::string& label : labels) EXPECT_EQ(label.rfind("atoll::", 0), 0u) << label;

  step();  // the pool may settle
  heard().clear();
  tools::set_begin_parallel_for_callback(nullptr);
  for (int i = 0; i < 5; ++i) step();
  EXPECT_TRUE(heard().empty()) << heard().front();
  tools::set_allocate_data_callback(nullptr);
}

}  // namespace
}  // namespace atl
