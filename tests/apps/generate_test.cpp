/// `atoll generate`, and what `atoll eval` says of windows and bytes. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <cmath>

namespace atl {
namespace {

const std::string model = std::string(ATOLL_SOURCE_DIR) + "/tests/fixtures/generate.h5";

Outcome generate(const ScratchFolder& folder, int ranks, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"generate", model});
  return run_program(folder, ranks, arguments);
}

std::vector<nlohmann::json> lines(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream in(outcome.out);
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

TEST(GenerateProgram, SameSeedSameTextOnAnyNumberOfRanks) {
  const ScratchFolder folder;
  const std::vector<std::string> arguments{"--tokenizer", "bytes",     "--prompt", "It was",       "--prompt",
                                           "x",           "--samples", "2",        "--max-tokens", "12",
                                           "--top-k",     "90",        "--json",   "--seed",       "7"};
  const auto one = lines(generate(folder, 1, arguments));
  ASSERT_EQ(one.size(), 4u);
  EXPECT_EQ(lines(generate(folder, 3, arguments)), one);
  EXPECT_EQ(one[2].at("prompt"), "x");
  EXPECT_EQ(one[3].at("sample"), 1);
  EXPECT_NE(one[0].at("tokens"), one[1].at("tokens"));
  for (const auto& line : one) {
    EXPECT_EQ(line.at("finish"), "length");
    EXPECT_EQ(line.at("tokens").size(), 12u);
  }
  auto other = arguments;
  other.back() = "8";
  EXPECT_NE(lines(generate(folder, 1, other)), one);
}

TEST(GenerateProgram, PrintsPromptAndTextOfIds) {
  const ScratchFolder folder;
  const Outcome plain =
      generate(folder, 1, {"--tokenizer", "ids", "--prompt", "1 2 3", "--greedy", "--max-tokens", "5"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  std::istringstream words(plain.out);
  std::vector<int> ids;
  for (int id; words >> id;) ids.push_back(id);
  ASSERT_EQ(ids.size(), 8u) << plain.out;
  EXPECT_EQ(std::vector<int>(ids.begin(), ids.begin() + 3), (std::vector<int>{1, 2, 3}));
  // A prompt from a file, and an end at a token.
  const std::string prompt = folder.write("prompt", "1 2\n3\n");
  const auto stopped = lines(generate(folder, 1,
                                      {"--tokenizer", "ids", "--prompt-file", prompt, "--temperature", "0", "--json",
                                       "--stop-token", std::to_string(ids[4])}));
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_EQ(stopped[0].at("finish"), "stop");
  EXPECT_EQ(stopped[0].at("tokens"), nlohmann::json(std::vector<int>(ids.begin() + 3, ids.begin() + 5)));
}

// As transformers: eos_token_id of generation_config.json, or else of config.json, and nothing else.
TEST(GenerateProgram, EndsWhereTheModelsFilesSay) {
  const ScratchFolder folder;
  const auto from = [&](const std::string& path, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"generate", path, "--prompt", "1 2 3", "--greedy", "--max-tokens", "6", "--json"});
    more.insert(more.end(), {"--tokenizer", "ids"});
    return lines(run_program(folder, 1, more)).at(0);
  };
  const std::vector<int> ids = from(model).at("tokens");
  ASSERT_EQ(ids.size(), 6u);
  ASSERT_NE(ids[1], ids[0]);
  folder.write("m/model.h5", content_of(model));
  EXPECT_EQ(from(folder / "m").at("finish"), "length");
  const auto at = [&](std::size_t i) { return std::to_string(ids[i]); };
  folder.write("m/config.json", R"({"eos_token_id": )" + at(1) + "}");
  EXPECT_EQ(from(folder / "m").at("tokens").size(), 2u);
  EXPECT_EQ(from(folder / "m", {"--stop-token", at(0)}).at("tokens").size(), 1u);
  folder.write("m/generation_config.json", R"({"eos_token_id": [9999, )" + at(0) + "]}");
  const auto first = from(folder / "m");
  EXPECT_EQ(first.at("finish"), "stop");
  EXPECT_EQ(first.at("tokens").size(), 1u);
  folder.write("m/generation_config.json", R"({"temperature": 0.6})");
  EXPECT_EQ(from(folder / "m").at("tokens").size(), 2u);
  folder.write("m/generation_config.json", R"({"eos_token_id": "</s>"})");
  const Outcome wrong = run_program(folder, 2, {"generate", folder / "m", "--tokenizer", "ids", "--prompt", "1"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("generation_config.json: eos_token_id = \"</s>\""), std::string::npos) << wrong.err;
}

TEST(GenerateProgram, PrintsWholeCharactersOnly) {
  const ScratchFolder folder;
  const Outcome raw = generate(folder, 1, {"--tokenizer", "bytes", "--prompt", "a", "--max-tokens", "60", "--no-echo"});
  ASSERT_EQ(raw.code, 0) << raw.err;
  // The text of random bytes has invalid ones; what is printed has none, as the JSON parser would tell.
  EXPECT_NO_THROW(nlohmann::json(raw.out).dump());
  EXPECT_NE(raw.out.find("\xef\xbf\xbd"), std::string::npos);
}

TEST(GenerateProgram, RefusesWithTheReason) {
  const ScratchFolder folder;
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"--prompt", "x"}, "does not say its tokenizer"},
      {{"--tokenizer", "words", "--prompt", "x"}, "--tokenizer words: no such file"},
      {{"--tokenizer", "ids"}, "the prompt has no token"},
      {{"--tokenizer", "ids", "--prompt", "7 258"}, "'258' is not a token id in [0, 258)"},
      {{"--tokenizer", "ids", "--prompt", "7", "--top-p", "2"}, "--top-p 2"},
      {{"--tokenizer", "ids", "--prompt", "7", "--max-tokens", "128"}, "are more than the 128 positions"},
      {{"--tokenizer", "ids", "--prompt", "7", "--stop-token", "258"}, "--stop-token 258"},
      {{"--tokenizer", "ids", "--prompt", "7", "--stop-token", "-1"}, "--stop-token -1"},
      {{"--tokenizer", "ids", "--prompt", "7", "--seed", "-1"}, "--seed: -1 is not a number from 0 on"},
      {{"--tokenizer", "ids", "--prompt", "7", "--max-tokens", "0"}, "--max-tokens: 0 is not a number above 0"},
      {{"--tokenizer", "ids", "--precision", "fp8"}, "--precision: fp8 is none of fp32, bf16, fp64"},
      {{"--tokenizer", "ids", "--prompt-file", folder.path()}, "is a folder; name a file with a prompt"},
      {{"--tokenizer", "ids", "--prompt-file", folder / "missing"}, "missing: cannot be read"}};
  for (const auto& [arguments, message] : wrong) {
    const Outcome outcome = generate(folder, 2, arguments);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_EQ(occurrences(outcome.err, "error:"), 1u) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

TEST(EvalProgram, CountsBytesAndWindows) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "line " + std::to_string(i * i) + "\n";
  const std::string in = folder.write("text/a.txt", text);
  ASSERT_EQ(run_program(folder, 0, {"tokenize", in, "--output", folder / "tokens", "--eval-fraction", "0"}).code, 0);
  const auto eval = [&](int ranks, std::vector<std::string> more) {
    std::vector<std::string> all{"eval", model, "--json", "--data", folder / "tokens/train.h5", "--sequence-length",
                                 "32"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_program(folder, ranks, all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json() : nlohmann::json();
  };
  const auto whole = eval(1, {}), strided = eval(1, {"--stride", "8", "--micro-batch", "2"});
  EXPECT_EQ(whole.at("bytes"), text.size());
  EXPECT_EQ(strided.at("bytes"), text.size());
  EXPECT_EQ(strided.at("tokens"), whole.at("tokens"));
  EXPECT_NE(strided.at("loss"), whole.at("loss"));
  EXPECT_NEAR(whole.at("bits_per_byte").get<double>(),
              whole.at("loss").get<double>() * whole.at("tokens").get<double>() / std::log(2.0) / text.size(), 1e-12);
  // The same number, every digit of it, on other grids.
  EXPECT_EQ(eval(3, {"--stride", "8", "--micro-batch", "2"}), strided);
  const auto part = eval(2, {"--batches", "2", "--micro-batch", "2"});
  EXPECT_EQ(part.at("tokens"), 4 * 32);
  EXPECT_EQ(part.at("bytes"), 4 * 32);
  const Outcome wide = run_program(
      folder, 2, {"eval", model, "--data", folder / "tokens/train.h5", "--sequence-length", "32", "--stride", "33"});
  EXPECT_EQ(wide.code, 2);
  EXPECT_NE(wide.err.find("--stride 33"), std::string::npos) << wide.err;
}

// Where attention is confined to documents their first tokens are no targets, and so are the bytes these stand for.
TEST(EvalProgram, CountsBytesOfDocuments) {
  const ScratchFolder folder;
  std::size_t bytes = 0;
  for (int i = 0; i < 10; ++i) {
    // First tokens of one byte: a vocabulary of 258 has no merges.
    std::string text = i < 9 ? std::to_string(i) : "\xf0\x9d\x84\x9e";
    for (int k = 0; k < 30 + i; ++k) text += " word and word";
    bytes += text.size();
    folder.write("text/" + std::to_string(i) + ".txt", text);
  }
  const auto eval = [&](const std::string& data, std::vector<std::string> more) {
    std::vector<std::string> all{"eval", model, "--json", "--data", folder / data, "--sequence-length", "32"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_program(folder, 2, all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json() : nlohmann::json();
  };
  const std::vector<std::string> documents{"--packing", "documents"};
  for (const bool marked : {false, true}) {
    const std::string out = marked ? "marked" : "plain";
    const Outcome tokenized =
        run_program(folder, 0,
                    {"tokenize", folder / "text", "-o", folder / out, "--train-vocab", "258", "--eval-fraction", "0",
                     "--begin-token", marked ? "<|begin_of_text|>" : "none"});
    ASSERT_EQ(tokenized.code, 0) << tokenized.err;
    const auto whole = eval(out + "/train.h5", {}), confined = eval(out + "/train.h5", documents);
    EXPECT_EQ(whole.at("bytes"), bytes);
    EXPECT_EQ(confined.at("tokens").get<int>(), whole.at("tokens").get<int>() - 9);
    EXPECT_EQ(confined.at("bytes"), marked ? bytes : bytes - 10);
    EXPECT_NEAR(confined.at("bits_per_byte").get<double>() * confined.at("bytes").get<double>() * std::log(2.0),
                confined.at("loss").get<double>() * confined.at("tokens").get<double>(), 1e-9);
  }
  const Outcome part = run_program(folder, 1,
                                   {"eval", model, "--data", folder / "plain/train.h5", "--sequence-length", "32",
                                    "--batches", "1", "--micro-batch", "1"});
  EXPECT_NE(part.out.find("not known: only a part of the data"), std::string::npos) << part.out << part.err;
}

}  // namespace
}  // namespace atl
