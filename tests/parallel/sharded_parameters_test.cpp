/// Gathering and reducing of hand-made units, with numbers that are exact. SPDX-License-Identifier: Apache-2.0
#include "parallel/sharded_parameters.hpp"

#include "tests/parallel/grid_cache.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

/// A unit of 3 elements, one of 2 tensors that no shard respects, and one that shares the first one's buffer.
std::vector<UnitSpec> hand_made() {
  return {{"small", {{"three", {3}, false}}, 0},
          {"large", {{"matrix", {5, 7}}, {"vector", {4}, false}}, 1},
          {"other", {{"square", {4, 4}}}, 0}};
}

/// Element `i` of unit `u`: small integers, so that sums are exact.
template <class R>
R value(std::size_t u, std::size_t i) {
  return static_cast<R>(100 * u + i + 1);
}

template <class T>
struct Fixture {
  using R = Accumulator<T>;
  explicit Fixture(const ParallelOptions& options, AfterForward after = AfterForward::reshard, int prefetch = 1,
                   Wire wire = Wire::exact)
      : place(GridCache::get(MPI_COMM_WORLD, options)),
        parameters(hand_made(), *place.shard, *place.replica, after, prefetch, wire) {}

  void set_masters() {
    for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
      auto& unit = parameters.unit(u);
      std::vector<R> mine(unit.layout.shard_size(), R(0));
      for (std::size_t i = unit.owned.begin; i < unit.owned.end; ++i) mine[i - unit.owned.begin] = value<R>(u, i);
      copy_to_device(mine, unit.master);
    }
  }

  /// Writes factor * (rank in the group + 1) * value into the full gradient of a unit, and reduces it.
  void reduce(std::size_t u, R factor) {
    const View1<R> full = parameters.gradient(exec, u);
    std::vector<R> values = to_host(full);
    for (std::size_t i = 0; i < parameters.unit(u).layout.size(); ++i)
      values[i] = factor * static_cast<R>(place.grid.rank_in_group() + 1) * value<R>(u, i);
    copy_to_device(values, full);
    parameters.reduce(exec, u);
  }

  /// This rank's shard of a unit's gradient is `factor` times its values, and zero in the padding.
  void expect_gradient(std::size_t u, R factor) const {
    const auto& unit = parameters.unit(u);
    const std::vector<R> mine = to_host(unit.gradient);
    ASSERT_EQ(mine.size(), unit.layout.shard_size());
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_EQ(mine[i], i < unit.owned.size() ? factor * value<R>(u, unit.owned.begin + i) : R(0)) << u << ", " << i;
  }

  template <class View>
  void expect_full(std::size_t u, const View& full) const {
    const auto values = to_host(full);
    ASSERT_EQ(values.size(), parameters.unit(u).layout.padded_size());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(R(values[i]), i < parameters.unit(u).layout.size() ? value<R>(u, i) : R(0)) << u << ", " << i;
  }

  Exec exec;
  GridWithCommunicators& place;
  ShardedParameters<T> parameters;
};

/// 1 + 2 + ... + n, what the ranks' factors add up to.
int sum_to(int n) { return n * (n + 1) / 2; }

template <class T>
class ShardedParametersTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, bf16>;  // values up to 256 are exact in bf16
TYPED_TEST_SUITE(ShardedParametersTest, Types);

TYPED_TEST(ShardedParametersTest, GathersEveryUnitInOrder) {
  for (const Strategy strategy : {Strategy::fsdp, Strategy::ddp}) {
    Fixture<TypeParam> f(grid_of(strategy));
    f.set_masters();
    EXPECT_EQ(f.parameters.parameter_count(), 3 + 39 + 16);
    for (std::size_t u = 0; u < 3; ++u) {
      f.expect_full(u, f.parameters.gather(f.exec, u));
      f.expect_full(u, f.parameters.gather(f.exec, u));  // still there
      f.parameters.release(u);
      f.expect_full(u, f.parameters.gather_master(f.exec, u));
    }
  }
}

TYPED_TEST(ShardedParametersTest, GathersWhatChanged) {
  Fixture<TypeParam> f(grid_of(Strategy::fsdp));
  f.parameters.gather(f.exec, 1);
  f.set_masters();
  f.parameters.release_after_forward(1);
  f.expect_full(1, f.parameters.gather(f.exec, 1));
}

// The optimizer writes the weights beside the masters; who writes the masters otherwise has them rounded again.
TEST(ShardedParametersBf16, GathersTheWeightsThatWereWritten) {
  for (const Strategy strategy : {Strategy::fsdp, Strategy::ddp}) {
    Fixture<bf16> f(grid_of(strategy));
    f.set_masters();
    f.expect_full(1, f.parameters.gather(f.exec, 1));
    f.parameters.release(1);
    auto& unit = f.parameters.unit(1);
    fill(f.exec, unit.weights, bf16(7.0f));
    unit.weights_current = true;
    for (const bf16 weight : to_host(f.parameters.gather(f.exec, 1))) EXPECT_EQ(static_cast<float>(weight), 7.0f);
    f.parameters.release(1);
    f.parameters.unit(1);
    f.expect_full(1, f.parameters.gather(f.exec, 1));
    f.parameters.release(1);
    // Rounded to nearest, and the masters keep what was lost.
    const float more_than_half = 1.0f + 0x1p-8f + 0x1p-20f;
    fill(f.exec, f.parameters.unit(1).master, more_than_half);
    for (const bf16 weight : to_host(f.parameters.gather(f.exec, 1)))
      EXPECT_EQ(static_cast<float>(weight), 1.0f + 0x1p-7f);
    EXPECT_EQ(to_host(f.parameters.gather_master(f.exec, 1))[0], more_than_half);
    f.parameters.release(1);
  }
}

// Every rank's term is rounded to bf16, the sum is not: 1 + 2^-9 is 1 in bf16, 3 times 1 + 2^-7 is no bf16.
TEST(ShardedParametersBf16, GradientsThatTravelInBf16AreSummedInFp32) {
  if (world_ranks() == 1) return;  // nothing travels
  Fixture<float> f(grid_of(Strategy::fsdp), AfterForward::reshard, 1, Wire::bf16);
  const auto reduce = [&](float gradient) {
    const View1<float> full = f.parameters.gradient(f.exec, 1);
    fill(f.exec, part(full, 0, 39), gradient);
    f.parameters.reduce(f.exec, 1);
  };
  const std::uint64_t before = f.place.shard->stats().bytes_sent;
  f.parameters.begin_gradients(2);
  reduce(1.0f + 0x1p-7f + 0x1p-12f);
  reduce(1.0f + 0x1p-9f);
  f.parameters.finish_gradients(f.exec);
  const auto ranks = static_cast<float>(world_ranks());
  const auto& unit = f.parameters.unit(1);
  const std::vector<float> mine = to_host(unit.gradient);
  for (std::size_t i = 0; i < unit.owned.size(); ++i) EXPECT_EQ(mine[i], ranks * (2.0f + 0x1p-7f));
  EXPECT_EQ(f.place.shard->stats().bytes_sent - before,
            2 * 2 * unit.layout.shard_size() * static_cast<std::size_t>(world_ranks() - 1));
}

TYPED_TEST(ShardedParametersTest, OneBufferHoldsOneUnit) {
  Fixture<TypeParam> f(grid_of(Strategy::fsdp));
  f.parameters.gather(f.exec, 0);
  if (world_ranks() > 1) {
    EXPECT_THROW(f.parameters.gather(f.exec, 2), Error);  // unit 0 was not released
  }
  f.parameters.release(0);
  f.set_masters();
  f.expect_full(2, f.parameters.gather(f.exec, 2));
}

TYPED_TEST(ShardedParametersTest, KeptUnitsStayUntilTheyAreReleased) {
  Fixture<TypeParam> f(grid_of(Strategy::fsdp), AfterForward::keep);
  f.set_masters();
  std::vector<View1<const TypeParam>> kept;
  for (std::size_t u = 0; u < 3; ++u) {
    kept.push_back(f.parameters.gather(f.exec, u));
    f.parameters.release_after_forward(u);
  }
  const std::uint64_t sent = f.place.shard->stats().bytes_sent;
  for (std::size_t u = 0; u < 3; ++u) {
    f.expect_full(u, kept[u]);
    EXPECT_EQ(f.parameters.gather(f.exec, u).data(), kept[u].data());
  }
  EXPECT_EQ(f.place.shard->stats().bytes_sent, sent) << "a unit that was kept was gathered again";
}

TYPED_TEST(ShardedParametersTest, GathersWhatIsExpectedAhead) {
  if (world_ranks() == 1) return;  // computes on its master weights
  for (const std::size_t prefetch : {0, 1, 2}) {
    Fixture<TypeParam> f(grid_of(Strategy::fsdp), AfterForward::reshard, static_cast<int>(prefetch));
    f.set_masters();
    const std::vector<std::size_t> order{0, 1, 2, 1, 0};
    const auto bytes_of = [&](std::size_t u) {
      return f.parameters.unit(u).layout.shard_size() * sizeof(TypeParam) * static_cast<std::size_t>(world_ranks() - 1);
    };
    const std::uint64_t before = f.place.shard->stats().bytes_sent;
    std::uint64_t sent = 0;
    std::size_t started = 0;
    f.parameters.expect_gathers(order);
    for (std::size_t i = 0; i < order.size(); ++i) {
      f.expect_full(order[i], f.parameters.gather(f.exec, order[i]));
      // With 2 ahead, unit 1 of the middle is there twice in a row of three: it is not gathered again before its
      // release.
      if (prefetch < 2) {
        for (; started < std::min(order.size(), i + prefetch + 1); ++started) sent += bytes_of(order[started]);
        EXPECT_EQ(f.place.shard->stats().bytes_sent - before, sent) << prefetch << " ahead, gather " << i;
      }
      f.parameters.release(order[i]);
    }
    for (const std::size_t u : order) sent += prefetch < 2 ? 0 : bytes_of(u);
    EXPECT_EQ(f.place.shard->stats().bytes_sent - before, sent) << prefetch << " ahead";
    f.parameters.expect_gathers({1, 2});
    EXPECT_THROW(f.parameters.gather(f.exec, 2), Error);
  }
}

TEST(BuffersNeeded, AreThoseOfNeighbours) {
  const std::vector<UnitSpec> units{{"embedding", {}, 0}, {"a", {}, 1}, {"b", {}, 1}, {"c", {}, 1}, {"head", {}, 0}};
  for (const int window : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(buffers_needed(units, 0, window), window == 5 ? 2u : 1u);
    EXPECT_EQ(buffers_needed(units, 1, window), static_cast<std::size_t>(std::min(window, 3)));
  }
}

TYPED_TEST(ShardedParametersTest, SumsGradientsAndAddsReductions) {
  Fixture<TypeParam> f(grid_of(Strategy::fsdp));
  const int ranks = sum_to(world_ranks());
  f.parameters.begin_gradients(2);
  for (std::size_t u = 0; u < 3; ++u) f.reduce(u, 1);
  f.parameters.finish_gradients(f.exec);
  for (std::size_t u = 0; u < 3; ++u) f.expect_gradient(u, TypeParam(ranks));
  for (std::size_t u = 0; u < 3; ++u) f.reduce(u, 2);
  f.parameters.finish_gradients(f.exec);
  for (std::size_t u = 0; u < 3; ++u) f.expect_gradient(u, TypeParam(3 * ranks));
  f.parameters.begin_gradients(1);
  for (std::size_t u = 0; u < 3; ++u) f.reduce(u, 5);
  f.parameters.finish_gradients(f.exec);
  for (std::size_t u = 0; u < 3; ++u) f.expect_gradient(u, TypeParam(5 * ranks));
}

TYPED_TEST(ShardedParametersTest, SumsGradientsOverReplicas) {
  std::vector<ParallelOptions> grids{grid_of(Strategy::ddp)};
  for (const int s : {2, 4})
    if (s < world_ranks() && world_ranks() % s == 0) grids.push_back(grid_of(Strategy::hsdp, s));
  for (const auto& grid : grids)
    for (const int prefetch : {0, 1}) {
      Fixture<TypeParam> f(grid, AfterForward::reshard, prefetch);
      f.parameters.begin_gradients(2);
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
        for (std::size_t u = 0; u < 3; ++u) f.reduce(u, 1);
      f.parameters.finish_gradients(f.exec);
      for (std::size_t u = 0; u < 3; ++u) f.expect_gradient(u, TypeParam(2 * sum_to(world_ranks())));
    }
}

// Units 0 and 2 share a gradient buffer: what the larger one leaves there must not end up in the other one's padding.
TYPED_TEST(ShardedParametersTest, GradientPaddingIsZero) {
  Fixture<TypeParam> f(grid_of(Strategy::fsdp));
  f.reduce(2, 1);
  f.reduce(0, 1);
  f.parameters.finish_gradients(f.exec);
  f.expect_gradient(0, TypeParam(sum_to(world_ranks())));
  f.expect_gradient(2, TypeParam(sum_to(world_ranks())));
}

// The sum of a full gradient under way is finished before the next gradient overwrites it.
TYPED_TEST(ShardedParametersTest, FullGradientsStayUntilTheyAreSummed) {
  for (const int prefetch : {0, 1, 2}) {
    Fixture<TypeParam> f(grid_of(Strategy::fsdp), AfterForward::reshard, prefetch);
    f.parameters.begin_gradients(3);
    for (const std::size_t u : {0, 2, 0, 1, 1, 2, 2, 0, 1}) f.reduce(u, 1);
    f.parameters.finish_gradients(f.exec);
    for (std::size_t u = 0; u < 3; ++u) f.expect_gradient(u, TypeParam(3 * sum_to(world_ranks())));
  }
}

TYPED_TEST(ShardedParametersTest, KnowsWhichPartOfATensorIsItsOwn) {
  Fixture<TypeParam> f(grid_of(Strategy::fsdp));
  f.set_masters();
  f.parameters.allocate_moments(2);
  for (std::size_t u = 0; u < 3; ++u) {
    auto& unit = f.parameters.unit(u);
    EXPECT_EQ(unit.moment1.extent(0), unit.layout.shard_size());
    EXPECT_EQ(unit.moment2.extent(0), unit.layout.shard_size());
    std::size_t covered = 0;
    for (std::size_t i = 0; i < unit.layout.unit().tensors.size(); ++i) {
      const Range mine = unit.owned_of(i);
      covered += mine.size();
      if (mine.empty()) continue;
      using R = Accumulator<TypeParam>;
      const std::vector<R> values = to_host(unit.local(unit.master, mine));
      for (std::size_t j = 0; j < mine.size(); ++j) EXPECT_EQ(values[j], value<R>(u, mine.begin + j));
    }
    EXPECT_EQ(covered, unit.owned.size());
    EXPECT_EQ(f.place.communicators.shard.sum(static_cast<std::int64_t>(covered)),
              static_cast<std::int64_t>(unit.layout.size()));
  }
}

}  // namespace
}  // namespace atl
