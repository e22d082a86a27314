/// Every strategy on every sensible grid of a machine: what each costs, and whether it fits. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "model/memory_plan.hpp"
#include "model/step_work.hpp"
#include "parallel/cost_model.hpp"
#include "parallel/process_grid.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace atl {

struct PlanOptions {
  LlamaConfig model;  ///< complete
  Machine machine;
  Transport transport = Transport::mpi;
  std::int64_t ranks = 1;
  double memory = 0;  ///< bytes of a rank; 0: anything fits
  StepWorkOptions work;
  bool evaluates = true;
  double compute_seconds = 0;  ///< measured, of one micro-batch on a rank; 0: from machine.flops
  /// How a group of so many ranks deals its batch; nothing where it cannot, and that grid is left out. Without this
  /// function every rank has the micro-batches of `work`.
  struct Share {
    std::int64_t micro_batch = 1, micro_batches = 1;
    std::int64_t batch = 1;  ///< sequences of the group per step; fewer than the slots, where some stay empty
  };
  std::function<std::optional<Share>(std::int64_t group_ranks)> share;
};

struct PlanRow {
  Strategy strategy = Strategy::fsdp;
  GridShape grid;
  AfterForward after = AfterForward::reshard;
  Cost cost;
  std::int64_t micro_batch = 1, micro_batches = 1;
  std::int64_t group_batch = 0;    ///< sequences of a group per step: the batch that the optimizer sees
  std::uint64_t memory_bytes = 0;  ///< MemoryPlan::peak
  bool fits = true;
  double versus_fsdp = 0;  ///< tokens per second over those of fsdp, resharding alike
  double versus_hsdp = 0;  ///< over those of hsdp with the same shards; 0: there is none
};

/// Sizes of groups and replicas that are worth a look: divisors of the ranks that divide a node, or are whole nodes,
/// each at least about twice the one before. In rising order, with 1 and all ranks.
std::vector<std::int64_t> sensible_sizes(std::int64_t ranks, std::int64_t ranks_per_node);

/// Best first: those that fit, by tokens per second; then those that do not. One rank: fsdp alone.
std::vector<PlanRow> plan(const PlanOptions& options);

/// One row, of any grid that fills options.ranks; nothing where its batch cannot be dealt.
std::optional<PlanRow> plan_row(const PlanOptions& options, Strategy strategy, const GridShape& grid,
                                AfterForward after);

}  // namespace atl
