/// From text files to the perplexity of a model trained on them. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

namespace atl {
namespace {

TEST(Text, IsTokenizedTrainedOnAndEvaluated) {
  const ScratchFolder folder;
  for (int i = 0; i < 20; ++i) {
    std::string text;
    for (int line = 0; line < 20; ++line) text += "line " + std::to_string(line * i) + " of a text, na\u00efve\n";
    folder.write("texts/" + std::to_string(i) + ".txt", text);
  }
  const Outcome tokenized = run_program(
      folder, 0, {"tokenize", folder / "texts", "-o", folder / "tokens", "--eval-fraction", "0.2", "--json"});
  ASSERT_EQ(tokenized.code, 0) << tokenized.err;
  const auto counts = tokenized.json();
  EXPECT_EQ(counts.at("train").at("documents").get<int>() + counts.at("eval").at("documents").get<int>(), 20);

  const std::string train = folder / "tokens/train.h5", eval = folder / "tokens/eval.h5";
  const Outcome trained = run_program(
      folder, 4,
      {"train", folder.write("run.toml", tiny_run(folder / "run", two_groups)), "--set", "data.train=" + train, "--set",
       "data.eval=" + eval, "--set", "model.vocab_size=258", "--set", "train.steps=40"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto evaluations = records(folder / "run", "eval");
  const double before = evaluations.front().at("perplexity"), after = evaluations.back().at("perplexity");
  EXPECT_NEAR(before, 258, 20);
  EXPECT_LT(after, 60);
  EXPECT_EQ(evaluations.back().at("tokens"), counts.at("eval").at("tokens").get<int>() - 1);
  EXPECT_TRUE(records(folder / "run", "language").empty());  // nobody knows the floor of a text

  const Outcome same = run_program(folder, 2, {"eval", folder / "run", "--json"});
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_NEAR(same.json().at("perplexity"), after, 1e-6 * after);

  // The model knows the text it was trained on, too; and a model file alone says what its run was evaluated on.
  const Outcome other = run_program(folder, 1, {"eval", folder / "run", "--json", "--data", train});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.json().at("tokens"), counts.at("train").at("tokens").get<int>() - 1);
  std::filesystem::create_directory(folder / "elsewhere");
  std::filesystem::copy_file(folder / "run/model.h5", folder / "elsewhere/alone.h5");
  const Outcome alone = run_program(folder, 1, {"eval", folder / "elsewhere/alone.h5", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_NEAR(alone.json().at("perplexity"), after, 1e-6 * after);
  const Outcome known = run_program(
      folder, 1, {"eval", folder / "elsewhere/alone.h5", "--json", "--data", eval, "--sequence-length", "16"});
  ASSERT_EQ(known.code, 0) << known.err;
  EXPECT_NEAR(known.json().at("perplexity"), after, 1e-6 * after);
}

}  // namespace
}  // namespace atl
