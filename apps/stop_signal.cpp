/// SPDX-License-Identifier: Apache-2.0
#include "apps/stop_signal.hpp"

#include "core/errors.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <unistd.h>

namespace atl {

namespace {

// All that a handler may touch.
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t first_seconds = 0;  // of the monotonic clock
volatile std::sig_atomic_t first_hundredths = 0;

void note(int number) {
  const int saved = errno;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto seconds = static_cast<std::sig_atomic_t>(now.tv_sec);
  const auto hundredths = static_cast<std::sig_atomic_t>(now.tv_nsec / 10000000);
  if (first_signal == 0) {
    first_signal = number;
    first_seconds = seconds;
    first_hundredths = hundredths;
  } else if ((seconds - first_seconds) * 100 + hundredths - first_hundredths >= 100) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
    raise(number);  // delivered when this returns
  }
  errno = saved;
}

/// Bytes of a handler's stack: the kernel puts all registers there, which AVX-512 and AMX make many.
std::size_t stack_bytes() {
  const long needed = sysconf(_SC_SIGSTKSZ);
  return std::max<std::size_t>(std::size_t{1} << 16, needed > 0 ? static_cast<std::size_t>(needed) : 0);
}

}  // namespace

StopSignal::StopSignal() : stack_(stack_bytes()) {
  first_signal = 0;
  stack_t stack{};
  stack.ss_sp = stack_.data();
  stack.ss_size = stack_.size();
  ATOLL_REQUIRE(sigaltstack(&stack, &former_stack_) == 0);
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // no system call of any library fails for it
  sigemptyset(&action.sa_mask);
  for (const int number : signals) sigaddset(&action.sa_mask, number);
  for (std::size_t i = 0; i < signals.size(); ++i) ATOLL_REQUIRE(sigaction(signals[i], &action, &former_[i]) == 0);
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &former_[i], nullptr);
  sigaltstack(&former_stack_, nullptr);
}

int StopSignal::received() const { return first_signal; }

std::string name_of_signal(int number) {
  switch (number) {
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGINT:
      return "SIGINT";
    default:
      return "signal " + std::to_string(number);
  }
}

}  // namespace atl
