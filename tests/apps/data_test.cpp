/// Training on token arrays and mixtures of them. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <cstdint>

namespace atl {
namespace {

namespace fs = std::filesystem;

/// A nanoGPT file of n tokens below 64, in a pattern of its own.
std::string tokens(std::size_t n, std::uint32_t factor) {
  std::string bytes;
  for (std::size_t i = 0; i < n; ++i) bytes += {static_cast<char>(i * i * factor % 61 + i % 3), '\0'};
  return bytes;
}

class DataProgram : public ::testing::Test {
 protected:
  DataProgram() {
    folder_.write("a.bin", tokens(3000, 1));
    folder_.write("b_1.bin", tokens(500, 3));
    folder_.write("b_2.bin", tokens(700, 5));
  }
  Outcome train(int ranks, const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"train", folder_.write(run + ".toml", tiny_run(folder_ / run, fsdp))};
    for (const std::string& setting :
         {"data.train=[\"" + folder_ / "a.bin" + "\", \"" + folder_ / "b_*.bin" + "\"]",
          std::string("data.weights=[1, 3]"), std::string("data.raw_type=uint16"), std::string("data.eval="),
          std::string("eval.every=0"), std::string("train.steps=20"), std::string("schedule.kind=constant"),
          std::string("checkpoint.every=10"), std::string("log.every=1")})
      arguments.insert(arguments.end(), {"--set", setting});
    for (const auto& setting : more) arguments.insert(arguments.end(), {"--set", setting});
    return run_program(folder_, ranks, arguments);
  }
  std::string checkpoint(const std::string& run, const std::string& step) const {
    for (const auto& entry : fs::directory_iterator(folder_ / run + "/checkpoints"))
      if (entry.path().filename().string().find(step) != std::string::npos) return entry.path().string();
    return "none";
  }
  ScratchFolder folder_;
};

TEST_F(DataProgram, MixturesGoOnWhereTheyStopped) {
  const Outcome whole = train(2, "whole", {});
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_NE(whole.err.find("a.bin: 25 % of the sequences, 0.213 epochs"), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("b_*.bin: 75 % of the sequences, 1.6 epochs"), std::string::npos) << whole.err;
  const auto losses = records(folder_ / "whole", "step");
  ASSERT_EQ(losses.size(), 20u);

  const std::string from = checkpoint("whole", "10");
  const Outcome again = train(2, "again", {"checkpoint.resume=" + from});
  ASSERT_EQ(again.code, 0) << again.err;
  const auto rest = records(folder_ / "again", "step");
  ASSERT_EQ(rest.size(), 10u);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i].at("loss"), losses[10 + i].at("loss")) << i;

  const Outcome other = train(3, "other", {"checkpoint.resume=" + from});
  ASSERT_EQ(other.code, 0) << other.err;
  const auto elsewhere = records(folder_ / "other", "step");
  ASSERT_EQ(elsewhere.size(), 10u);
  // Sums of the batch's losses and gradients in another order, in fp32.
  for (std::size_t i = 0; i < rest.size(); ++i)
    EXPECT_NEAR(elsewhere[i].at("loss").get<double>(), losses[10 + i].at("loss").get<double>(), 1e-4) << i;

  const auto refused = [&](const std::string& setting) {
    const Outcome outcome = train(2, "refused", {"checkpoint.resume=" + from, setting});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_NE(refused("data.weights=[1, 2]").find("data.weights = [1.0,2.0]"), std::string::npos);
  EXPECT_NE(refused("data.train=[\"" + folder_ / "a.bin" + "\", \"" + folder_ / "b_1.bin" + "\"]")
                .find("holds other tokens than the data of the checkpoint"),
            std::string::npos);
  folder_.write("b_2.bin", tokens(700, 7));  // as long as before
  EXPECT_NE(refused("log.every=2").find("holds other tokens than the data of the checkpoint"), std::string::npos);
}

TEST_F(DataProgram, TokensOutsideTheVocabularyAreFoundBeforeTraining) {
  std::string bytes = tokens(700, 5);
  bytes[1200] = 64;
  folder_.write("b_2.bin", bytes);
  const Outcome outcome = train(3, "run", {});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("b_2.bin: token 64 at position 600 is outside the model's vocabulary of 64"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(occurrences(outcome.err, "atoll: error:"), 1u) << outcome.err;
  EXPECT_FALSE(fs::exists(folder_ / "run/model.h5"));
}

TEST_F(DataProgram, InspectsAndVerifies) {
  const std::string fixtures = ATOLL_FIXTURES "/tokens/";
  const Outcome seen =
      run_program(folder_, 0,
                  {"data", "inspect", "--json", "--sample", "3", fixtures + "megatron_uint16",
                   fixtures + "megatron_*.bin", folder_ / "a.bin", "--raw-type", "uint16", "--end-of-document", "3"});
  ASSERT_EQ(seen.code, 0) << seen.err;
  const auto all = seen.json();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].at("tokens"), 600);
  EXPECT_EQ(all[0].at("documents").at("count"), 5);
  EXPECT_EQ(all[0].at("documents").at("p50"), 100);
  EXPECT_EQ(all[0].at("sample").at("ids"), nlohmann::json({11, 7930, 31687}));
  EXPECT_EQ(all[1].at("tokens"), 1200);
  EXPECT_EQ(all[1].at("documents").at("count"), 10);
  EXPECT_EQ(all[2].at("documents").at("open_end"), true);
  EXPECT_EQ(all[2].at("ids").at("least"), 0);

  folder_.write("text.txt", "na\u00efve text");
  ASSERT_EQ(
      run_program(folder_, 0, {"tokenize", folder_ / "text.txt", "-o", folder_ / "t", "--eval-fraction", "0"}).code, 0);
  const Outcome text = run_program(folder_, 0, {"data", "inspect", folder_ / "t/train.h5"});
  EXPECT_NE(text.out.find("as text: \"na\u00efve text\""), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("tokenizer: bytes"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1 documents"), std::string::npos) << text.out;

  folder_.write("none.bin", "");
  const Outcome empty = run_program(folder_, 0, {"data", "verify", folder_ / "none.bin"});
  EXPECT_EQ(empty.code, 3);
  EXPECT_NE(empty.err.find("none.bin: holds no token"), std::string::npos) << empty.err;
  EXPECT_EQ(run_program(folder_, 0, {"data", "inspect", folder_ / "none.bin"}).code, 0);
  const Outcome below = run_program(folder_, 0, {"data", "inspect", folder_ / "a.bin", "--end-of-document", "-4"});
  EXPECT_EQ(below.code, 2);
  EXPECT_NE(below.err.find("--end-of-document: -4 is not a number from 0 on"), std::string::npos) << below.err;

  const Outcome good = run_program(folder_, 0, {"data", "verify", fixtures + "v*.npy", folder_ / "t/train.h5"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(occurrences(good.out, ": good; "), 4u) << good.out;
  const Outcome small =
      run_program(folder_, 0, {"data", "verify", fixtures + "v1_uint16.npy", "--vocab-size", "50000"});
  EXPECT_EQ(small.code, 3);
  EXPECT_NE(small.err.find("outside the model's vocabulary of 50000"), std::string::npos) << small.err;
  std::string bytes = content_of(folder_ / "t/train.h5");
  bytes[bytes.find('n' + std::string(1, '\0') + 'a')] ^= 1;
  folder_.write("t/train.h5", bytes);
  const Outcome bad = run_program(folder_, 0, {"data", "verify", folder_ / "t/train.h5"});
  EXPECT_EQ(bad.code, 3);
  EXPECT_NE(bad.err.find("checksum of 'tokens'"), std::string::npos) << bad.err;
}

TEST_F(DataProgram, TokenizeSaysTheVocabulary) {
  folder_.write("a.txt", "hello hello hello");
  folder_.write("empty.txt", "");
  const Outcome few = run_program(folder_, 0,
                                  {"tokenize", folder_ / "a.txt", folder_ / "empty.txt", "-o", folder_ / "t",
                                   "--eval-fraction", "0", "--train-vocab", "300", "--json"});
  ASSERT_EQ(few.code, 0) << few.err;
  const std::int64_t size = few.json().at("vocab_size");  // warnings do not stand among the JSON
  EXPECT_LT(size, 300);
  EXPECT_NE(few.err.find("for " + std::to_string(size) + " tokens only, of --train-vocab 300"), std::string::npos)
      << few.err;
  EXPECT_NE(few.err.find("1 documents left out: empty"), std::string::npos) << few.err;
}

TEST_F(DataProgram, InspectShowsTextOfTokenizers) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "caf\u00e9 number " + std::to_string(i) + ", \u4f60\u597d\n";
  folder_.write("a.txt", text);
  folder_.write("b.txt", text + "another one");
  for (const char* name : {"t", "other"})
    ASSERT_EQ(run_program(folder_, 0,
                          {"tokenize", folder_ / "a.txt", folder_ / "b.txt", "-o", folder_ / name, "--eval-fraction",
                           "0", "--train-vocab", name[0] == 't' ? "272" : "262"})
                  .code,
              0);
  const auto inspect = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"data", "inspect", "--json", "--sample", "100000"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program(folder_, 0, all);
  };
  const std::string data = folder_ / "t/train.h5",
                    whole = text + "<|end_of_text|>" + text + "another one<|end_of_text|>",
                    begun = "<|begin_of_text|>" + text + "<|end_of_text|><|begin_of_text|>" + text +
                            "another one<|end_of_text|>";
  const Outcome found = inspect({data});  // tokenizer.json lies beside it
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.err, "");
  const std::string shown = found.json()[0].at("sample").at("text");
  EXPECT_TRUE(shown == whole || shown == begun) << shown;
  EXPECT_EQ(found.json()[0].at("documents").at("count"), 2);

  fs::rename(folder_ / "t/tokenizer.json", folder_ / "mine.json");
  EXPECT_FALSE(inspect({data}).json()[0].at("sample").contains("text"));
  EXPECT_NE(run_program(folder_, 0, {"data", "inspect", data}).out.find("the tokenizer is not here"),
            std::string::npos);
  EXPECT_EQ(inspect({data, "--tokenizer", folder_ / "mine.json"}).json()[0].at("sample").at("text"), shown);

  fs::copy(folder_ / "other/tokenizer.json", folder_ / "t/tokenizer.json");  // of other data
  const Outcome replaced = inspect({data});
  EXPECT_EQ(replaced.code, 0);
  EXPECT_NE(replaced.err.find("is not the tokenizer that"), std::string::npos) << replaced.err;
  EXPECT_FALSE(replaced.json()[0].at("sample").contains("text"));
  const Outcome small = inspect({data, "--tokenizer", folder_ / "other/tokenizer.json"});
  EXPECT_EQ(small.code, 2);
  EXPECT_NE(small.err.find("has 262 tokens, but"), std::string::npos) << small.err;
  const Outcome larger = inspect({folder_ / "other/train.h5", "--tokenizer", folder_ / "mine.json"});
  EXPECT_EQ(larger.code, 0);
  EXPECT_NE(larger.err.find("train.h5 was made with tokenizer.json xxh3-64:"), std::string::npos) << larger.err;
  const Outcome array = inspect({folder_ / "a.bin", "--raw-type", "uint16", "--tokenizer", folder_ / "mine.json"});
  EXPECT_TRUE(array.json()[0].at("sample").contains("text")) << array.err;
  EXPECT_EQ(inspect({data, "--tokenizer", folder_ / "none.json"}).code, 3);
}

}  // namespace
}  // namespace atl
