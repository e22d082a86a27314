/// `atoll train` stops on a signal or before its time ends, on all ranks. SPDX-License-Identifier: Apache-2.0
#include "apps/stop_signal.hpp"
#include "tests/apps/program.hpp"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>
#include <unistd.h>

namespace atl {
namespace {

using namespace std::chrono_literals;

/// Far more steps than a test lasts; with `every` for aggregations, and for evaluations if above 0.
std::vector<std::string> endless(const ScratchFolder& folder, const std::string& parallel, int every, int evaluate) {
  std::vector<std::string> arguments{"train", folder.write("run.toml", tiny_run(folder / "run", parallel))};
  for (const std::string& setting :
       {std::string("train.steps=1000000"), "federation.every=" + std::to_string(every),
        "eval.every=" + std::to_string(evaluate), std::string("eval.batches=1"), std::string("log.every=1")}) {
    arguments.emplace_back("--set");
    arguments.push_back(setting);
  }
  return arguments;
}

/// A run on `ranks` ranks, of which each leaves its process id; signal it once it trains.
class Job {
 public:
  Job(const ScratchFolder& folder, int ranks, std::vector<std::string> arguments) : folder_(folder), ranks_(ranks) {
    // PMI_RANK is MPICH's, the other one Open MPI's. exec keeps the process id.
    const std::string script = "r=${PMI_RANK-$OMPI_COMM_WORLD_RANK}; echo $$ >" + quoted(folder / "pid") +
                               ".$r.new; mv " + quoted(folder / "pid") + ".$r.new " + quoted(folder / "pid") +
                               ".$r; exec " + quoted(ATOLL_PROGRAM) + " \"$@\"";
    arguments.insert(arguments.begin(), {"-c", script, "atoll"});
    outcome_ = std::async(std::launch::async,
                          [this, arguments] { return run_command(folder_, "/bin/sh", ranks_, arguments); });
    for (int r = 0; r < ranks; ++r) {
      pids_.push_back(0);
      wait_until([&] { return bool(std::ifstream(folder_ / ("pid." + std::to_string(r))) >> pids_.back()); });
    }
    wait_until([&] { return content_of(folder_ / "err").find("step 3/") != std::string::npos; });
  }

  void send(int rank, int signal) { ASSERT_EQ(kill(pids_.at(static_cast<std::size_t>(rank)), signal), 0); }
  bool ended() const { return outcome_.wait_for(0s) == std::future_status::ready; }
  Outcome outcome() { return outcome_.get(); }

 private:
  void wait_until(const std::function<bool()>& there) const {
    const auto end = std::chrono::steady_clock::now() + 40s;
    while (!there() && !ended() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(there());
  }
  const ScratchFolder& folder_;
  int ranks_;
  std::vector<pid_t> pids_;
  std::future<Outcome> outcome_;
};

/// One line says why; the metrics have every step up to it; there is no model of a run that is not over.
void expect_stopped(const ScratchFolder& folder, const Outcome& outcome, const std::vector<std::string>& reasons) {
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  const std::string line = "stopped after step ";
  ASSERT_EQ(occurrences(outcome.err, line), 1u) << outcome.err;
  const std::string rest = outcome.err.substr(outcome.err.find(line) + line.size());
  const auto steps = records(folder / "run", "step");
  const std::string expected = std::to_string(steps.size()) + " of 1000000: ";
  EXPECT_EQ(rest.substr(0, expected.size()), expected);
  const std::string why = rest.substr(expected.size(), rest.find('\n') - expected.size());
  EXPECT_NE(std::find(reasons.begin(), reasons.end(), why), reasons.end()) << why;
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].at("step"), i + 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model.h5"));
}

struct Case {
  int ranks;
  std::string parallel;
  int every, evaluate;
};
const Case cases[] = {
    {1, fsdp, 4, 0},
    {2, fsdp, 4, 5},
    {4, two_groups, 4, 0},
    {4, two_groups, 1000000, 0},  // inside a round
    {4, two_groups, 1000000, 3},  // groups meet for evaluations
    {4, two_groups, 1, 1},        // and after every step
    {4, "strategy = \"fl+fsdp\"\ngroup_sizes = [3, 1]\n", 5, 0},
};

TEST(Stop, ASignalToOneRankStopsAll) {
  for (const Case& one : cases)
    for (const int rank : {0, one.ranks - 1}) {
      SCOPED_TRACE(one.parallel + std::to_string(one.every) + " " + std::to_string(rank));
      const ScratchFolder folder;
      Job job(folder, one.ranks, endless(folder, one.parallel, one.every, one.evaluate));
      const auto start = std::chrono::steady_clock::now();
      job.send(rank, rank == 0 ? SIGTERM : SIGUSR1);
      const Outcome outcome = job.outcome();
      EXPECT_LT(std::chrono::steady_clock::now() - start, 20s) << "steps take milliseconds";
      expect_stopped(folder, outcome, {(rank == 0 ? "SIGTERM on rank " : "SIGUSR1 on rank ") + std::to_string(rank)});
    }
}

// The second group is held up inside a round, until the first one waits where they meet; then it gets the signal.
TEST(Stop, WhileTheOtherGroupWaitsAtTheMeeting) {
  for (const bool evaluation : {false, true}) {
    const ScratchFolder folder;
    Job job(folder, 4, endless(folder, two_groups, evaluation ? 1000000 : 100, evaluation ? 100 : 0));
    for (const int r : {2, 3}) job.send(r, SIGSTOP);
    std::this_thread::sleep_for(1500ms);
    job.send(3, SIGTERM);
    for (const int r : {2, 3}) job.send(r, SIGCONT);
    const Outcome outcome = job.outcome();
    expect_stopped(folder, outcome, {"SIGTERM on rank 3"});
  }
}

// As Slurm sends it; twice, as a terminal and a launcher do.
TEST(Stop, ASignalToAllRanks) {
  const ScratchFolder folder;
  Job job(folder, 4, endless(folder, two_groups, 1000000, 0));
  for (int times = 0; times < 2; ++times)
    for (int r = 0; r < 4; ++r)
      if (!job.ended()) job.send(r, SIGINT);
  expect_stopped(folder, job.outcome(),
                 {"SIGINT on rank 0", "SIGINT on rank 1", "SIGINT on rank 2", "SIGINT on rank 3"});
}

// A rank that hangs keeps the others from stopping in order.
TEST(Stop, TheSecondSignalEndsAtOnce) {
  const ScratchFolder folder;
  Job job(folder, 4, endless(folder, two_groups, 4, 0));
  job.send(3, SIGSTOP);
  job.send(0, SIGTERM);
  std::this_thread::sleep_for(1500ms);
  EXPECT_FALSE(job.ended());
  const auto start = std::chrono::steady_clock::now();
  job.send(0, SIGTERM);
  const Outcome outcome = job.outcome();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 75) << outcome.err;
}

TEST(Stop, BeforeTheTimeLimit) {
  for (const bool of_slurm : {false, true}) {
    const ScratchFolder folder;
    auto arguments = endless(folder, two_groups, 4, 0);
    std::vector<std::string> environment;
    if (of_slurm)
      environment.push_back("SLURM_JOB_END_TIME=" + std::to_string(std::time(nullptr) + 8));
    else
      arguments.insert(arguments.end(), {"--time-limit", "6s"});
    const Outcome outcome = run_program(folder, 4, arguments, environment);
    expect_stopped(folder, outcome, {"the time limit on rank 0"});
    EXPECT_LT(outcome.seconds, of_slurm ? 9 : 10);
    EXPECT_GT(outcome.seconds, 2);
  }
}

TEST(Stop, RefusesWrongTimeLimits) {
  const ScratchFolder folder;
  auto arguments = endless(folder, fsdp, 4, 0);
  const Outcome over = run_program(folder, 2, arguments, {"SLURM_JOB_END_TIME=1000"});
  EXPECT_EQ(over.code, 2) << over.err;
  EXPECT_EQ(occurrences(over.err, "SLURM_JOB_END_TIME = 1000 was "), 1u) << over.err;
  arguments.insert(arguments.end(), {"--time-limit", "1:30"});
  const Outcome malformed = run_program(folder, 2, arguments);
  EXPECT_EQ(malformed.code, 2) << malformed.err;
  EXPECT_EQ(occurrences(malformed.err, "train.time_limit = \"1:30\" is minutes:seconds to some"), 1u) << malformed.err;
}

// A second is less than the margin: the wish is there from the second step on.
TEST(Stop, AWishInTheLastStepIsTheEndOfTheRun) {
  for (const std::string& parallel : {std::string(fsdp), std::string(two_groups)})
    for (const int steps : {2, 3}) {
      const ScratchFolder folder;
      auto arguments = endless(folder, parallel, 4, 0);
      arguments.insert(arguments.end(), {"--set", "train.steps=" + std::to_string(steps), "--time-limit", "1s"});
      const Outcome outcome = run_program(folder, 4, arguments);
      const bool over = steps == 2;
      // Of two groups the other one may be at the last step already.
      if (over || parallel == fsdp) {
        EXPECT_EQ(outcome.code, over ? 0 : 75) << outcome.err;
      }
      EXPECT_EQ(std::filesystem::exists(folder / "run/model.h5"), outcome.code == 0);
      EXPECT_EQ(occurrences(outcome.err, "stopped after step 2 of 3"), outcome.code == 75 ? 1u : 0u) << outcome.err;
      EXPECT_TRUE(outcome.code == 0 || outcome.code == 75);
    }
}

TEST(StopSignal, NotesTheFirstAndRestoresTheHandlers) {
  struct sigaction before {
  }, after{};
  before.sa_handler = SIG_IGN;
  struct sigaction former {};
  sigaction(SIGUSR1, &before, &former);
  {
    const StopSignal signal;
    EXPECT_EQ(signal.received(), 0);
    raise(SIGUSR1);
    EXPECT_EQ(signal.received(), SIGUSR1);
    raise(SIGTERM);
    EXPECT_EQ(signal.received(), SIGUSR1);
  }
  sigaction(SIGUSR1, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
  sigaction(SIGUSR1, &former, nullptr);
  const StopSignal again;
  EXPECT_EQ(again.received(), 0);
}

TEST(StopSignalDeathTest, AnySecondOneEnds) {
  for (const int second : StopSignal::signals)
    EXPECT_EXIT(
        {
          const StopSignal signal;
          raise(SIGUSR1);
          std::this_thread::sleep_for(1100ms);
          raise(second);
        },
        ::testing::KilledBySignal(second), "");
}

}  // namespace
}  // namespace atl
