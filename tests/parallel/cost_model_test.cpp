/// Tests of parallel/cost_model.hpp: values computed by hand, limits, and what must not get worse.
/// SPDX-License-Identifier: Apache-2.0
#include "parallel/cost_model.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

Machine machine() {
  Machine m;
  m.ranks_per_node = 4;
  m.intra = {2e-6, 100e9};
  m.inter = {5e-6, 10e9};
  m.cards = 2;
  m.flops = 1;
  return m;
}

void expect_placement(std::int64_t ranks, std::int64_t stride, std::int64_t per_node, std::int64_t sharing) {
  const Placement comm = place(machine(), ranks, stride);
  EXPECT_EQ(comm.per_node, per_node) << ranks << " ranks " << stride << " apart";
  EXPECT_EQ(comm.sharing, sharing) << ranks << " ranks " << stride << " apart";
  EXPECT_EQ(comm.spans_nodes(), ranks > per_node);
}

TEST(CostModel, PlacesCommunicatorsOnNodes) {
  expect_placement(1, 1, 1, 4);
  expect_placement(2, 1, 2, 2);
  expect_placement(4, 1, 4, 1);
  expect_placement(8, 1, 4, 1);
  expect_placement(3, 1, 1, 4);   // some lie across two nodes
  expect_placement(6, 1, 2, 2);   // 4 + 2, or 2 + 4
  expect_placement(2, 2, 2, 2);   // ranks 0 and 2
  expect_placement(8, 2, 2, 2);   // two of each node
  expect_placement(16, 4, 1, 4);  // a rank of each node
  expect_placement(3, 32, 1, 4);
}

TEST(CostModel, CollectivesTakeWhatAHandComputes) {
  const Machine m = machine();
  const double bytes = 8e9;
  const Placement node = place(m, 4, 1), two_nodes = place(m, 8, 1), across = place(m, 16, 4), alone = place(m, 1, 1);
  for (const Transport transport : {Transport::mpi, Transport::ring}) {
    EXPECT_DOUBLE_EQ(all_gather_seconds(m, transport, node, bytes), 3 * 2e-6 + 0.06);
    EXPECT_DOUBLE_EQ(reduce_scatter_seconds(m, transport, node, bytes), 3 * 2e-6 + 0.06);
    EXPECT_DOUBLE_EQ(all_reduce_seconds(m, transport, node, bytes), 2 * (3 * 2e-6 + 0.06));
    EXPECT_EQ(all_gather_seconds(m, transport, alone, bytes), 0);
    EXPECT_EQ(reduce_scatter_seconds(m, transport, alone, bytes), 0);
    EXPECT_EQ(all_reduce_seconds(m, transport, alone, bytes), 0);
    // Four communicators on two cards: half a card each, 5e9 bytes/s.
    EXPECT_DOUBLE_EQ(all_gather_seconds(m, transport, across, bytes), 15 * 5e-6 + 1.5);
    EXPECT_DOUBLE_EQ(reduce_scatter_seconds(m, transport, across, bytes), 15 * 5e-6 + 1.5);
  }
  // One ring leaves a node by one card; two rings by both.
  EXPECT_DOUBLE_EQ(all_gather_seconds(m, Transport::mpi, two_nodes, bytes), 7 * 5e-6 + 0.7);
  EXPECT_DOUBLE_EQ(all_gather_seconds(m, Transport::ring, two_nodes, bytes), 7 * 5e-6 + 0.35);
  // Pairwise: each of 4 ranks sends 4 of 8 parts to the other node, 16e9 bytes over two cards.
  EXPECT_DOUBLE_EQ(reduce_scatter_seconds(m, Transport::mpi, two_nodes, bytes), 7 * 5e-6 + 0.8);
  EXPECT_DOUBLE_EQ(reduce_scatter_seconds(m, Transport::ring, two_nodes, bytes), 7 * 5e-6 + 0.35);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(m, Transport::mpi, two_nodes, bytes), 2 * (7 * 5e-6 + 0.8));
}

/// Units of 10 and 21 elements; forward of both, backward of the second and of the first, which is not gathered again.
Workload workload() {
  Workload work;
  work.units = {10, 21};
  work.stages = {{10, true, false, 1}, {21, true, false, 2}, {21, true, true, 4}, {10, false, true, 2}};
  work.micro_batches = 3;
  work.tokens = 100;
  work.every = 5;
  work.gathered_bytes = 2;
  work.gradient_bytes = 4;
  work.averaged_bytes = 8;
  return work;
}

TEST(CostModel, CountsBytesWithPadding) {
  const Workload work = workload();
  // S = 4: shards of 3 and 6. R = 2: slices of 2 and 3. G = 3: of 1 and 1.
  const GridShape grid{3, 2, 4};
  const TrafficBytes step = step_bytes(work, grid), aggregation = aggregation_bytes(work, grid);
  EXPECT_EQ(step.shard, 3u * 3u * ((3 + 6 + 6) * 2u + (6 + 3) * 4u));
  EXPECT_EQ(step.replica, 2u * 1u * (2 + 3) * 4u);
  EXPECT_EQ(step.federation, 0u);
  EXPECT_EQ(aggregation.shard, 0u);
  EXPECT_EQ(aggregation.replica, 1u * (2 + 3) * 8u);
  EXPECT_EQ(aggregation.federation, 2u * 2u * (1 + 1) * 8u);
  EXPECT_EQ(aggregation_bytes(work, {1, 6, 4}), TrafficBytes());
  EXPECT_EQ(step_bytes(work, {1, 1, 1}), TrafficBytes());
  EXPECT_EQ(step_bytes(work, {3, 1, 4}).replica, 0u);
}

/// A network where a stage's gather and reduction take a second each, and every stage computes for `compute` seconds.
Cost seconds_of(int prefetch, double compute, std::int64_t micro_batches) {
  Machine m;
  m.ranks_per_node = 2;
  m.intra = {0, 1};
  m.inter = {0, 1};
  m.flops = 1;
  Workload work;
  work.units = {2};
  work.stages = {{2, true, false, compute},
                 {2, true, false, compute},
                 {2, true, false, compute},
                 {2, true, true, compute},
                 {2, true, true, compute}};
  work.micro_batches = micro_batches;
  work.tokens = 7;
  work.gathered_bytes = work.gradient_bytes = work.averaged_bytes = 1;
  work.prefetch = prefetch;
  return cost_of(m, Transport::mpi, work, {1, 1, 2});
}

TEST(CostModel, HidesCommunicationBehindComputation) {
  // Nothing overlaps: 5 x 2 s of computation, 5 gathers, 2 reductions.
  Cost cost = seconds_of(0, 2, 1);
  EXPECT_DOUBLE_EQ(cost.compute_seconds, 10);
  EXPECT_DOUBLE_EQ(cost.communication_seconds, 7);
  EXPECT_DOUBLE_EQ(cost.step_seconds, 17);
  EXPECT_DOUBLE_EQ(cost.exposed_seconds, 7);
  EXPECT_DOUBLE_EQ(cost.exposed_share, 7.0 / 17);
  EXPECT_DOUBLE_EQ(cost.tokens_per_second, 2 * 7 / 17.0);
  // Only the first gather and the last reduction show.
  cost = seconds_of(1, 2, 1);
  EXPECT_DOUBLE_EQ(cost.communication_seconds, 7);
  EXPECT_DOUBLE_EQ(cost.step_seconds, 12);
  EXPECT_DOUBLE_EQ(cost.exposed_seconds, 2);
  // Half a second of computation: the wire is busy all the time, 7 s.
  cost = seconds_of(1, 0.5, 1);
  EXPECT_DOUBLE_EQ(cost.step_seconds, 7);
  EXPECT_DOUBLE_EQ(cost.exposed_seconds, 4.5);
  // The first gather of the second micro-batch runs beside the last stage of the first, and its last reduction beside
  // the second.
  EXPECT_DOUBLE_EQ(seconds_of(1, 2, 2).step_seconds, 12 + 10);
  EXPECT_DOUBLE_EQ(seconds_of(0, 2, 3).step_seconds, 51);
  // Many micro-batches are extrapolated from a few, exactly where they are alike.
  EXPECT_DOUBLE_EQ(seconds_of(1, 2, 40).step_seconds, 40 * 10 + 2);
}

TEST(CostModel, StagesWaitForABufferOfTheirGradient) {
  Machine m;
  m.ranks_per_node = 2;
  m.intra = m.inter = {0, 1};
  m.flops = 1;
  Workload work;
  work.units = {2};
  for (int i = 0; i < 4; ++i) work.stages.push_back({2, false, true, 0.5});  // a reduction takes 1 s
  work.stages.push_back({2, false, false, 2});
  work.gathered_bytes = work.gradient_bytes = work.averaged_bytes = 1;
  work.tokens = 1;
  work.prefetch = 1;
  // Stages begin at 0, 0.5, 1.5 (first reduction done), 2.5 (second), and the last one ends at 3 + 2.
  EXPECT_DOUBLE_EQ(cost_of(m, Transport::mpi, work, {1, 1, 2}).step_seconds, 5);
}

TEST(CostModel, SumsOverReplicasFollowTheLastReductions) {
  Machine m;
  m.ranks_per_node = 2;
  m.intra = {0, 1};
  m.inter = {0, 1};
  m.cards = 2;
  m.flops = 1;
  Workload work;
  work.units = {2, 2};
  work.stages = {{2, true, true, 4}, {2, true, true, 4}};
  work.gathered_bytes = work.gradient_bytes = work.averaged_bytes = 1;
  work.tokens = 1;
  const GridShape grid{1, 2, 2};  // a replica a node; each sum takes 2 x 1 byte x 1/2 / (1 byte/s) = 1 s
  EXPECT_DOUBLE_EQ(cost_of(m, Transport::ring, work, grid).step_seconds, 8 + 2 + 2 + 2);
  work.prefetch = 1;
  // Gather 0-1, compute 1-5, reduce 5-6, sum 6-7 beside the second stage 5-9, then reduce 9-10, sum 10-11.
  EXPECT_DOUBLE_EQ(cost_of(m, Transport::ring, work, grid).step_seconds, 11);
  work.micro_batches = 2;  // summed once; nothing but the first gather and the last reduction and sum shows
  EXPECT_DOUBLE_EQ(cost_of(m, Transport::ring, work, grid).step_seconds, 16 + 3);
  EXPECT_DOUBLE_EQ(cost_of(m, Transport::ring, work, grid).communication_seconds, 2 * 4 + 2);
}

TEST(CostModel, OneRankSendsNothing) {
  const Cost cost = cost_of(machine(), Transport::mpi, workload(), {1, 1, 1});
  EXPECT_EQ(cost.step, TrafficBytes());
  EXPECT_EQ(cost.aggregation, TrafficBytes());
  EXPECT_EQ(cost.exposed_seconds, 0);
  EXPECT_EQ(cost.aggregation_seconds, 0);
  EXPECT_EQ(cost.exposed_share, 0);
  EXPECT_DOUBLE_EQ(cost.step_seconds, 3 * 9);
  EXPECT_DOUBLE_EQ(cost.tokens_per_second, 100 / 9.0);
}

TEST(CostModel, AddsUpdatesSmallValuesAndAggregations) {
  Machine m = machine();
  m.memory_bandwidth = 1000;
  Workload work = workload();
  work.update_bytes = 32;
  const GridShape grid{2, 2, 4};  // 16 ranks: a replica a node
  const Cost cost = cost_of(m, Transport::ring, work, grid);
  EXPECT_DOUBLE_EQ(cost.compute_seconds, 3 * 9 + (3 + 6) * 32 / 1000.0);
  const Placement shard = place(m, 4, 1), replica = place(m, 2, 4), federation = place(m, 2, 8);
  const auto gather = [&](double n) { return all_gather_seconds(m, Transport::ring, shard, n); };
  const double pass = gather(12 * 2) + 2 * gather(24 * 2) + gather(24 * 4) + gather(12 * 4);  // a reduction is alike
  const double replicas =
      all_reduce_seconds(m, Transport::ring, replica, 3 * 4) + all_reduce_seconds(m, Transport::ring, replica, 6 * 4);
  // The norm over 4 ranks of a node in 2 messages; loss and tokens over 8 ranks of two nodes in 3 each.
  const double small = 2 * 2e-6 + 2 * 3 * 5e-6;
  EXPECT_NEAR(cost.exposed_seconds, 3 * pass + replicas + small, 1e-13);  // 27 s were added and taken off again
  EXPECT_NEAR(cost.aggregation_seconds,
              all_reduce_seconds(m, Transport::ring, federation, 2 * 8) +
                  all_reduce_seconds(m, Transport::ring, federation, 3 * 8) +
                  all_gather_seconds(m, Transport::ring, replica, 3 * 8) +
                  all_gather_seconds(m, Transport::ring, replica, 6 * 8),
              1e-15);
  EXPECT_DOUBLE_EQ(cost.round_seconds, 5 * cost.step_seconds + cost.aggregation_seconds);
  EXPECT_DOUBLE_EQ(cost.tokens_per_second, 16 * 100 * 3 * 5 / cost.round_seconds);
}

TEST(CostModel, NothingGetsWorseByABetterMachine) {
  for (const Transport transport : {Transport::mpi, Transport::ring})
    for (const GridShape grid : {GridShape{1, 1, 16}, {1, 16, 1}, {1, 4, 4}, {4, 1, 4}, {2, 2, 4}, {16, 1, 1}})
      for (int prefetch = 0; prefetch < 3; ++prefetch) {
        Machine m = machine();
        m.inter.bandwidth = m.intra.bandwidth = 100;
        Workload work = workload();
        work.prefetch = prefetch;
        const double rate = cost_of(m, transport, work, grid).tokens_per_second;
        const auto better = [&](const auto& change) {
          Machine changed = m;
          Workload other = work;
          change(changed, other);
          return cost_of(changed, transport, other, grid).tokens_per_second;
        };
        EXPECT_GE(better([](Machine& x, Workload&) { x.inter.bandwidth *= 2; }), rate);
        EXPECT_GE(better([](Machine& x, Workload&) { x.intra.bandwidth *= 2; }), rate);
        EXPECT_GE(better([](Machine& x, Workload&) { x.inter.latency /= 2; }), rate);
        EXPECT_GE(better([](Machine& x, Workload&) { x.cards *= 2; }), rate);
        EXPECT_GE(better([](Machine& x, Workload&) { x.flops *= 2; }), rate);
        EXPECT_GE(better([](Machine&, Workload& w) { w.every *= 2; }), rate);
        EXPECT_GE(better([](Machine&, Workload& w) { w.prefetch += 1; }), rate * (1 - 1e-12));
        if (grid.groups > 1) {
          EXPECT_GT(better([](Machine&, Workload& w) { w.every *= 2; }), rate);
        }
      }
}

}  // namespace
}  // namespace atl
