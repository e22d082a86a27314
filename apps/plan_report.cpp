/// SPDX-License-Identifier: Apache-2.0
#include "apps/plan_report.hpp"

#include "io/report/progress.hpp"
#include "io/report/svg_plot.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;

/// arXiv:2609.20359: the largest ratio of data processing rates that it reports.
constexpr double published_speedup = 8.04;

std::string_view precision_name(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : precision == Precision::bf16 ? "bf16" : "fp64";
}

std::string name_of(const PlanRow& row) {
  std::string name(atl::name_of(row.strategy));
  return row.after == AfterForward::keep ? name + " (kept)" : name;
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string bytes_text(std::uint64_t bytes) { return bytes == 0 ? "-" : human_count(static_cast<double>(bytes), "B"); }

std::string ratio_text(double ratio) { return ratio > 0 ? fmt::format("{:.2f}", ratio) : "-"; }

const PlanRow* find(const PlanReport& report, Strategy strategy, const GridShape& grid) {
  for (const PlanRow& row : report.rows)
    if (row.strategy == strategy && row.grid == grid && row.after == AfterForward::reshard) return &row;
  return nullptr;
}

/// The four grids of the published experiment, scaled to these ranks as it has them: shards of a node, groups of eight
/// nodes.
struct PaperRows {
  const PlanRow *fsdp, *hsdp, *fl_fsdp, *fl_hsdp;
  bool all() const { return fsdp && hsdp && fl_fsdp && fl_hsdp; }
};
PaperRows paper_rows(const PlanReport& report) {
  const std::int64_t n = report.options.ranks, s = report.options.machine.ranks_per_node;
  return {find(report, Strategy::fsdp, {1, 1, n}), find(report, Strategy::hsdp, {1, n / s, s}),
          find(report, Strategy::fl_fsdp, {n / s, 1, s}), find(report, Strategy::fl_hsdp, {n / (8 * s), 8, s})};
}

/// What the network's bandwidth alone allows: the ratio of times on the slower link of each, without computation.
double bytes_ratio(const PlanReport& report, const PlanRow& row, const PlanRow& base) {
  PlanOptions alone = report.options;
  alone.machine.flops = 1e30;
  alone.machine.memory_bandwidth = 0;
  alone.machine.intra.latency = alone.machine.inter.latency = 0;
  alone.compute_seconds = 0;
  const auto rate = [&](const PlanRow& of) {
    const auto found = plan_row(alone, of.strategy, of.grid, of.after);
    return found ? found->cost.tokens_per_second : 0.0;
  };
  return rate(row) / rate(base);
}

/// The share of the network's bandwidth at which `row` over `base` comes to the published ratio; where none does, the
/// one with the largest ratio.
struct Crossing {
  double share = 1, ratio = 0;
  bool reached() const { return ratio >= published_speedup; }
};
Crossing crossing(const PlanReport& report, const PlanRow& row, const PlanRow& base) {
  Crossing best;
  for (double share = 1; share > 1e-5; share *= 0.95) {
    PlanOptions slower = report.options;
    slower.machine.inter.bandwidth *= share;
    const auto fast = plan_row(slower, row.strategy, row.grid, row.after);
    const auto slow = plan_row(slower, base.strategy, base.grid, base.after);
    if (!fast || !slow) break;
    const double ratio = fast->cost.tokens_per_second / slow->cost.tokens_per_second;
    if (ratio > best.ratio) best = {share, ratio};
    if (best.reached()) break;
  }
  return best;
}

std::vector<std::string> assumptions(const PlanReport& report) {
  const PlanOptions& options = report.options;
  const Machine& m = options.machine;
  std::vector<std::string> list;
  if (options.compute_seconds > 0)
    list.push_back(fmt::format("forward and backward of {} sequences take {} on a rank, as measured",
                               options.work.shape.micro_batch, seconds_text(options.compute_seconds)));
  else
    list.push_back(fmt::format("a rank reaches {:.3g} TFLOP/s, {:.0f} % of its {} peak", m.flops / 1e12,
                               100 * report.profile.efficiency, precision_name(options.work.precision)));
  list.push_back(fmt::format("{}; latency {} inside a node and {} between nodes for each step of a ring",
                             options.transport == Transport::ring
                                 ? "collectives are rings over all network cards (NCCL, RCCL)"
                                 : "atoll's collectives over MPI: gathers are rings, sums pairwise exchanges",
                             seconds_text(m.intra.latency), seconds_text(m.inter.latency)));
  list.push_back(fmt::format("{} bytes sent of a gathered parameter, {} of a gradient, {} of an averaged parameter",
                             options.work.precision == Precision::bf16   ? 2
                             : options.work.precision == Precision::fp32 ? 4
                                                                         : 8,
                             options.work.gradient_bytes > 0             ? options.work.gradient_bytes
                             : options.work.precision == Precision::fp64 ? 8
                                                                         : 4,
                             options.work.precision == Precision::fp64 ? 8 : 4));
  list.push_back(
      options.work.prefetch == 0
          ? "nothing overlaps (parallel.prefetch = 0)"
          : fmt::format("transfers of the next {} run beside the computation and do not slow it",
                        options.work.prefetch == 1 ? "unit" : fmt::format("{} units", options.work.prefetch)));
  if (options.work.shape.packing == Packing::documents)
    list.push_back(
        "attention costs as if each sequence were one document; with data.packing = \"documents\" it is less");
  list.push_back(
      "all ranks are equally fast, and no other job uses the network; data, evaluations and checkpoints take "
      "no time");
  return list;
}

void print_head(const PlanReport& report) {
  const PlanOptions& o = report.options;
  const Machine& m = o.machine;
  fmt::print("model     {} parameters; {} tokens a sequence; {}, recompute {}\n",
             human_count(static_cast<double>(parameter_count(o.model)), ""), o.work.shape.sequence_length,
             precision_name(o.work.precision), o.work.shape.recompute == Recompute::none ? "none" : "block");
  fmt::print("system    {}: {} ranks, {} a node; {}/s inside a node, {} x {}/s between nodes{}\n", report.system,
             o.ranks, m.ranks_per_node, human_count(m.intra.bandwidth, "B"), m.cards,
             human_count(m.inter.bandwidth, "B"),
             o.memory > 0 ? fmt::format("; {} a rank", human_count(o.memory, "B")) : "");
  fmt::print("training  {} x {} sequences a rank and step; groups average every {} steps\n\n", o.work.micro_batches,
             o.work.shape.micro_batch, o.work.every);
}

void print_row(const PlanRow& row) {
  const GridShape& g = row.grid;
  const Cost& c = row.cost;
  fmt::print("{:<12}{:>18}{:>12}{:>10}{:>10}{:>6.0f} %{:>10}{:>10}{:>10}{:>10}{:>9}{:>7}{:>7}{}\n", name_of(row),
             fmt::format("{} x {} x {}", g.groups, g.replicas, g.shards), human_count(c.tokens_per_second, ""),
             seconds_text(c.step_seconds), seconds_text(c.round_seconds), 100 * c.exposed_share,
             bytes_text(c.step.shard), bytes_text(c.step.replica), bytes_text(c.aggregation.total()),
             human_count(static_cast<double>(row.memory_bytes), "B"), row.group_batch, ratio_text(row.versus_fsdp),
             ratio_text(row.versus_hsdp), row.fits ? "" : "  does not fit");
}

void print_paper(const PlanReport& report) {
  const PaperRows rows = paper_rows(report);
  if (!rows.all()) return;
  fmt::print("\nthe published experiment (arXiv:2609.20359)        predicted   bandwidth alone   published\n");
  const auto line = [&](const char* what, const PlanRow& row, const PlanRow& base, const std::string& published) {
    fmt::print("  {:<48}{:>10.2f}{:>18.2f}   {}\n", what, row.cost.tokens_per_second / base.cost.tokens_per_second,
               bytes_ratio(report, row, base), published);
  };
  line("fl+fsdp, groups of a node, over fsdp", *rows.fl_fsdp, *rows.fsdp,
       fmt::format("up to {} of all comparisons", published_speedup));
  line("fl+hsdp, groups of eight nodes, over hsdp", *rows.fl_hsdp, *rows.hsdp, "");
  line("fl+hsdp over fsdp", *rows.fl_hsdp, *rows.fsdp, "");
  const Crossing found = crossing(report, *rows.fl_fsdp, *rows.fsdp);
  fmt::print("  fl+fsdp over fsdp {} {:.2f} where a card sends {}/s, {:.0f} % of what is planned with\n",
             found.reached() ? "reaches" : "is nowhere larger than", found.reached() ? published_speedup : found.ratio,
             human_count(found.share * report.options.machine.inter.bandwidth, "B"), 100 * found.share);
}

Json to_json(const TrafficBytes& bytes) {
  return {{"shard", bytes.shard}, {"replica", bytes.replica}, {"federation", bytes.federation}};
}

Json to_json(const PlanRow& row) {
  const Cost& c = row.cost;
  return {{"strategy", atl::name_of(row.strategy)},
          {"groups", row.grid.groups},
          {"replicas", row.grid.replicas},
          {"shards", row.grid.shards},
          {"reshard_after_forward", row.after == AfterForward::reshard},
          {"tokens_per_second", c.tokens_per_second},
          {"step_seconds", c.step_seconds},
          {"compute_seconds", c.compute_seconds},
          {"communication_seconds", c.communication_seconds},
          {"exposed_comm_seconds", c.exposed_seconds},
          {"aggregation_seconds", c.aggregation_seconds},
          {"round_seconds", c.round_seconds},
          {"exposed_share", c.exposed_share},
          {"step_bytes", to_json(c.step)},
          {"aggregation_bytes", to_json(c.aggregation)},
          {"memory_bytes", row.memory_bytes},
          {"fits", row.fits},
          {"micro_batch", row.micro_batch},
          {"accumulate", row.micro_batches},
          {"group_batch", row.group_batch},
          {"world_batch", row.group_batch * row.grid.groups},
          {"versus_fsdp", row.versus_fsdp > 0 ? Json(row.versus_fsdp) : Json()},
          {"versus_hsdp", row.versus_hsdp > 0 ? Json(row.versus_hsdp) : Json()}};
}

}  // namespace

void print_plan(const PlanReport& report, std::size_t most_rows) {
  print_head(report);
  fmt::print("{:<12}{:>18}{:>12}{:>10}{:>10}{:>8}{:>10}{:>10}{:>10}{:>10}{:>9}{:>7}{:>7}\n", "", "groups x replicas",
             "", "", "", "comm.", "sent by a", "rank of a", "", "memory", "batch of", "over", "over");
  fmt::print("{:<12}{:>18}{:>12}{:>10}{:>10}{:>8}{:>10}{:>10}{:>10}{:>10}{:>9}{:>7}{:>7}\n", "strategy", "x shards",
             "tokens/s", "step", "round", "shows", "shard", "replica", "average", "a rank", "a group", "fsdp", "hsdp");
  std::size_t shown = 0;
  for (const PlanRow& row : report.rows)
    if (shown < most_rows) {
      print_row(row);
      ++shown;
    }
  if (shown < report.rows.size())
    fmt::print("... and {} more; --rows {} shows all\n", report.rows.size() - shown, report.rows.size());
  if (report.left_out > 0) fmt::print("{} grids are left out: their groups cannot deal the batch.\n", report.left_out);
  if (report.paper) print_paper(report);
  fmt::print("\nassumed\n");
  for (const std::string& text : assumptions(report)) fmt::print("  - {}\n", text);
}

std::string plan_json(const PlanReport& report) {
  const PlanOptions& o = report.options;
  Json out;
  out["system"] = report.system;
  out["ranks"] = o.ranks;
  out["machine"] = {{"ranks_per_node", o.machine.ranks_per_node},
                    {"intra", {{"latency", o.machine.intra.latency}, {"bandwidth", o.machine.intra.bandwidth}}},
                    {"inter", {{"latency", o.machine.inter.latency}, {"bandwidth", o.machine.inter.bandwidth}}},
                    {"cards", o.machine.cards},
                    {"flops", o.machine.flops},
                    {"memory_bandwidth", o.machine.memory_bandwidth},
                    {"memory", o.memory}};
  out["transport"] = atl::name_of(o.transport);
  out["parameters"] = parameter_count(o.model);
  out["every"] = o.work.every;
  out["prefetch"] = o.work.prefetch;
  out["assumptions"] = assumptions(report);
  if (const PaperRows rows = paper_rows(report); report.paper && rows.all())
    out["paper"] = {{"fl+fsdp_over_fsdp", rows.fl_fsdp->cost.tokens_per_second / rows.fsdp->cost.tokens_per_second},
                    {"fl+hsdp_over_hsdp", rows.fl_hsdp->cost.tokens_per_second / rows.hsdp->cost.tokens_per_second},
                    {"published", published_speedup}};
  out["rows"] = Json::array();
  for (const PlanRow& row : report.rows) out["rows"].push_back(to_json(row));
  return out.dump(2);
}

std::string plan_svg(const PlanReport& report) {
  constexpr std::array<Strategy, 5> strategies = {Strategy::fl_hsdp, Strategy::fl_fsdp, Strategy::hsdp, Strategy::fsdp,
                                                  Strategy::ddp};
  std::vector<PlotSeries> series;
  for (const Strategy strategy : strategies) series.push_back({std::string(name_of(strategy)), {}});
  PlotSeries ideal{"without communication", {}};
  const std::int64_t node = report.options.machine.ranks_per_node;
  std::vector<std::int64_t> nodes;
  for (std::int64_t n = 1; n < report.options.ranks / node; n *= 2) nodes.push_back(n);
  nodes.push_back(std::max<std::int64_t>(1, report.options.ranks / node));
  for (const std::int64_t n : nodes) {
    PlanOptions options = report.options;
    options.ranks = std::min(n * node, report.options.ranks);
    double best = 0;
    for (const PlanRow& row : plan(options)) {
      if (row.fits) best = std::max(best, row.cost.tokens_per_second / (1 - row.cost.exposed_share));
      for (std::size_t i = 0; i < strategies.size(); ++i) {
        auto& points = series[i].points;
        const auto x = static_cast<double>(options.ranks);
        const bool first = points.empty() || points.back().first < x;
        if (row.strategy == strategies[i] && row.fits && first) points.emplace_back(x, row.cost.tokens_per_second);
      }
    }
    if (best > 0) ideal.points.emplace_back(static_cast<double>(options.ranks), best);
  }
  series.push_back(ideal);
  const PlanOptions& o = report.options;
  return line_plot_svg(
      {fmt::format("Planned tokens per second on {}",
                   report.profile.name.empty() ? "this system" : report.profile.name),
       fmt::format("{} parameters, {} x {} sequences of {} tokens a rank, averages every {} steps; best grid that fits",
                   human_count(static_cast<double>(parameter_count(o.model)), ""), o.work.micro_batches,
                   o.work.shape.micro_batch, o.work.shape.sequence_length, o.work.every),
       "ranks", "tokens per second"},
      series);
}

}  // namespace atl
