/// SPDX-License-Identifier: Apache-2.0
#include "model/plan.hpp"

#include "core/errors.hpp"

#include <algorithm>

namespace atl {

namespace {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// As their definitions compare them: fl+fsdp stands beside fsdp, fl+hsdp beside hsdp with the same shards.
void compare(std::vector<PlanRow>& rows) {
  const auto rate_of = [&](Strategy strategy, AfterForward after, std::int64_t shards) {
    for (const PlanRow& row : rows)
      if (row.strategy == strategy && row.after == after && (shards == 0 || row.grid.shards == shards))
        return row.cost.tokens_per_second;
    return 0.0;
  };
  for (PlanRow& row : rows) {
    const double fsdp = rate_of(Strategy::fsdp, row.after, 0);
    // hsdp of one shard is ddp.
    const double hsdp = rate_of(row.grid.shards == 1 ? Strategy::ddp : Strategy::hsdp, row.after, row.grid.shards);
    if (fsdp > 0) row.versus_fsdp = row.cost.tokens_per_second / fsdp;
    if (hsdp > 0) row.versus_hsdp = row.cost.tokens_per_second / hsdp;
  }
}

}  // namespace

std::vector<std::int64_t> sensible_sizes(std::int64_t ranks, std::int64_t ranks_per_node) {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t d : divisors(ranks)) {
    const bool aligned = d < ranks_per_node ? ranks_per_node % d == 0 : d % ranks_per_node == 0;
    if (d != ranks && (!aligned || (!sizes.empty() && 10 * d < 19 * sizes.back()))) continue;
    sizes.push_back(d);
  }
  return sizes;
}

std::optional<PlanRow> plan_row(const PlanOptions& options, Strategy strategy, const GridShape& grid,
                                AfterForward after) {
  ATOLL_REQUIRE(grid.ranks() == options.ranks);
  PlanRow row;
  row.strategy = strategy;
  row.grid = grid;
  row.after = after;
  StepWorkOptions work = options.work;
  work.after = after;
  std::optional<PlanOptions::Share> share;
  if (options.share) {
    share = options.share(grid.group_ranks());
    if (!share) return std::nullopt;
    work.shape.micro_batch = share->micro_batch;
    work.micro_batches = share->micro_batches;
  }
  row.micro_batch = work.shape.micro_batch;
  row.micro_batches = work.micro_batches;
  const std::int64_t slots = row.micro_batch * row.micro_batches * grid.group_ranks();
  row.group_batch = share ? share->batch : slots;

  Workload load = step_work(options.model, work);
  if (options.compute_seconds > 0) {
    // Measured for the micro-batch of `work`: others take as much longer as they are larger.
    const double size = static_cast<double>(row.micro_batch) / static_cast<double>(options.work.shape.micro_batch);
    set_compute_seconds(load, options.machine, options.compute_seconds * size);
  }
  row.cost = cost_of(options.machine, options.transport, load, grid);
  row.cost.tokens_per_second *= static_cast<double>(row.group_batch) / static_cast<double>(slots);

  MemoryOptions memory;
  memory.shape = work.shape;
  memory.group = {static_cast<int>(grid.replicas), static_cast<int>(grid.shards)};
  memory.groups = static_cast<int>(grid.groups);
  memory.after = after;
  memory.precision = work.precision;
  if (work.gradient_bytes == static_cast<int>(sizeof(bf16))) memory.wire = Wire::bf16;
  memory.optimizer = work.optimizer;
  memory.prefetch = work.prefetch;
  memory.micro_batches = work.micro_batches;
  memory.evaluates = options.evaluates;
  row.memory_bytes = plan_memory(options.model, memory).peak();
  row.fits = options.memory <= 0 || static_cast<double>(row.memory_bytes) <= options.memory;
  return row;
}

std::vector<PlanRow> plan(const PlanOptions& options) {
  const std::int64_t n = options.ranks;
  const auto sizes = sensible_sizes(n, options.machine.ranks_per_node);
  std::vector<PlanRow> rows;
  const auto add = [&](Strategy strategy, const GridShape& grid, AfterForward after = AfterForward::reshard) {
    if (const auto row = plan_row(options, strategy, grid, after)) rows.push_back(*row);
  };
  add(Strategy::fsdp, {1, 1, n});
  if (n > 1) {
    add(Strategy::fsdp, {1, 1, n}, AfterForward::keep);
    add(Strategy::ddp, {1, n, 1});
  }
  for (const std::int64_t shards : sizes) {
    if (shards < n && shards > 1) add(Strategy::hsdp, {1, n / shards, shards});
    if (shards < n) add(Strategy::fl_fsdp, {n / shards, 1, shards});
    for (const std::int64_t group : sizes)
      if (group < n && shards < group && group % shards == 0)
        add(Strategy::fl_hsdp, {n / group, group / shards, shards});
  }
  compare(rows);
  std::stable_sort(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
    if (a.fits != b.fits) return a.fits;
    return a.cost.tokens_per_second > b.cost.tokens_per_second;
  });
  return rows;
}

}  // namespace atl
