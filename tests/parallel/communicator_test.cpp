/// Communicators of a grid, and agreement between ranks. SPDX-License-Identifier: Apache-2.0
#include "parallel/communicator.hpp"

#include "core/array.hpp"
#include "parallel/collectives.hpp"
#include "parallel/mpi_error.hpp"
#include "parallel/mpi_transfer.hpp"
#include "parallel/waiting.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

namespace atl {
namespace {

const Communicator& world() {
  static const Communicator comm(MPI_COMM_WORLD);  // freed after MPI_Finalize would be an error: the destructor looks
  return comm;
}

/// World ranks of the members of `comm`, in its order.
std::vector<int> members(const Communicator& comm) {
  std::vector<int> ranks;
  for (const double rank : comm.all_gather({static_cast<double>(world().rank())}))
    ranks.push_back(static_cast<int>(rank));
  return ranks;
}

TEST(Communicator, MovesHostValues) {
  const int n = world().size(), me = world().rank();
  int mpi_rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  EXPECT_EQ(me, mpi_rank);
  const std::vector<double> all = world().all_gather({me + 0.5, -1.0 * me});
  ASSERT_EQ(all.size(), static_cast<std::size_t>(2 * n));
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(all[static_cast<std::size_t>(2 * r)], r + 0.5);
    EXPECT_EQ(all[static_cast<std::size_t>(2 * r) + 1], -1.0 * r);
  }
  EXPECT_TRUE(world().all_gather({}).empty());
  EXPECT_EQ(world().sum(std::int64_t{1} << 60 >> me), [&] {
    std::int64_t total = 0;
    for (int r = 0; r < n; ++r) total += std::int64_t{1} << 60 >> r;
    return total;
  }());
  // Exact in double only in rank order: 1e16 swallows a 1, and -1e16 at the end leaves what was not swallowed.
  double expected = 0;
  const auto value = [n](int r) { return r == 0 ? 1e16 : (r == n - 1 ? -1e16 : 1.0); };
  for (int r = 0; r < n; ++r) expected += value(r);
  EXPECT_EQ(world().sum(value(me)), expected);
  EXPECT_EQ(world().max(me == n / 2 ? 7.0 : -me), 7.0);
  for (int bad = 0; bad < n; ++bad) {
    EXPECT_TRUE(std::isnan(world().max(me == bad ? std::numeric_limits<double>::quiet_NaN() : 1.0)));
  }
  world().barrier();
}

TEST(Communicator, BroadcastsAnyText) {
  for (int root = 0; root < world().size(); ++root) {
    const std::string mine = world().rank() == root ? fmt::format("from {}", root) : "another";
    EXPECT_EQ(world().broadcast(mine, root), fmt::format("from {}", root));
  }
  EXPECT_EQ(world().broadcast(world().rank() == 0 ? "" : "x"), "");
  // Longer than a count may be: by either way, with the limit lowered.
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i);
  const LargeCounts before = large_counts();
  for (const auto by : {LargeCounts::By::large_functions, LargeCounts::By::derived_types}) {
    large_counts() = {100, by};
    EXPECT_EQ(world().broadcast(world().rank() == 0 ? text : ""), text);
  }
  large_counts() = before;
}

TEST(Communicator, SplitsByColorOrderedByKey) {
  const int n = world().size(), me = world().rank();
  const Communicator half(world(), me % 2, -me);
  std::vector<int> expected;
  for (int r = n - 1; r >= 0; --r) {
    if (r % 2 == me % 2) expected.push_back(r);
  }
  EXPECT_EQ(members(half), expected);
  EXPECT_EQ(half.size(), static_cast<int>(expected.size()));
  EXPECT_EQ(expected[static_cast<std::size_t>(half.rank())], me);
}

TEST(Communicator, MovesAreNotCopies) {
  Communicator first(MPI_COMM_WORLD);
  const MPI_Comm handle = first.get();
  Communicator second(std::move(first));
  EXPECT_EQ(second.get(), handle);
  Communicator third(second, 0, second.rank());
  third = std::move(second);
  EXPECT_EQ(third.get(), handle);
  EXPECT_EQ(third.sum(1.0), world().size());
}

TEST(Communicator, ErrorsOfMpiAreExceptions) {
  const Communicator comm(MPI_COMM_WORLD);
  try {
    const int value = 0;
    ATOLL_MPI(MPI_Send(&value, 1, MPI_INT, comm.size() + 5, 0, comm.get()));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("MPI_Send(&value, 1, MPI_INT, comm.size() + 5, 0, comm.get())"),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("rank"), std::string::npos) << error.what();
  }
}

TEST(Collectively, ReturnsWhereNobodyThrows) {
  int done = 0;
  collectively(world(), [&] { ++done; });
  EXPECT_EQ(done, 1);
}

TEST(Collectively, EveryRankGetsTheErrorOfTheLowestThatFailed) {
  const int n = world().size(), me = world().rank();
  for (int lowest = 0; lowest < n; ++lowest) {
    try {
      collectively(world(), [&] {
        if (me == lowest) throw DataError(fmt::format("file of rank {} is truncated", me));
        if (me > lowest) throw ConfigError("a later one");
      });
      ADD_FAILURE() << "no error";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(std::string(error.what()), fmt::format("file of rank {} is truncated", lowest));
      EXPECT_EQ(error.code(), ExitCode::data);
    }
  }
  world().barrier();  // all ranks are at the same place
}

TEST(Collectively, CatchesAnything) {
  const auto failure = [](const std::function<void()>& work) -> std::pair<std::string, ExitCode> {
    try {
      collectively(world(), work);
    } catch (const CollectiveError& error) {
      return {error.what(), error.code()};
    }
    return {"no error", ExitCode::done};
  };
  const bool last = world().rank() == world().size() - 1;
  EXPECT_EQ(failure([&] {
              if (last) throw std::out_of_range("far");
            }),
            (std::pair<std::string, ExitCode>("far", ExitCode::failure)));
  EXPECT_EQ(failure([&] {
              if (last) throw 5;
            }),
            (std::pair<std::string, ExitCode>("an exception that is no std::exception", ExitCode::failure)));
  // An error with an empty message, and one with the code of success, are errors all the same.
  EXPECT_EQ(failure([&] {
              if (last) throw Error("", ExitCode::done);
            }),
            (std::pair<std::string, ExitCode>("", ExitCode::done)));
}

TEST(RequireEqual, NamesTheFirstRankThatDiffers) {
  const int n = world().size(), me = world().rank();
  EXPECT_NO_THROW(require_equal(world(), "same", "the run configuration"));
  EXPECT_NO_THROW(require_equal(world(), "", "nothing"));
  for (int first = 1; first < n; ++first) {
    try {
      require_equal(world(), me >= first ? "steps = 100" : "steps = 101", "the run configuration");
      ADD_FAILURE() << "no error";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(
          std::string(error.what())
              .find(fmt::format(
                  "the run configuration differs between ranks: rank {} of {} has another one than rank 0", first, n)),
          0u)
          << error.what();
    }
  }
}

/// Every grid of this many ranks that has groups, replicas and shards.
std::vector<ParallelOptions> grids(int ranks) {
  std::vector<ParallelOptions> all;
  for (int group_size = 1; group_size <= ranks; ++group_size) {
    if (ranks % group_size != 0) continue;
    for (int shards = 1; shards <= group_size; ++shards) {
      if (group_size % shards != 0) continue;
      ParallelOptions options;
      options.strategy = Strategy::fl_hsdp;
      options.group_size = group_size;
      options.shard_size = shards;
      all.push_back(options);
    }
  }
  return all;
}

TEST(Communicators, HaveTheRightMembers) {
  const int n = world().size(), me = world().rank();
  for (const ParallelOptions& options : grids(n)) {
    const ProcessGrid mine(options, n, me);
    SCOPED_TRACE(mine.describe());
    std::vector<int> everyone, group, replica, shard, federation;
    for (int r = 0; r < n; ++r) {
      const ProcessGrid other(options, n, r);
      const bool same_group = other.group() == mine.group();
      everyone.push_back(r);
      if (same_group) group.push_back(r);
      if (same_group && other.shard() == mine.shard()) replica.push_back(r);
      if (same_group && other.replica() == mine.replica()) shard.push_back(r);
      if (other.shard() == mine.shard() && other.replica() == mine.replica()) federation.push_back(r);
    }
    const Communicators comms(MPI_COMM_WORLD, mine);
    EXPECT_EQ(members(comms.world), everyone);
    EXPECT_EQ(members(comms.group), group);
    EXPECT_EQ(members(comms.replica), replica);
    EXPECT_EQ(members(comms.shard), shard);
    EXPECT_EQ(members(comms.federation), federation);
    EXPECT_EQ(comms.group.rank(), mine.rank_in_group());
    EXPECT_EQ(comms.replica.rank(), mine.replica());
    EXPECT_EQ(comms.shard.rank(), mine.shard());
    EXPECT_EQ(comms.federation.rank(), mine.group());
  }
}

/// Groups of unequal shapes for this many ranks, in two orders.
std::vector<ProcessGrid> unequal_grids(int n, int me) {
  std::vector<ProcessGrid> all;
  if (n < 3) return all;
  std::vector<int> turned{0};
  for (int r = n - 1; r > 0; --r) turned.push_back(r);
  for (const std::vector<int>& order : {std::vector<int>(), turned}) {
    all.push_back(ProcessGrid({{1, n - 1}, {1, 1}}, me, order));
    all.push_back(ProcessGrid({{n - 1, 1}, {1, 1}}, me, order));
    all.push_back(ProcessGrid({{1, 1}, {1, n - 2}, {1, 1}}, me, order));
  }
  return all;
}

TEST(Communicators, OfUnequalGroups) {
  const int n = world().size(), me = world().rank();
  for (const ProcessGrid& grid : unequal_grids(n, me)) {
    SCOPED_TRACE(grid.describe());
    const Communicators comms(MPI_COMM_WORLD, grid);
    std::vector<int> group, first_ranks;
    for (int r = 0; r < grid.shape().ranks(); ++r) group.push_back(grid.world_rank(grid.group(), r));
    for (int g = 0; g < grid.number_of_groups(); ++g) first_ranks.push_back(grid.first_rank(g));
    EXPECT_EQ(members(comms.group), group);
    EXPECT_EQ(members(comms.federation), grid.rank_in_group() == 0 ? first_ranks : std::vector<int>{me});
    EXPECT_EQ(comms.shard.size(), grid.shape().shards);
    EXPECT_EQ(comms.replica.size(), grid.shape().replicas);
    const double g = grid.group();
    std::vector<double> expected;
    for (int other = 0; other < grid.number_of_groups(); ++other) {
      expected.push_back(other);
      expected.push_back(10 * other + 1);
    }
    EXPECT_EQ(comms.gather_over_groups({g, 10 * g + 1}), expected);
  }
}

TEST(Communicator, OfNamedRanks) {
  const int n = world().size(), me = world().rank();
  // Every pair, and all in turned order; ranks that are not in a set do not take part.
  for (int a = 0; a < n; ++a)
    for (int b = a + 1; b < n; ++b) {
      if (me != a && me != b) continue;
      const Communicator pair(world(), {b, a});
      EXPECT_EQ(pair.size(), 2);
      EXPECT_EQ(pair.rank(), me == b ? 0 : 1);
      EXPECT_EQ(pair.sum(static_cast<double>(me)), a + b);
    }
  std::vector<int> turned;
  for (int r = n - 1; r >= 0; --r) turned.push_back(r);
  EXPECT_EQ(members(Communicator(world(), turned)), turned);
}

// A hundred of all kinds alive at once, used by each rank in the order of its own schedule (a communicator that two
// ranks share is used by both, though in between each uses others), and all freed.
TEST(Communicators, AHundredAreUsedInAnyOrderAndFreed) {
  const int n = world().size(), me = world().rank();
  const int most = n <= 2 ? 100 : n <= 4 ? 100 : 40;  // making one takes a spinning wait, long where cores are shared
  std::vector<std::unique_ptr<Collectives>> collectives;
  std::vector<Communicator> comms;
  for (int i = 0; static_cast<int>(comms.size()) < most / 2; ++i) {
    if (i % 3 == 0)
      comms.emplace_back(MPI_COMM_WORLD);
    else if (i % 3 == 1)
      comms.emplace_back(world(), (me + i) % 2, -me);
    else {
      std::vector<int> all;
      for (int r = 0; r < n; ++r) all.push_back((r + i) % n);
      comms.emplace_back(world(), all);
    }
    collectives.push_back(make_mpi_collectives(comms.back()));
  }
  const std::size_t count = comms.size();
  // Starts in one order on all ranks, as the rule is within a communicator; waits in another on each rank.
  const Exec exec;
  std::vector<View1<double>> values;
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(to_device("atoll::test", std::vector<double>(100, static_cast<double>(me + 1))));
  }
  std::vector<std::size_t> start(count), wait(count);
  for (std::size_t i = 0; i < count; ++i) start[i] = wait[i] = i;
  std::mt19937 random(static_cast<unsigned>(me));
  std::shuffle(start.begin(), start.end(), random);
  std::shuffle(wait.begin(), wait.end(), random);
  tickets.resize(count);
  for (const std::size_t i : start) tickets[i] = collectives[i]->all_reduce(values[i].data(), 100, Element::f64, exec);
  // Each collectives object makes progress for itself alone, so all are tested in turn.
  wait_until([&] {
    bool all = true;
    for (const std::size_t i : wait) all = tickets[i].test() && all;
    return all;
  });
  for (std::size_t i = 0; i < count; ++i) {
    const double expected = comms[i].sum(static_cast<double>(me + 1));
    EXPECT_EQ(to_host(values[i]), std::vector<double>(100, expected)) << i;
  }
}

TEST(Communicators, AreFreed) {
  // MPI libraries split communicators by spinning, which takes long where ranks share cores.
  const int n = world().size();
  const ProcessGrid grid(grids(n).back(), n, world().rank());
  for (int i = 0; i < (n <= 2 ? 100 : 10); ++i) {
    const Communicators comms(MPI_COMM_WORLD, grid);
    ASSERT_EQ(comms.world.size(), n);
  }
  // MPICH has some 2000 communicators at a time, so ones that leak would end this loop.
  const ProcessGrid alone(grids(1).back(), 1, 0);
  for (int i = 0; i < 1000; ++i) const Communicators comms(MPI_COMM_SELF, alone);
}

TEST(Waiting, KnowsTheNode) {
  const NodePlace place = find_node_place(MPI_COMM_WORLD);
  EXPECT_GE(place.ranks_on_node, 1);
  EXPECT_LE(place.ranks_on_node, world().size());
  EXPECT_TRUE(place.local_rank >= 0 && place.local_rank < place.ranks_on_node);
  EXPECT_GE(place.cores_of_rank, 1);
  EXPECT_LE(place.cores_of_rank, place.cores_on_node);
  const NodePlace alone = find_node_place(MPI_COMM_SELF);
  EXPECT_EQ(alone.ranks_on_node, 1);
  EXPECT_EQ(alone.cores_of_rank, alone.cores_on_node);
}

TEST(Waiting, SleepsWhereThreadsAreMoreThanCores) {
  const NodePlace place = find_node_place(MPI_COMM_WORLD);
  const WaitMode before = wait_mode();
  decide_wait_mode(MPI_COMM_WORLD, place, place.cores_on_node + 1);
  EXPECT_EQ(wait_mode(), WaitMode::sleep);
  world().barrier();
  if (place.cores_on_node >= place.ranks_on_node) {
    decide_wait_mode(MPI_COMM_WORLD, place, 1);
    EXPECT_EQ(wait_mode(), WaitMode::spin);
    world().barrier();
  }
  set_wait_mode(before);
}

}  // namespace
}  // namespace atl
