/// data.packing from end to end: every grid, mixtures, going on, evaluation. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <cmath>

namespace atl {
namespace {

using Json = nlohmann::json;

constexpr int end_token = 63;
constexpr int sequence_length = 80;  // longer than a block of attention

/// A nanoGPT file of documents of 1 to `most` tokens, the last of which is end_token.
std::string documents(std::size_t n, unsigned most, unsigned seed) {
  std::string bytes;
  unsigned state = seed, left = 1;
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    if (--left == 0) {
      bytes += {static_cast<char>(end_token), '\0'};
      left = 1 + (state >> 16) % most;
    } else {
      bytes += {static_cast<char>((state >> 16) % 60), '\0'};
    }
  }
  return bytes;
}

class PackingProgram : public ::testing::Test {
 protected:
  PackingProgram() {
    folder_.write("a.bin", documents(9000, 40, 1));
    folder_.write("b.bin", documents(5000, 150, 2));
    folder_.write("eval.bin", documents(1500, 60, 3));
  }
  Outcome train(int ranks, const std::string& run, const std::string& parallel, const std::vector<std::string>& more,
                int code = 0) const {
    std::vector<std::string> arguments{"train", folder_.write(run + ".toml", tiny_run(folder_ / run, parallel))};
    for (const std::string& setting :
         {"data.train=[\"" + folder_ / "a.bin" + "\", \"" + folder_ / "b.bin" + "\"]",
          std::string("data.weights=[2, 1]"), "data.eval=" + folder_ / "eval.bin", std::string("data.raw_type=uint16"),
          "data.sequence_length=" + std::to_string(sequence_length), std::string("train.precision=fp64"),
          std::string("schedule.kind=constant"), std::string("log.every=1")})
      arguments.insert(arguments.end(), {"--set", setting});
    for (const auto& setting : more) arguments.insert(arguments.end(), {"--set", setting});
    Outcome outcome = run_program(folder_, ranks, arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return outcome;
  }
  std::vector<Json> steps(const std::string& run) const { return records(folder_ / run, "step"); }
  double last_perplexity(const std::string& run) const {
    return records(folder_ / run, "eval").back().at("perplexity");
  }
  Json evaluate(int ranks, const std::string& run, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"eval", "--json", folder_ / run, "--raw-type", "uint16", "--precision", "fp64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_program(folder_, ranks, arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json() : Json();
  }
  /// Tokens to the last, numbers to rounding in fp64.
  void expect_same(const std::vector<Json>& found, const std::vector<Json>& expected, const std::string& what) const {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].at("tokens"), expected[i].at("tokens")) << what << ", step " << i;
      for (const char* key : {"loss", "grad_norm"}) {
        const double value = expected[i].at(key);
        EXPECT_NEAR(found[i].at(key).get<double>(), value, 1e-11 * value) << what << ", " << key << " of step " << i;
      }
    }
  }

  const std::vector<std::string> packed_{"data.packing=documents", "data.end_of_document=" + std::to_string(end_token)};
  ScratchFolder folder_;
};

TEST_F(PackingProgram, DoesNotDependOnTheGrid) {
  train(1, "one", fsdp, packed_);
  const auto expected = steps("one");
  ASSERT_EQ(expected.size(), 10u);
  for (const int ranks : {2, 4}) {
    train(ranks, "fsdp", fsdp, packed_);
    expect_same(steps("fsdp"), expected, "fsdp on " + std::to_string(ranks));
  }
  auto with_recompute = packed_;
  with_recompute.emplace_back("train.recompute=block");
  with_recompute.emplace_back("train.micro_batch=2");
  train(1, "recompute", fsdp, with_recompute);
  expect_same(steps("recompute"), expected, "recompute, accumulation");
  train(2, "groups", two_groups, packed_);
  train(4, "groups_of_two", two_groups, packed_);
  expect_same(steps("groups_of_two"), steps("groups"), "fl+fsdp");
  EXPECT_NEAR(last_perplexity("groups_of_two"), last_perplexity("groups"), 1e-11 * last_perplexity("groups"));

  train(1, "concatenated", fsdp, {});
  EXPECT_LT(expected.back().at("tokens"), steps("concatenated").back().at("tokens")) << "fewer targets";
  EXPECT_NE(steps("concatenated").front().at("loss"), expected.front().at("loss"));
}

TEST_F(PackingProgram, GoesOnToTheBitAndKeepsItsPacking) {
  auto saving = packed_;
  saving.emplace_back("checkpoint.every=4");
  saving.emplace_back("checkpoint.keep=0");
  train(2, "whole", two_groups, saving);
  auto again = saving;
  again.push_back("checkpoint.resume=" + folder_ / "whole/checkpoints/step_000004");
  train(2, "again", two_groups, again);
  const auto whole = steps("whole"), rest = steps("again");
  ASSERT_EQ(rest.size(), 6u);
  for (std::size_t i = 0; i < rest.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "tokens"}) EXPECT_EQ(rest[i].at(key), whole[4 + i].at(key)) << i;
  train(4, "elsewhere", two_groups, again);
  expect_same(steps("elsewhere"), rest, "on another grid");

  const std::string resume = again.back();
  EXPECT_NE(train(2, "other", two_groups, {resume}, 2).err.find("data.packing = \"concatenate\", but the checkpoint"),
            std::string::npos);
  EXPECT_NE(train(2, "other", two_groups, {resume, packed_[0], "data.end_of_document=5"}, 2)
                .err.find("data.end_of_document = 5, but the checkpoint was made with 63"),
            std::string::npos);
}

TEST_F(PackingProgram, EvaluatesAsItsRunDid) {
  train(2, "run", fsdp, packed_);
  const double expected = last_perplexity("run");
  for (const int ranks : {1, 3}) {
    const Json found = evaluate(ranks, "run");
    EXPECT_NEAR(found.at("perplexity").get<double>(), expected, 1e-11 * expected) << ranks;
    EXPECT_LT(found.at("tokens"), 1499);
  }
  EXPECT_EQ(evaluate(2, "run", {"--packing", "concatenate"}).at("tokens"), 1499);
  train(1, "plain", fsdp, {});
  EXPECT_EQ(evaluate(1, "plain").at("tokens"), 1499);
  EXPECT_EQ(evaluate(1, "plain", {"--packing", "documents", "--end-of-document", "63"}).at("tokens"),
            evaluate(1, "run").at("tokens"));
  // Any window sees all of a document that is shorter: here from the start of each to its end, whatever the stride.
  const Json strided = evaluate(1, "run", {"--stride", "7"});
  EXPECT_EQ(strided.at("tokens"), evaluate(1, "run").at("tokens"));
  EXPECT_NE(strided.at("perplexity"), evaluate(1, "run").at("perplexity"));
}

TEST_F(PackingProgram, RefusesWhatHasNoDocuments) {
  const auto refused = [&](const std::vector<std::string>& settings, int code) {
    return train(2, "refused", fsdp, settings, code).err;
  };
  EXPECT_NE(refused({packed_[0]}, 3).find("a.bin: does not say where its documents begin"), std::string::npos);
  EXPECT_NE(refused({packed_[0], "data.end_of_document=62"}, 3).find("a.bin: has no token 62"), std::string::npos);
  EXPECT_NE(refused({packed_[1]}, 2).find("data.end_of_document = 63 has no meaning with data.packing"),
            std::string::npos);
  EXPECT_NE(refused({packed_[0], "data.train=synthetic", "data.weights=[]", "data.eval=synthetic"}, 2)
                .find("has no meaning with the synthetic language"),
            std::string::npos);
  // Of a pattern one file has an index, the other has none.
  std::filesystem::copy_file(ATOLL_SOURCE_DIR "/tests/fixtures/tokens/megatron_uint16.bin", folder_ / "z_1.bin");
  std::filesystem::copy_file(ATOLL_SOURCE_DIR "/tests/fixtures/tokens/megatron_uint16.idx", folder_ / "z_1.idx");
  folder_.write("z_2.bin", documents(900, 9, 4));
  EXPECT_NE(refused({packed_[0], packed_[1], "data.train=" + folder_ / "z_*.bin", "data.weights=[]"}, 3)
                .find("z_2.bin does not; with data.packing = \"documents\" name them apart"),
            std::string::npos);
}

TEST_F(PackingProgram, InspectAndPlanMentionIt) {
  const std::vector<std::string> model{
      "--preset", "125m", "--set", "train.batch=8", "--set", "data.packing=documents", "--set", "data.train=x.h5"};
  std::vector<std::string> arguments{"inspect"};
  arguments.insert(arguments.end(), model.begin(), model.end());
  const Outcome inspected = run_program(folder_, 0, arguments);
  EXPECT_NE(inspected.out.find("attention inside documents"), std::string::npos) << inspected.out << inspected.err;
  arguments[0] = "plan";
  arguments.insert(arguments.end(), {"--system", ATOLL_SOURCE_DIR "/examples/systems/dgx-h100.toml", "--nodes", "2"});
  const Outcome planned = run_program(folder_, 0, arguments);
  EXPECT_NE(planned.out.find("attention costs as if each sequence were one document"), std::string::npos)
      << planned.out << planned.err;
}

}  // namespace
}  // namespace atl
