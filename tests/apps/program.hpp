/// Starts the program on some ranks, and reads what it says and writes. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace atl {

struct Outcome {
  int code = -1;  ///< exit code of mpiexec; 124 or 137: it hung, and was ended
  std::string out, err;
  double seconds = 0;
  std::int64_t resident = 0;  ///< most bytes in memory of any one process, of those that somebody waited for

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text)
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  result += "'";
  return result;
}

/// `ranks` = 0: without mpiexec. `environment`: "NAME=value". A program that hangs is ended after `limit` seconds.
inline Outcome run_command(const ScratchFolder& folder, const std::string& program, int ranks,
                           const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
                           int limit = 60) {
  std::ostringstream command;
  command << "timeout -k 5 " << limit << " env";
  for (const auto& variable : environment) command << ' ' << quoted(variable);
  if (ranks > 0) command << " " ATOLL_MPIEXEC " -n " << ranks;
  command << ' ' << quoted(program);
  for (const auto& argument : arguments) command << ' ' << quoted(argument);
  command << " </dev/null >" << quoted(folder / "out") << " 2>" << quoted(folder / "err");
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  int status = -1;
  if (const pid_t shell = fork(); shell == 0) {
    execl("/bin/sh", "sh", "-c", command.str().c_str(), static_cast<char*>(nullptr));
    _exit(127);
  } else if (rusage usage{}; shell > 0 && wait4(shell, &status, 0, &usage) == shell) {
    outcome.resident = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  outcome.code = status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.out = content_of(folder / "out");
  outcome.err = content_of(folder / "err");
  return outcome;
}

inline Outcome run_program(const ScratchFolder& folder, int ranks, const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment = {}) {
  return run_command(folder, ATOLL_PROGRAM, ranks, arguments, environment);
}

/// A model and a run that take a fraction of a second. `parallel` has the keys of [parallel].
inline std::string tiny_run(const std::string& dir, const std::string& parallel) {
  return "[run]\ndir = \"" + dir + "\"\n" + R"(
[model]
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
vocab_size = 64
[data]
sequence_length = 16
synthetic_tokens = 20000
synthetic_eval_tokens = 2000
[train]
steps = 10
batch = 8
loss_chunk = 24
[optimizer]
lr = 1e-2
[federation]
every = 4
[eval]
every = 5
[parallel]
)" + parallel;
}
inline const char* const fsdp = "strategy = \"fsdp\"\n";
inline const char* const two_groups = "strategy = \"fl+fsdp\"\ngroups = 2\n";

/// The records of a run's metrics.jsonl of one kind, in order; of all kinds where it is empty.
inline std::vector<nlohmann::json> records(const std::string& run, const std::string& kind = "") {
  std::istringstream lines(content_of(run + "/metrics.jsonl"));
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (kind.empty() || record.at("kind") == kind) found.push_back(record);
  }
  return found;
}

inline std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

}  // namespace atl
