/// Signals that ask a run to stop. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace atl {

/// While it lives, the first SIGTERM, SIGUSR1 or SIGINT is only noted, and the run stops in order; one more, a second
/// later or after that, ends the process at once (default action). Within that second it is taken for the same one: a
/// terminal sends Ctrl-C to every process of a job, and the launcher forwards its own. One object at a time, made and
/// destroyed by the main thread, which the kernel prefers for the process's signals.
///
/// Handlers run on a stack of their own: oneDNN's kernels of fp32 products use the stack pointer for other things, so a
/// handler on the stack of such a kernel overwrites the program's memory (seen with oneDNN 2.6: half of all runs that
/// were stopped died of it).
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();  ///< puts the former handlers back
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  int received() const;  ///< number of the first signal; 0: none so far

  static constexpr std::array<int, 3> signals{SIGTERM, SIGUSR1, SIGINT};

 private:
  std::vector<char> stack_;
  stack_t former_stack_{};
  std::array<struct sigaction, signals.size()> former_;
};

std::string name_of_signal(int number);  ///< "SIGTERM"

}  // namespace atl
