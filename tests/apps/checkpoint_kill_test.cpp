/// A job that is killed at any moment of a save goes on from its newest checkpoint. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

namespace atl {
namespace {

namespace fs = std::filesystem;

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Waits up to half a minute.
bool wait_for(const std::function<bool()>& done) {
  for (int i = 0; i < 30000 && !done(); ++i) pause(0.001);
  return done();
}

/// All processes whose parent this is.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = content_of(entry.path().string() + "/stat");  // "pid (name) state parent ..."
    const auto end = stat.rfind(')');
    if (end != std::string::npos && std::atoi(&stat[end + 4]) == parent) found.push_back(std::atoi(name.c_str()));
  }
  return found;
}

/// mpiexec and all that it started, whichever process groups these are in: what loses its parent becomes a child of
/// this test.
class Job {
 public:
  Job(const std::vector<std::string>& arguments, const std::string& err) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    process_ = ::fork();
    if (process_ != 0) return;
    std::vector<char*> pointers;
    for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    if (std::freopen("/dev/null", "r", stdin) && std::freopen(err.c_str(), "w", stderr) &&
        std::freopen("/dev/null", "w", stdout))
      ::execvp(pointers[0], pointers.data());
    std::_Exit(127);
  }
  ~Job() { kill(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool running() const { return ::waitpid(process_, nullptr, WNOHANG) == 0; }
  /// SIGKILL to all at once, and again to what was being started; returns when all are gone.
  void kill() {
    if (process_ <= 0) return;
    std::set<pid_t> all{process_};
    std::vector<pid_t> next{process_};
    while (!next.empty()) {
      const pid_t parent = next.back();
      next.pop_back();
      for (const pid_t child : children_of(parent))
        if (all.insert(child).second) next.push_back(child);
    }
    for (const pid_t process : all) ::kill(process, SIGKILL);
    wait_for([&] {
      for (const pid_t child : children_of(::getpid())) ::kill(child, SIGKILL);
      while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
      return children_of(::getpid()).empty();
    });
    process_ = -1;
  }

 private:
  pid_t process_ = -1;
};

class CheckpointKill : public ::testing::Test {
 protected:
  /// Steps of the checkpoints there are, ascending.
  std::set<int> steps() const {
    std::set<int> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints", error)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("step_", 0) == 0) found.insert(std::atoi(name.c_str() + 5));
    }
    return found;
  }
  int newest() const {
    const auto found = steps();
    return found.empty() ? 0 : *found.rbegin();
  }
  std::string path_of(int step) const {
    char name[32];
    std::snprintf(name, sizeof name, "/checkpoints/step_%06d", step);
    return run + name;
  }
  void expect_good(int step) const {
    const Outcome outcome = run_program(folder, 0, {"inspect", path_of(step), "--verify"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  std::vector<std::string> train(int ranks, bool async, int last) const {
    std::vector<std::string> command;
    if (ranks > 0) {
      std::istringstream words(ATOLL_MPIEXEC);
      for (std::string word; words >> word;) command.push_back(word);
      command.insert(command.end(), {"-n", std::to_string(ranks)});
    }
    command.insert(command.end(), {ATOLL_PROGRAM, "train", config, "--set", "train.steps=" + std::to_string(last),
                                   "--set", std::string("checkpoint.async=") + (async ? "true" : "false")});
    return command;
  }

  ScratchFolder folder;
  std::string run = folder / "run";
  std::string config = folder.write("run.toml", tiny_run(run, two_groups) +
                                                    "[schedule]\nkind = \"constant\"\n[checkpoint]\nevery = 1\n"
                                                    "align = \"step\"\nkeep = 2\n");
};

TEST_F(CheckpointKill, FiftyTimesAndNothingIsLost) {
  std::mt19937 random(7);
  // As long as a few saves take; a save after each step leaves hardly a moment without one.
  std::uniform_real_distribution<double> delay(0.0, 0.08);
  int interrupted = 0;  // left something unfinished
  for (int i = 0; i < 50; ++i) {
    const int before = newest();
    {
      Job job(train(2, i % 3 != 0, 100000), folder / "err");
      ASSERT_TRUE(wait_for([&] { return newest() > before || !job.running(); }));
      ASSERT_GT(newest(), before) << "kill " << i << ": " << content_of(folder / "err");
      EXPECT_NE(content_of(folder / "err").find(before > 0 ? "going on from " + path_of(before) + "," : "step 0"),
                std::string::npos)
          << content_of(folder / "err");
      pause(delay(random));
      job.kill();
    }
    const auto left = steps();
    ASSERT_GT(*left.rbegin(), before);
    ASSERT_LE(left.size(), 3u);  // two, and one that was to be removed
    ASSERT_GE(left.size(), before > 0 ? 2u : 1u);
    ASSERT_EQ(left.count(*left.rbegin() - 1), *left.rbegin() > 1 ? 1u : 0u);
    expect_good(*left.rbegin());
    // It may be older by one, never nothing.
    EXPECT_TRUE(fs::exists(run + "/checkpoints/latest/COMMIT") || left.size() == 1) << "kill " << i;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints"))
      if (entry.is_directory() && !entry.is_symlink() && entry.path().filename().string().rfind(".tmp-", 0) == 0) {
        ++interrupted;
        break;
      }
    if (HasFailure()) break;
  }
  EXPECT_GT(interrupted, 20);  // of 50: the moments are not beside the point
  const int last = newest() + 3;
  for (const int step : steps()) expect_good(step);
  auto command = train(2, true, last);
  const Outcome outcome = run_command(folder, command[0], 0, {command.begin() + 1, command.end()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::printf("%d of 50 jobs were killed inside a save; step %d at the end\n", interrupted, last);
  const auto records_of_steps = records(run, "step");
  ASSERT_EQ(records_of_steps.size(), static_cast<std::size_t>(last));
  for (int step = 1; step <= last; ++step)
    EXPECT_EQ(records_of_steps[static_cast<std::size_t>(step - 1)].at("step"), step);
  EXPECT_EQ(steps(), (std::set<int>{last - 1, last}));
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints"))
    EXPECT_NE(entry.path().filename().string().rfind(".tmp-", 0), 0u) << entry.path();
}

}  // namespace
}  // namespace atl
