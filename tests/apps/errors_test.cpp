/// What is wrong is said once, with its exit code, on all ranks, before any training. SPDX-License-Identifier:
/// Apache-2.0
#include "tests/apps/program.hpp"

#include <set>

namespace atl {
namespace {

constexpr double quick = 20;  // seconds: far more than it takes, far less than a hang

class Errors : public ::testing::Test {
 protected:
  /// `atoll train` of the tiny run with overrides must end with this code, and one message with all of `parts`.
  void expect(int ranks, const std::string& parallel, const std::vector<std::string>& settings, int code,
              const std::vector<std::string>& parts) {
    std::vector<std::string> arguments{"train", folder_.write("run.toml", tiny_run(folder_ / "run", parallel))};
    for (const auto& setting : settings) {
      arguments.emplace_back("--set");
      arguments.push_back(setting);
    }
    expect_command(ranks, arguments, code, parts);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run/metrics.jsonl"));
  }

  void expect_command(int ranks, const std::vector<std::string>& arguments, int code,
                      const std::vector<std::string>& parts, const std::vector<std::string>& environment = {}) {
    const Outcome outcome = run_program(folder_, ranks, arguments, environment);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    for (const auto& part : parts) EXPECT_GE(occurrences(outcome.err, part), 1u) << part << "\n in\n" << outcome.err;
    std::istringstream lines(outcome.err);
    std::set<std::string> different;
    for (std::string line; std::getline(lines, line);) EXPECT_TRUE(different.insert(line).second) << outcome.err;
    EXPECT_EQ(occurrences(outcome.err, "atoll: error"), 1u) << outcome.err;
    for (const char* noise : {"Abort", "abort", "BAD TERMINATION", "on rank", "terminate called"})
      EXPECT_EQ(occurrences(outcome.err, noise), 0u) << outcome.err;
    EXPECT_LT(outcome.seconds, quick);
  }

  /// A token file of some text; its ids go up to 257.
  std::string token_file() {
    folder_.write("text.txt", std::string(5000, 'x') + "\n");
    const Outcome outcome =
        run_program(folder_, 0, {"tokenize", folder_ / "text.txt", "-o", folder_ / "tokens", "--overwrite"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return folder_ / "tokens/train.h5";
  }
  std::vector<std::string> train_on(const std::string& file) {
    return {"data.train=" + file, "data.eval=" + folder_ / "tokens/eval.h5", "model.vocab_size=258"};
  }

  ScratchFolder folder_;
};

TEST_F(Errors, UnknownKeyIsToldWithTheNearestName) {
  expect(2, fsdp, {"train.stpes=5"}, 2, {"atoll: error: --set", "train.stpes", "did you mean train.steps?"});
}
TEST_F(Errors, WrongType) { expect(2, fsdp, {"train.steps=many"}, 2, {"train.steps", "expected an integer"}); }
TEST_F(Errors, SettingWithoutAValue) { expect(2, fsdp, {"train.steps"}, 2, {"train.steps"}); }
TEST_F(Errors, GroupsThatDoNotDivideTheRanks) {
  expect(4, "strategy = \"fl+fsdp\"\ngroups = 3\n", {}, 2, {"parallel.groups = 3 does not divide 4 ranks", "2 or 4"});
}
TEST_F(Errors, ShardsThatDoNotDivideTheRanks) {
  expect(4, "strategy = \"hsdp\"\nshard_size = 3\n", {}, 2, {"parallel.shard_size = 3 does not divide 4 ranks"});
}
TEST_F(Errors, GradientsThatTravelInLessThanFp64Needs) {
  expect(2, fsdp, {"train.precision=fp64", "train.reduce_precision=bf16"}, 2, {"train.reduce_precision = \"bf16\""});
}
TEST_F(Errors, VocabularySmallerThanAToken) {
  expect(2, fsdp, {"model.vocab_size=5"}, 3, {"model.vocab_size"});
  auto settings = train_on(token_file());
  settings.back() = "model.vocab_size=100";
  expect(2, fsdp, settings, 3, {"train.h5", "model.vocab_size"});
}
TEST_F(Errors, MissingData) {
  expect(2, fsdp, {"data.train=" + folder_ / "no.h5", "data.eval=" + folder_ / "no.h5"}, 3, {"no.h5"});
}
TEST_F(Errors, DataThatIsNoHdf5) {
  const std::string file = folder_.write("text.h5", std::string(3000, 'x'));
  expect(2, fsdp, {"data.train=" + file, "data.eval=" + file}, 3, {"text.h5"});
}
TEST_F(Errors, TruncatedData) {
  const std::string file = token_file();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  expect(2, fsdp, train_on(file), 3, {"train.h5"});
}
TEST_F(Errors, DataWithAFlippedByte) {
  const std::string file = token_file();
  std::string content = content_of(file);
  content[content.find("x\0x\0x\0x\0", 0, 8)] ^= 1;
  folder_.write("tokens/train.h5", content);
  expect(2, fsdp, train_on(file), 3, {"train.h5", "checksum"});
}
TEST_F(Errors, TooFewSequencesForAStep) {
  expect(4, two_groups, {"data.synthetic_tokens=100"}, 3, {"has 7 sequences of 16 tokens", "takes 16"});
}
TEST_F(Errors, RunFolderThatCannotBe) {
  const std::string file = folder_.write("file", "in the way");
  expect(2, fsdp, {"run.dir=" + file + "/run"}, 2, {"run.dir = \"" + file + "/run\""});
}
TEST_F(Errors, MissingConfiguration) {
  expect_command(2, {"train", folder_ / "no.toml"}, 2, {"atoll: error", "no.toml"});
}
TEST_F(Errors, MissingModelToStartFrom) { expect(2, fsdp, {"model.init_from=" + folder_ / "no.h5"}, 3, {"no.h5"}); }
TEST_F(Errors, ModelOfAnotherSizeToStartFrom) {
  const std::string config = folder_.write("first.toml", tiny_run(folder_ / "first", fsdp));
  ASSERT_EQ(run_program(folder_, 1, {"train", config, "--set", "train.steps=1"}).code, 0);
  expect(2, fsdp, {"model.init_from=" + folder_ / "first/model.h5", "model.hidden_size=32"}, 3, {"first/model.h5"});
}
TEST_F(Errors, RunThatWouldReplaceTheModelItStartsFrom) {
  const std::string config = folder_.write("run.toml", tiny_run(folder_ / "run", fsdp));
  ASSERT_EQ(run_program(folder_, 1, {"train", config, "--set", "train.steps=1"}).code, 0);
  const std::string model = content_of(folder_ / "run/model.h5");
  expect_command(2, {"train", config, "--set", "model.init_from=" + folder_ / "run/../run/model.h5"}, 2,
                 {"model.init_from", "choose another run.dir"});
  EXPECT_EQ(content_of(folder_ / "run/model.h5"), model);
}
TEST_F(Errors, RefusedRunLeavesWhatIsInItsFolder) {
  const std::string config = folder_.write("run.toml", tiny_run(folder_ / "run", fsdp));
  ASSERT_EQ(run_program(folder_, 1, {"train", config, "--set", "train.steps=1"}).code, 0);
  const char* const files[] = {"run/model.h5", "run/run.toml", "run/metrics.jsonl"};
  std::vector<std::string> before;
  for (const char* file : files) before.push_back(content_of(folder_ / file));
  expect_command(2, {"train", config, "--set", "model.vocab_size=5"}, 3, {"model.vocab_size"});
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(content_of(folder_ / files[i]), before[i]) << files[i];
}
TEST_F(Errors, WrongSubcommand) { expect_command(2, {"trian"}, 2, {"trian", "did you mean train?"}); }
TEST_F(Errors, NoSubcommand) { expect_command(2, {}, 2, {"subcommand"}); }
TEST_F(Errors, WrongOption) { expect_command(2, {"train", "run.toml", "--sett", "x=1"}, 2, {"--sett"}); }
TEST_F(Errors, MissingModelToEvaluate) {
  expect_command(2, {"eval", folder_ / "no.h5", "--data", "synthetic", "--sequence-length", "16"}, 3, {"no.h5"});
}
TEST_F(Errors, NoModelFileToEvaluate) {
  const std::string file = token_file();
  expect_command(2, {"eval", file, "--data", file, "--sequence-length", "16"}, 3, {"not a model file"});
}
TEST_F(Errors, EvaluationOnATokenOfAnotherVocabulary) {
  const std::string config = folder_.write("first.toml", tiny_run(folder_ / "first", fsdp));
  ASSERT_EQ(run_program(folder_, 1, {"train", config, "--set", "train.steps=1"}).code, 0);
  expect_command(2, {"eval", folder_ / "first", "--data", token_file()}, 3, {"train.h5"});
}
TEST_F(Errors, ThreadsThatAreNoNumber) {
  const std::string config = folder_.write("run.toml", tiny_run(folder_ / "run", fsdp));
  expect_command(2, {"train", config}, 2, {"KOKKOS_NUM_THREADS = \"many\""}, {"KOKKOS_NUM_THREADS=many"});
}

// Every copy would train alone and write into the same folder. Only the first one tells.
TEST_F(Errors, LauncherOfAnotherMpi) {
  const std::string config = folder_.write("run.toml", tiny_run(folder_ / "run", fsdp));
  expect_command(0, {"train", config}, 2, {"srun started 4 processes", "--mpi=list"},
                 {"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0"});
  const Outcome second = run_program(folder_, 0, {"train", config}, {"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1"});
  EXPECT_EQ(second.code, 2);
  EXPECT_EQ(second.err, "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

// Found in the middle. All ranks of a group find it alike: one line for each group, and of one group alone no abort.
TEST_F(Errors, GradientThatIsNotFiniteEndsTheJob) {
  for (const auto* parallel : {fsdp, two_groups}) {
    const std::string config = folder_.write("run.toml", tiny_run(folder_ / "run", parallel));
    folder_.write("run/model.h5", "of an earlier run");
    const Outcome outcome = run_program(
        folder_, 4,
        {"train", config, "--set", "optimizer.kind=sgd", "--set", "optimizer.lr=1e30", "--set", "optimizer.clip_norm=0",
         "--set", "schedule.warmup=0", "--set", "train.steps=1000000", "--set", "log.every=1"});
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(occurrences(outcome.err, "the gradient of optimizer step "), occurrences(outcome.err, "atoll: error"));
    EXPECT_GE(occurrences(outcome.err, "lower optimizer.lr"), 1u) << outcome.err;
    EXPECT_LE(occurrences(outcome.err, "atoll: error"), parallel == fsdp ? 1u : 2u) << outcome.err;
    if (parallel == fsdp) {
      EXPECT_EQ(occurrences(outcome.err, "atoll: error on rank"), 0u) << outcome.err;
    }
    EXPECT_LT(outcome.seconds, quick);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run/model.h5"));
    // One group alone does not keep its records until a round ends (after 4 steps).
    if (parallel == fsdp) {
      EXPECT_GE(records(folder_ / "run", "step").size(), 1u);
    }
  }
}

TEST_F(Errors, GroupsThatCannotBe) {
  expect(4, "strategy = \"fl+fsdp\"\ngroup_sizes = [2, 1]\n", {}, 2,
         {"parallel.group_sizes = [2, 1] are 3 ranks, but there are 4"});
  const std::string cells = folder_.write("cells", "somewhere-else 1\n");
  expect(2, "strategy = \"fl+fsdp\"\n", {"parallel.group_file=" + cells}, 2, {cells, "is missing"});
  expect(2, "strategy = \"fl+fsdp\"\n", {"parallel.group_file=" + folder_ / "no"}, 2, {"cannot be read"});
}

}  // namespace
}  // namespace atl
