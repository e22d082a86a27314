/// `atoll inspect` and `atoll doctor`. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <thread>

namespace atl {
namespace {

using Json = nlohmann::json;

Json inspect(const ScratchFolder& folder, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"inspect", "--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Outcome outcome = run_program(folder, 0, all);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(outcome.seconds, 5);
  return outcome.code == 0 ? outcome.json() : Json();
}

TEST(Inspect, CountsLlama8B) {
  const ScratchFolder folder;
  const Json found = inspect(folder, {"--preset", "8b", "--ranks", "64"});
  const Json expected{{"total", 8030261248}, {"embedding", 525336576}, {"block", 218112000},
                      {"blocks", 32},        {"head", 525336576},      {"final_norm", 4096}};
  EXPECT_EQ(found.at("parameters"), expected);
  ASSERT_EQ(found.at("units").size(), 34u);
  const Json head{{"name", "head"}, {"parameters", 525340672}, {"padded", 525340672}, {"shard", 525340672 / 64}};
  EXPECT_EQ(found.at("units").back(), head);
  EXPECT_EQ(found.at("memory").at("master_weights"), 8030261248 / 64 * 4);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : found.at("memory").items())
    if (name != "total" && name != "peak" && name != "process") sum += bytes.get<std::int64_t>();
  EXPECT_EQ(found.at("memory").at("total"), sum);

  const Outcome text = run_program(folder, 0, {"inspect", "--preset", "8b", "--ranks", "64"});
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"8,030,261,248", "block 0 .. 31", "64 ranks = 1 group x 1 replica x 64 shards", "peak"})
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
}

// What a user asks: does it fit? The largest process of a run is within a tenth of what was said.
TEST(Inspect, TellsTheMemoryOfAProcess) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs memory of its own";
#endif
  const ScratchFolder folder;
  const std::string run = folder.write("run.toml", tiny_run(folder / "run", fsdp));
  std::vector<std::string> settings;
  for (const char* key :
       {"model.hidden_size=256", "model.intermediate_size=704", "model.vocab_size=8192", "model.num_hidden_layers=4",
        "data.sequence_length=256", "train.steps=3", "train.micro_batch=2", "train.loss_chunk=1024"})
    settings.insert(settings.end(), {"--set", key});
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    std::vector<std::string> question{run, "--ranks", std::to_string(ranks)}, training{"train", run};
    question.insert(question.end(), settings.begin(), settings.end());
    training.insert(training.end(), settings.begin(), settings.end());
    const Json memory = inspect(folder, question).at("memory");
    if (!memory.contains("process")) GTEST_SKIP() << "the memory is that of a device";
    const Outcome trained = run_program(folder, ranks, training);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto told = memory.at("process").get<double>(), seen = static_cast<double>(trained.resident);
    std::printf("%d ranks: %.0f MiB in memory, %.0f told\n", ranks, seen / (1 << 20), told / (1 << 20));
    EXPECT_LT(seen, 1.1 * told);
    EXPECT_GT(seen, 0.9 * told);
  }
}

// Weights of bf16 stand beside the fp32 masters; gathered units and activations take half.
TEST(Inspect, AccountsForBf16) {
  const ScratchFolder folder;
  const std::vector<std::string> question{"--preset", "8b", "--ranks", "64"};
  const auto memory = [&](const std::vector<std::string>& settings) {
    auto arguments = question;
    for (const auto& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return inspect(folder, arguments).at("memory");
  };
  const Json single = memory({}), half = memory({"train.precision=bf16"}),
             travelling = memory({"train.precision=bf16", "train.reduce_precision=bf16"});
  EXPECT_EQ(single.at("bf16_weights"), 0);
  EXPECT_EQ(half.at("bf16_weights"), 8030261248 / 64 * 2);
  EXPECT_EQ(half.at("master_weights"), single.at("master_weights"));
  EXPECT_EQ(half.at("full_gradients"), single.at("full_gradients"));
  EXPECT_EQ(2 * half.at("gathered_units").get<std::int64_t>(), single.at("gathered_units"));
  EXPECT_LT(half.at("activations"), single.at("activations"));
  // What is sent, and what is received: 64 and 63 shards of the largest unit in bf16, for 63 in fp32.
  const std::int64_t shard = 525340672 / 64;
  EXPECT_EQ(half.at("receive_buffers"), 63 * shard * 4);
  EXPECT_EQ(travelling.at("receive_buffers"), (63 + 64) * shard * 2);
}

TEST(Inspect, IsQuickForAMillionRanks) {
  const ScratchFolder folder;
  const Json found = inspect(folder, {"--preset", "70b", "--ranks", "1000000", "--set", "parallel.strategy=fl+fsdp",
                                      "--set", "parallel.group_size=100"});
  EXPECT_EQ(found.at("parameters").at("total"), 70553706496);
  EXPECT_EQ(found.at("grid").at("groups"), 10000);
  EXPECT_EQ(found.at("grid").at("shards"), 100);
}

TEST(Inspect, ReadsRunsConfigurationsAndModels) {
  const ScratchFolder folder;
  const std::string run = folder.write("run.toml", tiny_run(folder / "run", two_groups));
  const Json planned = inspect(folder, {run, "--ranks", "4"});
  EXPECT_EQ(planned.at("grid").at("shards"), 2);
  EXPECT_EQ(planned.at("micro_batch").at("sequences"), 4);  // a batch of 8 on the two ranks of a group
  EXPECT_GT(planned.at("memory").at("federation"), 0);
  EXPECT_EQ(inspect(folder, {run}).at("grid").at("ranks"), 2);  // the fewest of two groups
  const Json smaller = inspect(folder, {run, "--ranks", "4", "--set", "train.micro_batch=1"});
  EXPECT_EQ(smaller.at("micro_batch").at("accumulate"), 4);
  EXPECT_LT(smaller.at("memory").at("activations"), planned.at("memory").at("activations"));

  // Hugging Face's form of the same model, whatever the file is called.
  const std::string config = folder.write("llama", planned.at("model").dump());
  EXPECT_EQ(inspect(folder, {config}).at("parameters"), planned.at("parameters"));

  const Outcome trained = run_program(folder, 4, {"train", run, "--set", "train.steps=3"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const auto& subject : {folder / "run", folder / "run/model.h5"}) {
    const Json model = inspect(folder, {subject, "--ranks", "4"});
    EXPECT_EQ(model.at("parameters"), planned.at("parameters"));
    EXPECT_EQ(model.at("memory"), planned.at("memory"));  // from the run.toml beside it
    EXPECT_EQ(model.at("trained"), Json({{"step", 3}, {"tokens", 3 * 2 * 8 * 16}}));
  }
  std::filesystem::create_directory(folder / "elsewhere");
  std::filesystem::copy_file(folder / "run/model.h5", folder / "elsewhere/alone.h5");
  EXPECT_EQ(inspect(folder, {folder / "elsewhere/alone.h5"}).at("parameters"), planned.at("parameters"));
}

TEST(Inspect, TellsWhatIsWrong) {
  const ScratchFolder folder;
  const auto expect = [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
    std::vector<std::string> all{"inspect"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_program(folder, 0, all);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  expect({"--preset", "8c"}, 2, "\"8b\"");
  expect({}, 2, "model.preset");
  expect({folder / "no.toml"}, 2, "no.toml");
  expect({"--preset", "8b", "--ranks", "4", "--set", "parallel.strategy=fl+fsdp", "--set", "parallel.groups=3"}, 2,
         "parallel.groups = 3 does not divide 4 ranks");
  expect({"--preset", "8b", "--ranks", "0"}, 2, "--ranks");
  expect({folder.write("broken.h5", "\x89HDF\r\n\x1a\n and no more")}, 3, "broken.h5");
}

/// Whether one of the warnings or notes has this text.
bool tells(const Json& list, const std::string& part) {
  for (const auto& text : list)
    if (text.get<std::string>().find(part) != std::string::npos) return true;
  return false;
}

TEST(Doctor, MeasuresAndTells) {
  const ScratchFolder folder;
  for (const int ranks : {0, 1, 2}) {
    const Outcome outcome = run_program(folder, ranks, {"doctor", "--json"}, {"OMP_NUM_THREADS=1"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_LT(outcome.seconds, 30);
    const Json found = outcome.json();
    for (const char* key :
         {"atoll",     "git_revision",     "compiler", "kokkos",         "execution_space", "concurrency",
          "mpi",       "mpi_thread_level", "hdf5",     "hdf5_parallel",  "waiting",         "gemm_fp32",
          "gemm_fp64", "gemm_bf16",        "nodes",    "ranks_per_node", "cores_per_node",  "threads_per_rank",
          "notes",     "warnings"})
      EXPECT_TRUE(found.contains(key)) << key;
    EXPECT_EQ(found.at("ranks"), std::max(1, ranks));
    EXPECT_EQ(found.at("ranks_per_node").at("max"), std::max(1, ranks));
    EXPECT_EQ(found.at("threads_per_rank").at("max"), 1);
    ASSERT_EQ(found.at("gemm_gflops").size(), 6u);
    for (const auto& gemm : found.at("gemm_gflops")) EXPECT_GT(gemm.at("min"), 0.01);
    EXPECT_GT(found.at("copy_bytes_per_second").at("min"), 1e7);
    ASSERT_EQ(found.contains("all_reduce"), ranks > 1);
    if (ranks > 1) {
      EXPECT_GT(found.at("all_reduce").at("bytes_per_second"), 1e6);
      EXPECT_GT(found.at("all_reduce").at("latency_seconds"), 1e-8);
      EXPECT_LT(found.at("all_reduce").at("latency_seconds"), 0.1);
    }
  }
}

TEST(Doctor, PrintsForPeople) {
  const ScratchFolder folder;
  const Outcome outcome = run_program(folder, 2, {"doctor"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"Kokkos", "MPI", "HDF5", "GFLOP/s", "all-reduce", "ranks"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, "HDF5"), 1u) << outcome.out;
}

TEST(Doctor, WarnsOfTooManyThreadsAndRanks) {
  const ScratchFolder folder;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const std::string too_many = "OMP_NUM_THREADS=" + std::to_string(cores + 1);
  const Outcome threads = run_program(folder, 1, {"doctor", "--json"}, {too_many});
  ASSERT_EQ(threads.code, 0) << threads.err;
  EXPECT_TRUE(tells(threads.json().at("warnings"), "set OMP_NUM_THREADS=")) << threads.out;
  if (cores < 1 || cores > 7) GTEST_SKIP() << "too many cores to start more ranks than there are";
  const Outcome ranks = run_program(folder, cores + 1, {"doctor", "--json"}, {"OMP_NUM_THREADS=1"});
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_TRUE(tells(ranks.json().at("warnings"), "ranks share")) << ranks.out;
  EXPECT_EQ(ranks.json().at("waiting"), "sleep");
}

TEST(Doctor, WarnsOfTheLauncher) {
  const ScratchFolder folder;
  const Outcome other =
      run_program(folder, 0, {"doctor", "--json"}, {"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0", "OMP_NUM_THREADS=1"});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_TRUE(tells(other.json().at("warnings"), "srun started 4 processes")) << other.out;
  const Outcome forgotten = run_program(folder, 0, {"doctor", "--json"}, {"SLURM_NTASKS=8", "OMP_NUM_THREADS=1"});
  ASSERT_EQ(forgotten.code, 0) << forgotten.err;
  EXPECT_TRUE(tells(forgotten.json().at("warnings"), "Slurm allocated 8 tasks, but 1 run")) << forgotten.out;
}

}  // namespace
}  // namespace atl
