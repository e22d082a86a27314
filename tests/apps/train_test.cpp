/// `atoll train` and `atoll eval` from end to end, as their users start them. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <cmath>
#include <set>

namespace atl {
namespace {

using Json = nlohmann::json;

/// Trains the tiny run; `parallel` has the keys of [parallel], `more` overrides.
Outcome train(const ScratchFolder& folder, const std::string& name, int ranks, const std::string& parallel,
              const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"train", folder.write(name + ".toml", tiny_run(folder / name, parallel))};
  for (const auto& setting : more) {
    arguments.emplace_back("--set");
    arguments.push_back(setting);
  }
  Outcome outcome = run_program(folder, ranks, arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome;
}

std::vector<double> losses(const std::string& run) {
  std::vector<double> values;
  for (const Json& record : records(run, "step")) values.push_back(record.at("loss"));
  return values;
}

double last_perplexity(const std::string& run) { return records(run, "eval").back().at("perplexity"); }

void expect_fields(const Json& record, const std::set<std::string>& expected) {
  std::set<std::string> found;
  for (const auto& [name, value] : record.items()) {
    found.insert(name);
    EXPECT_FALSE(value.is_null()) << name;
  }
  EXPECT_EQ(found, expected) << record;
}

/// The contract of metrics.jsonl.
void expect_metrics(const std::string& run, std::size_t groups) {
  const auto all = records(run);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().at("kind"), "run");
  EXPECT_EQ(records(run, "run").size(), 1u);
  EXPECT_EQ(records(run, "step").size(), 10u);
  EXPECT_EQ(records(run, "round").size(), 3u);  // 4 + 4 + a short one of 2 steps
  EXPECT_EQ(records(run, "eval").size(), 3u);   // before the first step, and after 5 and 10
  EXPECT_EQ(records(run, "language").size(), 1u);
  std::int64_t step = 0, tokens = 0;
  for (const Json& record : all) {
    const std::string kind = record.at("kind");
    if (kind == "run") {
      expect_fields(record, {"kind", "configuration", "grid", "versions", "git_revision", "seed"});
      EXPECT_EQ(record.at("grid").at("groups").size(), groups);
    } else if (kind == "step") {
      expect_fields(record, {"kind", "step", "round", "tokens", "loss", "lr", "grad_norm", "step_seconds",
                             "tokens_per_second", "compute_seconds", "exposed_comm_seconds", "bytes_shard",
                             "bytes_replica", "bytes_federation", "memory_bytes"});
      EXPECT_EQ(record.at("step"), ++step);
      EXPECT_EQ(record.at("round"), (step + 3) / 4);
      EXPECT_EQ(record.at("tokens"), tokens += static_cast<std::int64_t>(8 * 16 * groups));
      EXPECT_GT(record.at("bytes_shard"), 0);
      EXPECT_EQ(record.at("bytes_shard"), records(run, "step").front().at("bytes_shard"));
      EXPECT_EQ(record.at("bytes_federation"), 0);  // groups do not talk inside a round
      EXPECT_GT(record.at("exposed_comm_seconds"), 0);
      EXPECT_LE(record.at("exposed_comm_seconds"), record.at("step_seconds"));
      EXPECT_GT(record.at("memory_bytes"), 1 << 20);
    } else if (kind == "eval") {
      expect_fields(record, {"kind", "step", "loss", "perplexity", "tokens"});
      EXPECT_NEAR(record.at("perplexity"), std::exp(record.at("loss").get<double>()), 1e-9);
      EXPECT_EQ(record.at("tokens"), 1999);
    } else if (kind == "round") {
      expect_fields(record, {"kind", "round", "step", "tokens", "bytes", "bytes_shard", "bytes_replica",
                             "bytes_federation", "seconds", "exposed_comm_seconds", "drift"});
      ASSERT_EQ(record.at("tokens").size(), groups);
      ASSERT_EQ(record.at("drift").size(), groups);
      EXPECT_EQ(record.at("tokens")[0], record.at("round") == 3 ? 2 * 128 : 4 * 128);
      EXPECT_EQ(record.at("drift")[0] > 0.0, groups > 1);
      EXPECT_EQ(record.at("bytes"), record.at("bytes_federation"));  // one replica a group
      EXPECT_EQ(record.at("bytes") > 0, groups > 1);
      EXPECT_EQ(record.at("bytes"), records(run, "round").front().at("bytes"));
    } else {
      EXPECT_EQ(kind, "language");
      expect_fields(record, {"kind", "floor_perplexity", "bigram_perplexity"});
    }
  }
}

/// `atoll eval` of a run, as its JSON.
Json evaluate(const ScratchFolder& folder, int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"eval", "--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Outcome outcome = run_program(folder, ranks, all);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? outcome.json() : Json();
}

void expect_relative(double value, double expected, double tolerance) {
  EXPECT_NEAR(value, expected, tolerance * std::fabs(expected));
}

TEST(Train, FsdpWritesWhatTheDesignSays) {
  const ScratchFolder folder;
  const Outcome outcome = train(folder, "run", 2, fsdp);
  expect_metrics(folder / "run", 1);
  EXPECT_LT(losses(folder / "run").back(), losses(folder / "run").front());
  // run.toml gives the same configuration again.
  const Outcome shown = run_program(folder, 0, {"train", "--show-config", folder / "run/run.toml"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, content_of(folder / "run/run.toml"));
  EXPECT_EQ(outcome.out, "");  // results are in files, what happens is on stderr
  EXPECT_EQ(occurrences(outcome.err, "model saved as"), 1u);

  for (const int ranks : {1, 2, 3}) {
    const Json result = evaluate(folder, ranks, {folder / "run"});
    expect_relative(result.at("perplexity"), last_perplexity(folder / "run"), 1e-6);
    EXPECT_EQ(result.at("step"), 10);
    EXPECT_EQ(result.at("tokens"), 1999);
    EXPECT_GT(result.at("perplexity"), result.at("floor_perplexity"));
  }
}

TEST(Train, FederationWritesWhatTheDesignSays) {
  const ScratchFolder folder;
  train(folder, "run", 4, two_groups);
  expect_metrics(folder / "run", 2);
  EXPECT_LT(losses(folder / "run").back(), losses(folder / "run").front());
  for (const int ranks : {1, 3})
    expect_relative(evaluate(folder, ranks, {folder / "run/model.h5"}).at("perplexity"),
                    last_perplexity(folder / "run"), 1e-6);
}

TEST(Train, ModelFileKnowsWhatItWasEvaluatedOn) {
  const ScratchFolder folder;
  train(folder, "run", 2, fsdp, {"run.seed=5"});
  train(folder, "other", 1, fsdp, {"train.steps=1", "data.sequence_length=32", "data.synthetic_eval_tokens=500"});
  const double expected = last_perplexity(folder / "run");
  std::filesystem::copy_file(folder / "other/run.toml", folder / "run/run.toml",
                             std::filesystem::copy_options::overwrite_existing);
  expect_relative(evaluate(folder, 1, {folder / "run"}).at("perplexity"), expected, 1e-6);
  const Json other = evaluate(folder, 1, {folder / "run", "--sequence-length", "32"});
  EXPECT_EQ(other.at("tokens"), 1999);
  EXPECT_NE(other.at("perplexity"), expected);
}

TEST(Train, DoublePrecisionGivesTheSamePerplexityOnAnyGrid) {
  const ScratchFolder folder;
  train(folder, "run", 4, two_groups, {"train.precision=fp64"});
  for (const int ranks : {1, 2, 3})
    expect_relative(evaluate(folder, ranks, {folder / "run", "--precision", "fp64"}).at("perplexity"),
                    last_perplexity(folder / "run"), 1e-12);
}

// The model that is saved is the fp32 masters: evaluated in bf16 it is what the run saw, to the rounding of sums, and
// in fp32 within what weights and activations lose in bf16.
TEST(Train, Bf16TrainsAndSavesFp32) {
  const ScratchFolder folder;
  for (const char* reduce : {"train.reduce_precision=fp32", "train.reduce_precision=bf16"}) {
    train(folder, "run", 4, two_groups, {"train.precision=bf16", reduce});
    expect_metrics(folder / "run", 2);
    const double seen = last_perplexity(folder / "run");
    for (const int ranks : {1, 3})
      expect_relative(evaluate(folder, ranks, {folder / "run", "--precision", "bf16"}).at("perplexity"), seen, 1e-6);
    const double single = evaluate(folder, 1, {folder / "run"}).at("perplexity");
    EXPECT_NE(single, seen);
    expect_relative(single, seen, 1e-2);
  }
  train(folder, "single", 4, two_groups);
  expect_relative(last_perplexity(folder / "run"), last_perplexity(folder / "single"), 2e-2);
}

TEST(Train, RepeatsBitForBit) {
  const ScratchFolder folder;
  train(folder, "run", 4, two_groups);
  const auto first_losses = losses(folder / "run");
  const std::string first_model = content_of(folder / "run/model.h5");
  train(folder, "run", 4, two_groups);  // into the same folder, which it replaces
  expect_metrics(folder / "run", 2);
  EXPECT_EQ(losses(folder / "run"), first_losses);
  EXPECT_EQ(content_of(folder / "run/model.h5"), first_model);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "run"), {}), 3);
}

TEST(Train, FsdpDoesNotDependOnTheRanks) {
  const ScratchFolder folder;
  train(folder, "one", 1, fsdp);
  const auto expected = losses(folder / "one");
  for (const int ranks : {2, 3, 4}) {
    const std::string name = "on" + std::to_string(ranks);
    train(folder, name, ranks, fsdp);
    const auto found = losses(folder / name);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << ranks << " ranks";
  }
}

TEST(Train, AccumulatingIsTheSameBatch) {
  const ScratchFolder folder;
  train(folder, "whole", 2, fsdp);
  train(folder, "pieces", 2, fsdp, {"train.micro_batch=1", "train.recompute=block"});
  const auto whole = losses(folder / "whole"), pieces = losses(folder / "pieces");
  ASSERT_EQ(whole.size(), pieces.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], pieces[i], 1e-5);
}

TEST(Train, StartsFromASavedModel) {
  const ScratchFolder folder;
  train(folder, "first", 2, fsdp);
  train(folder, "second", 4, two_groups, {"model.init_from=" + folder / "first/model.h5"});
  const double start = records(folder / "second", "eval").front().at("perplexity");
  expect_relative(start, last_perplexity(folder / "first"), 1e-6);
}

// Groups of 3 ranks and 1 with batches by their ranks, DiLoCo's outer step, evaluations inside rounds.
TEST(Train, UnequalGroupsWithAnOuterOptimizer) {
  const ScratchFolder folder;
  const std::string unequal = "strategy = \"fl+fsdp\"\ngroup_sizes = [3, 1]\n";
  train(folder, "run", 4, unequal,
        {"train.batch=0", "train.micro_batch=2", "federation.outer=sgd", "federation.inner_state=reset"});
  const auto rounds = records(folder / "run", "round");
  ASSERT_EQ(rounds.size(), 3u);
  EXPECT_EQ(rounds[0].at("tokens"), (Json{4 * 3 * 2 * 16, 4 * 1 * 2 * 16}));
  EXPECT_LT(losses(folder / "run").back(), losses(folder / "run").front());
  for (const int ranks : {1, 3})
    expect_relative(evaluate(folder, ranks, {folder / "run"}).at("perplexity"), last_perplexity(folder / "run"), 1e-6);
}

// MPICH can be told to take even and odd ranks for two nodes: groups that are no neighbours in the world train what
// neighbours do, to the bit.
TEST(Train, GroupsOfNodes) {
  const ScratchFolder folder;
  train(folder, "neighbours", 4, two_groups);
  const std::string config = folder.write("nodes.toml", tiny_run(folder / "nodes", "strategy = \"fl+fsdp\"\n"));
  const Outcome outcome =
      run_program(folder, 4, {"train", config, "--set", "parallel.group_by=node"}, {"MPIR_CVAR_ODD_EVEN_CLIQUES=1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json run = records(folder / "nodes", "run").at(0);
  if (run.at("grid").at("groups").size() == 1) GTEST_SKIP() << "this MPI does not make two nodes of one";
  EXPECT_EQ(losses(folder / "nodes"), losses(folder / "neighbours"));
  EXPECT_EQ(content_of(folder / "nodes/model.h5"), content_of(folder / "neighbours/model.h5"));
  EXPECT_EQ(occurrences(outcome.err, "reach over several nodes"), 0u) << outcome.err;
  // Neighbours in the world are on different nodes then.
  const Outcome spread =
      run_program(folder, 4, {"train", folder.write("spread.toml", tiny_run(folder / "spread", two_groups))},
                  {"MPIR_CVAR_ODD_EVEN_CLIQUES=1"});
  EXPECT_EQ(occurrences(spread.err, "2 of 2 replicas reach over several nodes"), 1u) << spread.err;
}

TEST(Train, ShowsItsConfiguration) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_program(folder, 0, {"train", folder.write("run.toml", tiny_run(folder / "run", fsdp)), "--show-config"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("sequence_length = 16"), std::string::npos) << outcome.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace
}  // namespace atl
