/// Tests of io/report/metrics.hpp. SPDX-License-Identifier: Apache-2.0
#include "io/report/metrics.hpp"

#include "core/errors.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <unistd.h>

namespace atl {
namespace {

namespace fs = std::filesystem;

class Metrics : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder); }
  void TearDown() override { fs::remove_all(folder); }

  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }

  const fs::path folder = fs::temp_directory_path() / ("atoll_metrics_test_" + std::to_string(::getpid()));
  const std::string path = (folder / "deep" / "metrics.jsonl").string();
};

TEST_F(Metrics, WritesTheContractsFieldsInOrder) {
  MetricsFile file(path);
  file.write(RunRecord{{{"train", {{"steps", 3}}}}, {{"ranks", 4}}, {{"atoll", "0.1.0"}}, "abc", 7});
  StepRecord step;
  step.step = 1;
  step.round = 1;
  step.tokens = 4096;
  step.loss = 5.5;
  step.lr = 0.25;
  step.grad_norm = 2;
  step.step_seconds = 0.5;
  step.tokens_per_second = 8192;
  step.compute_seconds = 0.375;
  step.exposed_comm_seconds = 0.125;
  step.bytes_shard = 10;
  step.bytes_replica = 20;
  step.bytes_federation = 30;
  step.memory_bytes = 40;
  file.write(step);
  file.write(EvalRecord{1, 0.5, 1.5, 99});
  file.write(RoundRecord{1, 8, {30, 10}, 123, 3, 20, 100, 0.25, 0.125, {1.5, 4.5}});
  file.write("checkpoint", {{"step", 8}});
  // Read while the file is still open: every line is there at once.
  EXPECT_EQ(
      text(),
      R"({"kind":"run","configuration":{"train":{"steps":3}},"grid":{"ranks":4},"versions":{"atoll":"0.1.0"},"git_revision":"abc","seed":7})"
      "\n"
      R"({"kind":"step","step":1,"round":1,"tokens":4096,"loss":5.5,"lr":0.25,"grad_norm":2.0,"step_seconds":0.5,"tokens_per_second":8192.0,"compute_seconds":0.375,"exposed_comm_seconds":0.125,"bytes_shard":10,"bytes_replica":20,"bytes_federation":30,"memory_bytes":40})"
      "\n"
      R"({"kind":"eval","step":1,"loss":0.5,"perplexity":1.5,"tokens":99})"
      "\n"
      R"({"kind":"round","round":1,"step":8,"tokens":[30,10],"bytes":123,"bytes_shard":3,"bytes_replica":20,"bytes_federation":100,"seconds":0.25,"exposed_comm_seconds":0.125,"drift":[1.5,4.5]})"
      "\n"
      R"({"kind":"checkpoint","step":8})"
      "\n");
}

TEST_F(Metrics, NumbersReadBackExactly) {
  MetricsFile file(path);
  const double loss = 0.1 + 0.2, perplexity = 1e300;
  file.write(EvalRecord{std::int64_t{1} << 60, loss, perplexity, 1});
  const auto line = nlohmann::json::parse(text());
  EXPECT_EQ(line["loss"].get<double>(), loss);
  EXPECT_EQ(line["perplexity"].get<double>(), perplexity);
  EXPECT_EQ(line["step"].get<std::int64_t>(), std::int64_t{1} << 60);
}

TEST_F(Metrics, NotFiniteIsNull) {
  MetricsFile file(path);
  const double infinity = std::numeric_limits<double>::infinity();
  file.write(EvalRecord{2, std::numeric_limits<double>::quiet_NaN(), infinity, 5});
  file.write(RoundRecord{1, 1, {1}, 0, 0, 0, 0, 0, 0, {-infinity}});
  EXPECT_EQ(
      text(),
      "{\"kind\":\"eval\",\"step\":2,\"loss\":null,\"perplexity\":null,\"tokens\":5}\n"
      "{\"kind\":\"round\",\"round\":1,\"step\":1,\"tokens\":[1],\"bytes\":0,\"bytes_shard\":0,\"bytes_replica\":0,"
      "\"bytes_federation\":0,\"seconds\":0.0,\"exposed_comm_seconds\":0.0,\"drift\":[null]}\n");
}

TEST_F(Metrics, CreateStartsAfreshAndAppendContinues) {
  MetricsFile(path).write("first", {});
  MetricsFile(path, MetricsFile::Mode::append).write("second", {});
  EXPECT_EQ(text(), "{\"kind\":\"first\"}\n{\"kind\":\"second\"}\n");
  MetricsFile(path, MetricsFile::Mode::create).write("third", {});
  EXPECT_EQ(text(), "{\"kind\":\"third\"}\n");
}

TEST_F(Metrics, AppendRemovesALineThatWasCutOff) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << "{\"kind\":\"step\"}\n{\"kind\":\"st";
  MetricsFile(path, MetricsFile::Mode::append).write("eval", {});
  EXPECT_EQ(text(), "{\"kind\":\"step\"}\n{\"kind\":\"eval\"}\n");
}

TEST_F(Metrics, DropsTheStepsThatARunRepeats) {
  fs::create_directories(fs::path(path).parent_path());
  const std::string kept =
      "{\"kind\":\"run\",\"seed\":7}\n"
      "{\"kind\":\"step\",\"step\":9,\"loss\":null}\n"
      "{\"kind\":\"eval\",\"step\":10,\"loss\":0.1}\n"
      "{\"kind\":\"step\",\"step\":10}\n";
  std::ofstream(path) << kept << "{\"kind\":\"step\",\"step\":11}\n{\"kind\":\"round\",\"round\":2,\"step\":16}\n"
                      << "no record\n[1]\n\n{\"kind\":\"step\",\"st";
  MetricsFile::drop_after(path, 10);
  EXPECT_EQ(text(), kept);
  MetricsFile(path, MetricsFile::Mode::append).write("resumed", {{"step", 10}});
  EXPECT_EQ(text(), kept + "{\"kind\":\"resumed\",\"step\":10}\n");
  MetricsFile::drop_after(path, 0);
  EXPECT_EQ(text(), "{\"kind\":\"run\",\"seed\":7}\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
}

TEST_F(Metrics, DroppingFromNoFileMakesNone) {
  MetricsFile::drop_after(path, 10);
  EXPECT_FALSE(fs::exists(path));
}

// A record of another kind whose step is no number is no reason to end a run.
TEST_F(Metrics, DropsRecordsWithStrangeSteps) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path)
      << "{\"kind\":\"a\",\"step\":\"x\"}\n{\"kind\":\"b\",\"step\":null}\n{\"kind\":\"c\",\"step\":1}\n";
  MetricsFile::drop_after(path, 10);
  EXPECT_EQ(text(), "{\"kind\":\"c\",\"step\":1}\n");
}

TEST_F(Metrics, SaysWhyTheFolderCannotBeWritten) {
  fs::create_directories(folder);
  std::ofstream(folder / "file") << "x";
  try {
    MetricsFile file((folder / "file" / "run" / "metrics.jsonl").string());  // a file where a folder must be
    FAIL();
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(message.find((folder / "file" / "run").string()), std::string::npos) << message;
    EXPECT_NE(message.find("Not a directory"), std::string::npos) << message;
    EXPECT_NE(message.find("run.dir"), std::string::npos) << message;
  }
  fs::create_directories(path);  // a folder where the file must be
  try {
    MetricsFile file(path);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), path + " cannot be written: Is a directory; set run.dir to a folder that can be written");
  }
}

TEST_F(Metrics, AFullDiskIsAnErrorWithItsReason) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  MetricsFile file("/dev/full");
  try {
    file.write("step", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/dev/full: writing failed: No space left on device");
  }
}

}  // namespace
}  // namespace atl
