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

}  // namespace
}  // namespace atl
