/// Kinds of error, each with the exit code of the program. SPDX-License-Identifier: Apache-2.0
///
/// A message names the value, the place and the fix: "parallel.shard_size = 3 does not divide 8 ranks; nearest: 2 or
/// 4".
#pragma once

#include <stdexcept>
#include <string>

namespace atl {

enum class ExitCode : int {
  done = 0,
  failure = 1,  ///< anything not below
  usage = 2,    ///< wrong command line or configuration
  data = 3,     ///< bad data, model file or checkpoint
  stopped = 75  ///< stopped early on a signal after saving: run again to continue
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::failure)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Wrong command line or run configuration.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::usage) {}
};

/// A data set, model file or checkpoint that cannot be used.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(message, ExitCode::data) {}
};

/// Contract between parts of atoll, always checked: a violation is a defect of atoll, not of its input.
#define ATOLL_REQUIRE(condition)                                                \
  do {                                                                          \
    if (!(condition)) ::atl::contract_violated(#condition, __FILE__, __LINE__); \
  } while (false)

[[noreturn]] inline void contract_violated(const char* condition, const char* file, int line) {
  throw Error(std::string("internal error: ") + condition + " does not hold at " + file + ":" + std::to_string(line));
}

}  // namespace atl
