/// `atoll plan`, its profiles, and `atoll doctor --network`. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace atl {
namespace {

using Json = nlohmann::json;

Outcome plan(const ScratchFolder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return run_program(folder, 0, arguments);
}

Json plan_json(const ScratchFolder& folder, std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome outcome = plan(folder, arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? outcome.json() : Json();
}

Json row_of(const Json& plan, const std::string& strategy, int groups, int replicas, int shards) {
  for (const Json& row : plan.at("rows"))
    if (row.at("strategy") == strategy && row.at("groups") == groups && row.at("replicas") == replicas &&
        row.at("shards") == shards && row.at("reshard_after_forward") == true)
      return row;
  ADD_FAILURE() << "no row for " << strategy;
  return Json();
}

/// What a run of the plan's grids says that it sent.
TEST(Plan, KnowsEveryByteOfARun) {
  const ScratchFolder folder;
  struct Case {
    const char *parallel, *strategy;
    int groups, replicas, shards;
  };
  for (const Case& c : {Case{"strategy = \"ddp\"\n", "ddp", 1, 4, 1},
                        {fsdp, "fsdp", 1, 1, 4},
                        {"strategy = \"hsdp\"\nshard_size = 2\n", "hsdp", 1, 2, 2},
                        {two_groups, "fl+fsdp", 2, 1, 2},
                        {"strategy = \"fl+hsdp\"\ngroups = 2\nshard_size = 1\n", "fl+hsdp", 2, 2, 1}}) {
    SCOPED_TRACE(c.strategy);
    const std::string run = folder.write("run.toml", tiny_run(folder / "run", c.parallel));
    const Json planned = row_of(plan_json(folder, {run, "--system", "two-laptops", "--nodes", "2", "--ranks-per-node",
                                                   "2", "--set", "train.steps=4", "--set", "train.micro_batch=1"}),
                                c.strategy, c.groups, c.replicas, c.shards);
    const Outcome trained =
        run_program(folder, 4, {"train", run, "--set", "train.steps=4", "--set", "train.micro_batch=1"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    for (const Json& step : records(folder / "run", "step"))
      for (const char* kind : {"shard", "replica", "federation"})
        EXPECT_EQ(step.at(std::string("bytes_") + kind), planned.at("step_bytes").at(kind)) << kind;
    for (const Json& round : records(folder / "run", "round"))
      for (const char* kind : {"shard", "replica", "federation"})
        EXPECT_EQ(round.at(std::string("bytes_") + kind), planned.at("aggregation_bytes").at(kind)) << kind;
    EXPECT_EQ(planned.at("group_batch"), 8);
    EXPECT_EQ(planned.at("accumulate"), 8 / (4 / c.groups));
  }
}

TEST(Plan, TheBestGridThatFitsComesFirst) {
  const ScratchFolder folder;
  const Json found =
      plan_json(folder, {"--preset", "8b", "--system", "leonardo", "--nodes", "16", "--micro-batch", "2", "--transport",
                         "ring", "--set", "train.precision=bf16", "--set", "train.recompute=block"});
  EXPECT_EQ(found.at("ranks"), 64);
  EXPECT_GT(found.at("assumptions").size(), 3u);
  std::set<std::string> strategies;
  double rate = INFINITY;
  bool fits = true;
  for (const Json& row : found.at("rows")) {
    strategies.insert(row.at("strategy").get<std::string>());
    if (fits && !row.at("fits").get<bool>()) rate = INFINITY;
    fits = row.at("fits");
    EXPECT_LE(row.at("tokens_per_second"), rate);
    rate = row.at("tokens_per_second");
    EXPECT_EQ(row.at("fits"), row.at("memory_bytes") <= 64e9);
    EXPECT_NEAR(row.at("step_seconds").get<double>(),
                row.at("compute_seconds").get<double>() + row.at("exposed_comm_seconds").get<double>(), 1e-9);
  }
  EXPECT_EQ(strategies, (std::set<std::string>{"ddp", "fsdp", "hsdp", "fl+fsdp", "fl+hsdp"}));
  EXPECT_GT(row_of(found, "fl+fsdp", 16, 1, 4).at("versus_fsdp"), 0.0);

  const Outcome text = plan(folder, {"--preset", "8b", "--system", "leonardo", "--nodes", "16", "--rows", "3", "--set",
                                     "train.precision=bf16"});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* part : {"Leonardo Booster", "64 ranks", "tokens/s", "assumed", "more; --rows"})
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
}

TEST(Plan, ComparesWithThePublishedExperiment) {
  const ScratchFolder folder;
  const Json found = plan_json(folder, {"--paper", "--transport", "ring"});
  EXPECT_EQ(found.at("ranks"), 512);
  EXPECT_EQ(found.at("every"), 8);
  EXPECT_EQ(found.at("parameters"), 8030261248);
  EXPECT_EQ(found.at("paper").at("published"), 8.04);
  EXPECT_EQ(found.at("paper").at("fl+fsdp_over_fsdp"), row_of(found, "fl+fsdp", 128, 1, 4).at("versus_fsdp"));
  EXPECT_EQ(found.at("paper").at("fl+hsdp_over_hsdp"), row_of(found, "fl+hsdp", 16, 8, 4).at("versus_hsdp"));
  // fsdp gathers bf16 weights twice (blocks; embedding and head once) and reduces fp32 gradients, on 512 ranks.
  const double p = 8030261248.0, tables = 2 * 525336576.0 + 4096;
  const double bytes = (2 * (p - tables) + tables) * 2 + p * 4;
  const double sent = row_of(found, "fsdp", 1, 1, 512).at("step_bytes").at("shard");
  EXPECT_NEAR(sent / (bytes * 511 / 512), 1, 1e-6);
  // train.reduce_precision and its short form say the same.
  for (const auto& [name, value] :
       {std::pair("--set", "train.reduce_precision=bf16"), {"--reduce-precision", "bf16"}}) {
    const Json less = plan_json(folder, {"--paper", "--transport", "ring", name, value});
    const double half_gradients = row_of(less, "fsdp", 1, 1, 512).at("step_bytes").at("shard");
    EXPECT_NEAR(half_gradients / ((bytes - 2 * p) * 511 / 512), 1, 1e-6);
  }
  const Outcome text = plan(folder, {"--paper"});
  for (const char* part : {"8.04", "fl+fsdp, groups of a node, over fsdp", "bandwidth alone"})
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
}

TEST(Plan, AMillionRanksInASecond) {
  const ScratchFolder folder;
  const Outcome outcome = plan(folder, {"--preset", "70b", "--system", "dgx-h100", "--nodes", "125000", "--set",
                                        "system.nodes=125000", "--json", "--set", "train.precision=bf16"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("ranks"), 1000000);
  EXPECT_LT(outcome.seconds, 1 + 0.5);  // and the start of the program, on a busy machine
}

TEST(Plan, PlotsItself) {
  const ScratchFolder folder;
  const Outcome outcome = plan(folder, {"--preset", "1b", "--system", "lumi-g", "--nodes", "8", "--plot",
                                        folder / "p.svg", "--set", "train.precision=bf16"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string svg = content_of(folder / "p.svg");
  for (const char* part : {"<svg", "</svg>", ">fl+fsdp<", ">fsdp<", ">hsdp<", "tokens per second", "LUMI-G"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  for (const char* outside : {"href", "<script", "url("}) EXPECT_EQ(svg.find(outside), std::string::npos);
}

TEST(Plan, TakesAMachineByItsFigures) {
  const ScratchFolder folder;
  const std::vector<std::string> figures{
      "--preset",          "tiny", "--nodes",           "2",   "--ranks-per-node", "2",
      "--intra-latency",   "1e-6", "--intra-bandwidth", "1e9", "--inter-latency",  "1e-4",
      "--inter-bandwidth", "1e7",  "--flops",           "1e9", "--every",          "4"};
  const Json found = plan_json(folder, figures);
  EXPECT_EQ(found.at("machine").at("inter").at("bandwidth"), 1e7);
  EXPECT_EQ(found.at("machine").at("flops"), 1e9);
  EXPECT_EQ(found.at("every"), 4);
  auto slower = figures;
  slower.insert(slower.end(), {"--compute-seconds", "10"});
  EXPECT_NEAR(row_of(plan_json(folder, slower), "fsdp", 1, 1, 4).at("compute_seconds").get<double>(), 10, 1e-9);
}

TEST(Plan, TellsWhatIsWrong) {
  const ScratchFolder folder;
  const auto expect = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const Outcome outcome = plan(folder, arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  expect({"--preset", "8b", "--system", "leonard"}, "did you mean leonardo?");
  expect({"--preset", "8c", "--system", "leonardo"}, "\"8b\"");
  expect({"--preset", "8b"}, "system.ranks_per_node is missing");
  expect({"--preset", "8b", "--system", "leonardo", "--nodes", "4000"}, "has 3456 nodes");
  expect({"--preset", "8b", "--system", "two-laptops", "--set", "train.precision=bf16"}, "system.bf16 is missing");
  expect({"--preset", "8b", "--system", "leonardo", "--nodes", "0"}, "--nodes");
  expect({"--preset", "8b", "--system", "leonardo", "--transport", "pigeon"}, "--transport");
  expect({"--preset", "8b", "--system", folder / "no.toml"}, "cannot read the system profile");
  expect({"--preset", "8b", "--system", "leonardo", "--set", "inter.bandwith=1"}, "did you mean inter.bandwidth?");
  expect({"--preset", "tiny", "--system", "two-laptops", "--plot", folder / "no/such.svg"}, "cannot be written");
}

TEST(Doctor, MeasuresAProfileThatPlanReads) {
  const ScratchFolder folder;
  const std::string file = folder / "measured.toml";
  const Outcome outcome = run_program(folder, 2, {"doctor", "--json", "--network", file});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json links = outcome.json().at("links");
  EXPECT_GT(links.at("intra").at("bytes_per_second"), 1e7);
  EXPECT_GT(links.at("intra").at("latency_seconds"), 1e-8);
  EXPECT_LT(links.at("intra").at("latency_seconds"), 0.1);
  EXPECT_EQ(links.at("inter").at("bytes_per_second"), 0);  // one node
  const Json found = plan_json(folder, {"--preset", "tiny", "--system", file, "--nodes", "1"});
  EXPECT_EQ(found.at("ranks"), 2);
  EXPECT_NEAR(found.at("machine").at("intra").at("bandwidth").get<double>(),
              links.at("intra").at("bytes_per_second").get<double>(), 1);
  const Outcome alone = run_program(folder, 1, {"doctor", "--network", file});
  EXPECT_EQ(alone.code, 2);
  EXPECT_NE(alone.err.find("one rank has no network"), std::string::npos) << alone.err;
}

}  // namespace
}  // namespace atl
