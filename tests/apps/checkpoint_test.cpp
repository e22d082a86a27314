/// Checkpoints as users of the program meet them: going on, on the same grid to the bit and on others, after faults
/// and with changed keys. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <cmath>

namespace atl {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const char* const saving = "[checkpoint]\nevery = 2\nalign = \"step\"\nkeep = 0\n";

/// Trains 20 steps in rounds of 4, with a checkpoint every 2.
Outcome train(const ScratchFolder& folder, const std::string& name, int ranks, const std::string& parallel,
              const std::vector<std::string>& more = {}, int code = 0) {
  std::vector<std::string> arguments{"train", folder.write(name + ".toml", tiny_run(folder / name, parallel) + saving),
                                     "--set", "train.steps=20"};
  for (const auto& setting : more) {
    arguments.emplace_back("--set");
    arguments.push_back(setting);
  }
  Outcome outcome = run_program(folder, ranks, arguments);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  return outcome;
}

std::string checkpoint(const std::string& run, int step) {
  char name[32];
  std::snprintf(name, sizeof name, "/checkpoints/step_%06d", step);
  return run + name;
}
/// Names in the folder of a run's checkpoints.
std::vector<std::string> checkpoints(const std::string& run) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}
void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in\n" << text;
}
void flip_byte(const std::string& path, std::size_t offset) {
  std::string content = content_of(path);
  ASSERT_LT(offset, content.size());
  content[offset] = static_cast<char>(content[offset] ^ 1);
  std::ofstream(path, std::ios::binary) << content;
}

/// What does not depend on the clock.
std::vector<Json> results(const std::string& run) {
  std::vector<Json> found;
  for (const char* const kind : {"step", "eval", "round"})
    for (const Json& record : records(run, kind)) {
      Json result;
      for (const char* const key :
           {"kind", "step", "round", "tokens", "loss", "lr", "grad_norm", "perplexity", "drift"})
        if (record.contains(key)) result[key] = record[key];
      found.push_back(result);
    }
  return found;
}
double last_perplexity(const std::string& run) { return records(run, "eval").back().at("perplexity"); }

/// Runs that were never interrupted, made once.
class CheckpointProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder;
    train(*folder_, "fsdp", 2, fsdp);
    train(*folder_, "groups", 4, two_groups);
  }
  static void TearDownTestSuite() { delete folder_; }

  /// A copy of such a run as it was after that step.
  static std::string stopped(const std::string& whole, const std::string& name, int step) {
    const std::string run = *folder_ / name;
    fs::remove_all(run);
    fs::copy(*folder_ / whole, run, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::remove(run + "/model.h5");
    for (int s = step + 1; s <= 20; ++s) fs::remove_all(checkpoint(run, s));
    return run;
  }
  static void expect_same_run(const std::string& run, const std::string& whole) {
    EXPECT_EQ(results(run), results(*folder_ / whole));
    EXPECT_EQ(records(run, "round").size(), 5u);
    EXPECT_TRUE(content_of(run + "/model.h5") == content_of(*folder_ / (whole + "/model.h5"))) << run;
  }
  static const ScratchFolder& folder() { return *folder_; }

 private:
  static inline ScratchFolder* folder_ = nullptr;
};

TEST_F(CheckpointProgram, GoesOnToTheBit) {
  const std::string run = stopped("fsdp", "again", 10);
  const Outcome outcome = train(folder(), "again", 2, fsdp);
  expect_words(outcome.err, {"going on from " + checkpoint(run, 10) + ", after step 10\n"});
  EXPECT_EQ(occurrences(outcome.err, "W "), 0u) << outcome.err;
  expect_same_run(run, "fsdp");
  EXPECT_EQ(records(run, "resume").at(0).at("step"), 10);
  // Inside a round, and between two.
  for (const int step : {10, 12}) {
    const std::string federated = stopped("groups", "again", step);
    train(folder(), "again", 4, two_groups);
    expect_same_run(federated, "groups");
  }
}

// The state of the outer optimizer, and moments that start anew in each round.
TEST_F(CheckpointProgram, GoesOnToTheBitWithAnOuterOptimizer) {
  const std::vector<std::string> settings{"federation.outer=sgd", "federation.inner_state=reset",
                                          "train.precision=fp64", "checkpoint.async=false", "checkpoint.writers=2"};
  train(folder(), "outer", 2, two_groups, settings);
  for (const int step : {10, 12}) {
    const std::string run = stopped("outer", "again", step);
    train(folder(), "again", 2, two_groups, settings);
    expect_same_run(run, "outer");
  }
}

// Masters and moments are saved in fp32; the bf16 that was computed with follows from them.
TEST_F(CheckpointProgram, GoesOnToTheBitInBf16) {
  const std::vector<std::string> settings{"train.precision=bf16"};
  train(folder(), "half", 4, two_groups, settings);
  for (const int step : {10, 12}) {
    const std::string run = stopped("half", "again", step);
    train(folder(), "again", 4, two_groups, settings);
    expect_same_run(run, "half");
  }
}

TEST_F(CheckpointProgram, GoesOnOnOtherGrids) {
  const double expected = last_perplexity(folder() / "groups");
  struct Grid {
    int ranks;
    std::string parallel;
  };
  for (const auto& [ranks, parallel] : {Grid{1, fsdp}, Grid{3, "strategy = \"fl+fsdp\"\ngroups = 3\n"}}) {
    stopped("groups", "again", 10);
    const Outcome outcome = train(folder(), "again", ranks, parallel);
    expect_words(outcome.err, {"saved inside a round of 2 groups", "go on from their weighted mean",
                               "moments are the weighted mean of those of 2 groups"});
    EXPECT_NEAR(last_perplexity(folder() / "again") / expected, 1, 0.05) << ranks << " ranks";
    EXPECT_EQ(records(folder() / "again", "step").size(), 20u);
  }
  // The same groups of other sizes: every group has its own, and nothing is said.
  const std::string run = stopped("groups", "again", 10);
  const Outcome outcome = train(folder(), "again", 3, "strategy = \"fl+fsdp\"\ngroup_sizes = [1, 2]\n");
  EXPECT_EQ(occurrences(outcome.err, "mean"), 0u) << outcome.err;
  const auto whole = results(folder() / "groups"), found = results(run);
  ASSERT_EQ(found.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(found[i].value("loss", 0.0), whole[i].value("loss", 0.0), 1e-4) << whole[i];
}

TEST_F(CheckpointProgram, SkipsWhatIsCorruptOrIncomplete) {
  const std::string run = stopped("fsdp", "again", 20);
  const std::string data = checkpoint(run, 20) + "/data/w00000.h5";
  flip_byte(data, fs::file_size(data) / 2);
  fs::remove(checkpoint(run, 18) + "/COMMIT");
  fs::create_directories(run + "/checkpoints/.tmp-0123/data");
  const Outcome outcome = train(folder(), "again", 2, fsdp);
  expect_words(outcome.err,
               {"checkpoint skipped: " + data + ": corrupt: the ", " bytes from offset ",
                "checkpoint skipped: " + checkpoint(run, 18) + "/COMMIT: missing, so this is not a complete checkpoint",
                "going on from " + checkpoint(run, 16), "now " + run + "/checkpoints/set_aside_step_000018",
                "set_aside_step_000020"});
  expect_same_run(run, "fsdp");
  std::vector<std::string> names{"latest", "set_aside_step_000018", "set_aside_step_000020"};
  for (int step = 2; step <= 20; step += 2) names.push_back(fs::path(checkpoint("", step)).filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(checkpoints(run), names);

  for (int step = 2; step <= 20; step += 2) fs::resize_file(checkpoint(run, step) + "/model.h5", 100);
  const std::string metrics = content_of(run + "/metrics.jsonl");
  expect_words(train(folder(), "again", 2, fsdp, {}, 3).err,
               {"none of the 10 checkpoints in " + run + "/checkpoints can be used", "model.h5: has 100 bytes",
                "checkpoint.resume = \"never\" to start anew"});
  EXPECT_EQ(content_of(run + "/metrics.jsonl"), metrics);
  EXPECT_EQ(checkpoints(run), names);
  expect_words(train(folder(), "again", 2, fsdp, {"checkpoint.resume=never"}).err,
               {"set_aside_step_000002", "set_aside_step_000020_2"});
  expect_same_run(run, "fsdp");
  EXPECT_EQ(records(run, "run").size(), 1u);
}

TEST_F(CheckpointProgram, GoesOnFromAPath) {
  const std::string run = stopped("fsdp", "again", 20);
  expect_words(train(folder(), "again", 2, fsdp, {"checkpoint.resume=" + checkpoint(run, 6)}).err,
               {"going on from " + checkpoint(run, 6), "set_aside_step_000008", "set_aside_step_000020"});
  expect_same_run(run, "fsdp");
  EXPECT_TRUE(fs::exists(checkpoint(run, 8)));
  flip_byte(checkpoint(run, 6) + "/MANIFEST.json", 100);
  expect_words(train(folder(), "again", 2, fsdp, {"checkpoint.resume=" + checkpoint(run, 6)}, 3).err,
               {"MANIFEST.json: does not have the hash that COMMIT says"});
  expect_words(train(folder(), "again", 2, fsdp, {"checkpoint.resume=" + run + "/nowhere"}, 3).err,
               {"nowhere/COMMIT: missing", "No such file"});
}

TEST_F(CheckpointProgram, SaysWhatChanged) {
  const std::string run = stopped("fsdp", "again", 10);
  const Outcome outcome =
      train(folder(), "again", 2, fsdp, {"train.steps=12", "optimizer.lr=0.005", "eval.every=3", "log.every=1"});
  expect_words(outcome.err, {"going on from " + checkpoint(run, 10) +
                             ", after step 10; changed: eval.every 5 -> 3, "
                             "optimizer.lr 0.01 -> 0.005, train.steps 20 -> 12\n"});
  EXPECT_EQ(records(run, "step").size(), 12u);
  EXPECT_EQ(records(run, "resume").at(0).at("changes"),
            "eval.every 5 -> 3, optimizer.lr 0.01 -> 0.005, train.steps 20 -> 12");
}

TEST_F(CheckpointProgram, RefusesToBecomeAnotherRun) {
  const std::string run = stopped("groups", "again", 10);
  const auto names = checkpoints(run);
  const std::string metrics = content_of(run + "/metrics.jsonl");
  const std::vector<std::pair<std::string, std::string>> refused{
      {"model.hidden_size=32", "hidden_size"},       {"run.seed=2", "run.seed"},
      {"train.precision=fp64", "train.precision"},   {"optimizer.kind=sgd", "optimizer.kind"},
      {"federation.outer=sgd", "federation.outer"},  {"data.sequence_length=8", "data.sequence_length"},
      {"data.synthetic_tokens=20001", "data.train"}, {"train.steps=9", "train.steps"}};
  for (const auto& [setting, key] : refused)
    expect_words(train(folder(), "again", 2, two_groups, {setting}, 2).err, {key + " = "});
  EXPECT_EQ(checkpoints(run), names);
  EXPECT_EQ(content_of(run + "/metrics.jsonl"), metrics);
}

TEST_F(CheckpointProgram, InspectsAndVerifies) {
  const std::string path = checkpoint(stopped("groups", "again", 20), 10);
  const Outcome seen = run_program(folder(), 0, {"inspect", path});
  EXPECT_EQ(seen.code, 0) << seen.err;
  expect_words(seen.out, {"step 10, round 2 and into the next, 2560 tokens, 160 sequences", "not verified",
                          "2 groups of 1 replicas x 2 shards", "groups/*/moment1"});
  const Json json = run_program(folder(), 0, {"inspect", path, "--verify", "--json"}).json();
  EXPECT_EQ(json.at("step"), 10);
  EXPECT_EQ(json.at("in_round"), true);
  EXPECT_EQ(json.at("tokens"), 2560);
  EXPECT_EQ(json.at("verified"), true);
  EXPECT_EQ(json.at("arrays").at("model"), 4 * 5968);
  EXPECT_EQ(json.at("arrays").at("groups/*/moment2"), 2 * 4 * 5968);
  EXPECT_EQ(json.at("configuration").at("train").at("steps"), 20);
  expect_words(run_program(folder(), 0, {"inspect", path, "--verify"}).out, {"every byte has its hash"});
  const std::string data = path + "/data/w00000.h5";
  flip_byte(data, fs::file_size(data) - 1);
  EXPECT_EQ(run_program(folder(), 0, {"inspect", path}).code, 0);
  const Outcome corrupt = run_program(folder(), 0, {"inspect", path, "--verify"});
  EXPECT_EQ(corrupt.code, 3);
  expect_words(corrupt.err, {data + ": corrupt", "offset"});
}

// Inside a round the groups differ: the checkpoint's model is their mean.
TEST_F(CheckpointProgram, EvaluatesAndStartsFromACheckpoint) {
  for (const std::string whole : {"fsdp", "groups"}) {
    const std::string run = folder() / whole;
    const double expected = records(run, "eval").at(2).at("perplexity");
    EXPECT_EQ(records(run, "eval").at(2).at("step"), 10);
    const auto evaluate = [&](int ranks, const std::string& subject) {
      const Outcome outcome = run_program(folder(), ranks, {"eval", subject, "--json"});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return outcome.json().at("perplexity").get<double>();
    };
    EXPECT_NEAR(evaluate(1, checkpoint(run, 10)) / expected, 1, 1e-6);
    EXPECT_NEAR(evaluate(3, checkpoint(run, 10) + "/model.h5") / expected, 1, 1e-6);
    const Outcome started = run_program(folder(), 2,
                                        {"train", folder().write("init.toml", tiny_run(folder() / "init", fsdp)),
                                         "--init-from", checkpoint(run, 10), "--set", "checkpoint.resume=never"});
    EXPECT_EQ(started.code, 0) << started.err;
    EXPECT_NEAR(records(folder() / "init", "eval").front().at("perplexity").get<double>() / expected, 1, 1e-6);
  }
}

TEST_F(CheckpointProgram, KeepsWhatItIsTold) {
  train(folder(), "keep", 2, fsdp, {"checkpoint.keep=2", "checkpoint.keep_every=8"});
  EXPECT_EQ(checkpoints(folder() / "keep"),
            (std::vector<std::string>{"latest", "step_000008", "step_000016", "step_000018", "step_000020"}));
  EXPECT_EQ(fs::read_symlink(folder() / "keep/checkpoints/latest"), "step_000020");
  // At the ends of rounds alone: those after steps 5, 10 and 15, and the last.
  train(folder(), "rounds", 2, two_groups, {"checkpoint.every=5", "checkpoint.align=round"});
  EXPECT_EQ(checkpoints(folder() / "rounds"),
            (std::vector<std::string>{"latest", "step_000008", "step_000012", "step_000016", "step_000020"}));
}

TEST_F(CheckpointProgram, PythonReadsTheModel) {
  if (run_command(folder(), "python3", 0, {"-c", "import h5py"}).code != 0) GTEST_SKIP() << "no python3 with h5py";
  const std::string script = folder().write("compare.py", R"(
import sys, h5py
with h5py.File(sys.argv[1], "r") as saved, h5py.File(sys.argv[2], "r") as model:
    names = []
    model.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    assert len(names) == len(saved) and len(names) > 15, names
    for name in names:
        assert saved[name].is_virtual and not model[name].is_virtual, name
        assert saved[name].shape == model[name].shape and saved[name].dtype == model[name].dtype, name
        assert (saved[name][...] == model[name][...]).all(), name
    for key in ("format", "config", "step", "tokens"):
        assert saved.attrs[key] == model.attrs[key], key
    print(model["model.embed_tokens.weight"].shape)
)");
  const std::string run = folder() / "groups";
  const Outcome outcome =
      run_command(folder(), "python3", 0, {script, checkpoint(run, 20) + "/model.h5", run + "/model.h5"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "(64, 16)\n");
}

}  // namespace
}  // namespace atl
