/// All ranks stop after one step, whoever wishes it, whenever, without a hang. SPDX-License-Identifier: Apache-2.0
///
/// The steps of a run are played: a group's exchange of the loss, a pause, and a barrier of the world where groups
/// meet.
#include "parallel/stop_agreement.hpp"

#include "tests/parallel/grid_cache.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace atl {
namespace {

/// Messages of leaders, seen at MPI's own interface: started with MPI_Isend and MPI_Irecv by this rank.
struct Counts {
  int sent = 0, received = 0, agreements = 0, broadcasts = 0;
};
Counts counts;

}  // namespace
}  // namespace atl

extern "C" {
int MPI_Isend(const void* from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  ++atl::counts.sent;
  return PMPI_Isend(from, n, type, to, tag, comm, request);
}
int MPI_Irecv(void* into, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  ++atl::counts.received;
  return PMPI_Irecv(into, n, type, from, tag, comm, request);
}
int MPI_Iallgather(const void* from, int n, MPI_Datatype type, void* into, int m, MPI_Datatype other, MPI_Comm comm,
                   MPI_Request* request) {
  ++atl::counts.agreements;
  return PMPI_Iallgather(from, n, type, into, m, other, comm, request);
}
int MPI_Ibcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  ++atl::counts.broadcasts;
  return PMPI_Ibcast(data, n, type, root, comm, request);
}
}

namespace atl {
namespace {

struct Played {
  std::int64_t steps = 7;
  std::int64_t every = 3;  ///< steps of a segment
  /// Reason of this rank's wish at the end of a step; it lasts until the run's end. 0: none.
  std::function<int(std::int64_t step)> reason = [](std::int64_t) { return 0; };
  std::function<std::chrono::microseconds(std::int64_t step)> pause = [](std::int64_t) {
    return std::chrono::microseconds(0);
  };
};

struct Outcome {
  std::int64_t stop = 0;  ///< 0: trained to the end
  StopWish why;
  Counts messages;         ///< of the agreement alone
  bool left_over = false;  ///< a message that nobody received
};

Outcome play(const GridWithCommunicators& place, const Played& run) {
  const Communicators& own = place.communicators;
  own.world.barrier();
  Outcome outcome;
  StopAgreement agreement(place.grid, own);
  counts = {};
  int exchanges = 0;
  StopWish mine;
  for (std::int64_t step = 1; step <= run.steps && outcome.stop == 0; ++step) {
    std::this_thread::sleep_for(run.pause(step));
    if (!mine && run.reason(step) != 0) mine = {run.reason(step), own.world.rank()};
    const StopWish told = agreement.with_told(mine);
    const auto all = own.group.all_gather({static_cast<double>(told.reason), static_cast<double>(told.rank)});
    ++exchanges;
    StopWish wish;
    for (std::size_t i = 0; i < all.size() && !wish; i += 2)
      wish = {static_cast<int>(all[i]), static_cast<int>(all[i + 1])};
    const bool meet = step % run.every == 0 || step == run.steps;
    agreement.end_step(step, wish, meet);
    if (meet) own.world.barrier();
    if (agreement.stops_after(step)) outcome.stop = step;
  }
  outcome.why = agreement.reason();
  outcome.messages = counts;
  outcome.messages.agreements -= exchanges;
  own.world.barrier();
  if (agreement.leaders()) {
    int there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, agreement.leaders()->get(), &there, MPI_STATUS_IGNORE);
    outcome.left_over = there != 0;
  }
  return outcome;
}

std::vector<GridWithCommunicators*> grids() {
  const int n = world_ranks();
  std::vector<GridWithCommunicators*> all;
  const auto add = [&](std::vector<GroupShape> groups, std::vector<int> order = {}) {
    all.push_back(&GridCache::get(MPI_COMM_WORLD, grid_of(std::move(groups), std::move(order))));
  };
  for (int groups = 1; groups <= n; ++groups)
    if (n % groups == 0) add(std::vector<GroupShape>(static_cast<std::size_t>(groups), GroupShape{1, n / groups}));
  if (n == 4) add({{2, 1}, {2, 1}}, {0, 2, 1, 3});  // groups of ranks that are no neighbours
  if (n > 2) add({{1, n - 1}, {1, 1}});
  if (n > 2) add({{1, 1}, {1, n - 1}});
  if (n == 4) add({{1, 1}, {2, 1}, {1, 1}});
  if (n == 8) add({{2, 2}, {1, 1}, {1, 3}});
  return all;
}

/// What holds whoever wishes. `first`: the step at which the first wish is there; steps + 1: never.
void expect_agreed(const GridWithCommunicators& place, const Played& run, const Outcome& outcome, std::int64_t first) {
  const Communicator& world = place.communicators.world;
  for (const double other : world.all_gather({static_cast<double>(outcome.stop)})) EXPECT_EQ(other, outcome.stop);
  for (const double other : world.all_gather({static_cast<double>(outcome.why.reason)}))
    EXPECT_EQ(other, outcome.why.reason);
  for (const double other : world.all_gather({static_cast<double>(outcome.why.rank)}))
    EXPECT_EQ(other, outcome.why.rank);
  EXPECT_FALSE(outcome.left_over);
  const Counts& found = outcome.messages;
  EXPECT_EQ(world.sum(static_cast<double>(found.sent)), world.sum(static_cast<double>(found.received)));
  const std::int64_t last = outcome.stop == 0 ? run.steps : outcome.stop;
  const std::int64_t segments = (last + run.every - 1) / run.every;
  const int groups = place.grid.number_of_groups();
  const bool leader = groups > 1 && place.grid.rank_in_group() == 0;
  EXPECT_EQ(found.agreements, leader ? segments : 0);
  EXPECT_EQ(found.broadcasts, groups > 1 ? segments : 0);
  if (first > run.steps) {
    EXPECT_EQ(outcome.stop, 0);
    EXPECT_FALSE(outcome.why);
    EXPECT_EQ(found.sent, 0);
    return;
  }
  EXPECT_GE(outcome.stop, first);
  EXPECT_LE(outcome.stop, std::min(run.steps, (first + run.every - 1) / run.every * run.every));
  if (groups == 1) {
    EXPECT_EQ(outcome.stop, first);
  }
  EXPECT_LE(found.sent, leader ? groups - 1 : 0);
}

std::chrono::microseconds delay(int pattern, int group, std::int64_t step) {
  switch (pattern) {
    case 0:
      return std::chrono::microseconds(0);
    case 1:  // the first group is slow
      return std::chrono::microseconds(group == 0 ? 2000 : 100);
    case 2:  // the last ones are slower
      return std::chrono::microseconds(100 + 1200 * group);
    default:  // by turns
      return std::chrono::microseconds((group + static_cast<int>(step)) % 2 == 0 ? 2500 : 50);
  }
}

TEST(StopAgreementTest, WithoutAWishNobodyStops) {
  for (const auto* place : grids())
    for (int pattern = 0; pattern < 4; ++pattern) {
      SCOPED_TRACE(place->grid.describe());
      Played run;
      run.pause = [&](std::int64_t step) { return delay(pattern, place->grid.group(), step); };
      const Outcome outcome = play(*place, run);
      expect_agreed(*place, run, outcome, run.steps + 1);
    }
}

// Every group, at every step, its first rank or its last one.
TEST(StopAgreementTest, OneWishStopsAll) {
  for (const auto* place : grids())
    for (const int half : {0, 2})
      for (int group = 0; group < place->grid.number_of_groups(); ++group)
        for (std::int64_t when = 1; when <= 7; ++when) {
          const int pattern = half + static_cast<int>(when % 2);  // two of the four, to save time
          const int ranks = place->grid.groups()[static_cast<std::size_t>(group)].ranks();
          const int who = place->grid.world_rank(group, when % 2 == 0 ? 0 : ranks - 1);
          SCOPED_TRACE(place->grid.describe() + ": rank " + std::to_string(who) + " wishes at step " +
                       std::to_string(when) + ", delays " + std::to_string(pattern));
          Played run;
          run.pause = [&](std::int64_t step) { return delay(pattern, place->grid.group(), step); };
          run.reason = [&](std::int64_t step) { return place->grid.rank() == who && step >= when ? 15 : 0; };
          const Outcome outcome = play(*place, run);
          expect_agreed(*place, run, outcome, when);
          EXPECT_EQ(outcome.why, (StopWish{15, who}));
          // Only the wishing group's leader tells, and not where all meet anyway.
          const bool tells = place->grid.number_of_groups() > 1 &&
                             place->grid.rank() == place->grid.first_rank(group) && when % 3 != 0 && when != 7;
          EXPECT_EQ(outcome.messages.sent, tells ? place->grid.number_of_groups() - 1 : 0);
        }
}

// Two ranks of any groups, with 0 to 3 steps between their wishes; and all ranks at once.
TEST(StopAgreementTest, ManyWishes) {
  const int n = world_ranks();
  for (const auto* place : grids())
    for (const int half : {0, 2})
      for (std::int64_t when = 1; when <= 7; ++when)
        for (std::int64_t later = 0; later < 4; ++later) {
          const int pattern = half + static_cast<int>((when + later) % 2);
          const int one = static_cast<int>(when) % n, other = (one + 1 + static_cast<int>(later)) % n;
          SCOPED_TRACE(place->grid.describe() + ": ranks " + std::to_string(one) + " and " + std::to_string(other) +
                       " wish at steps " + std::to_string(when) + " and " + std::to_string(when + later) + ", delays " +
                       std::to_string(pattern));
          Played run;
          run.pause = [&](std::int64_t step) { return delay(pattern, place->grid.group(), step); };
          run.reason = [&](std::int64_t step) {
            if (later == 3) return step >= when ? 10 + place->grid.rank() : 0;
            if (place->grid.rank() == one) return step >= when ? 10 + one : 0;
            return place->grid.rank() == other && step >= when + later ? 10 + other : 0;
          };
          const Outcome outcome = play(*place, run);
          expect_agreed(*place, run, outcome, when);
          EXPECT_EQ(outcome.why.reason, 10 + outcome.why.rank);
        }
}

// All groups but one run ahead to the end of a segment, and wait there, while the last one gets its wish late.
TEST(StopAgreementTest, GroupsInsideTheMeetingHoldNobodyUp) {
  for (const auto* place : grids()) {
    const int last = place->grid.number_of_groups() - 1;
    SCOPED_TRACE(place->grid.describe());
    Played run;
    run.pause = [&](std::int64_t) { return std::chrono::microseconds(place->grid.group() == last ? 20000 : 0); };
    run.reason = [&](std::int64_t step) { return place->grid.group() == last && step >= 5 ? 10 : 0; };
    const Outcome outcome = play(*place, run);
    expect_agreed(*place, run, outcome, 5);
    if (last > 0) {
      EXPECT_EQ(outcome.stop, 6);
    }
  }
}

// Long before the end of a long segment.
TEST(StopAgreementTest, OthersHearOfItInsideASegment) {
  for (const auto* place : grids()) {
    SCOPED_TRACE(place->grid.describe());
    Played run;
    run.steps = run.every = 1000;
    run.pause = [](std::int64_t) { return std::chrono::microseconds(2000); };
    run.reason = [&](std::int64_t step) { return place->grid.rank() == 0 && step >= 2 ? 10 : 0; };
    const Outcome outcome = play(*place, run);
    expect_agreed(*place, run, outcome, 2);
    EXPECT_LT(outcome.stop, 500);
  }
}

}  // namespace
}  // namespace atl
