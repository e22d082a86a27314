/// SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi_operation.hpp"

#include "core/progress.hpp"
#include "parallel/waiting.hpp"

#include <algorithm>
#include <chrono>

namespace atl {

namespace {

std::vector<MpiOperation*> under_way;  // in the order of their start
bool time_counts = true;               // false while an ExposedTime lives
bool progressing = false;              // stages launch kernels, and those look for progress
double last_look = 0;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Between kernels, which may be short: a look costs about a microsecond an operation.
void look_now_and_then() {
  constexpr double interval = 50e-6;
  if (under_way.empty()) return;
  const double time = now();
  if (time - last_look < interval) return;
  progress_operations();
  last_look = now();
}

struct Progressing {
  Progressing() { progressing = true; }
  ~Progressing() { progressing = false; }
};

}  // namespace

ExposedTime::ExposedTime(CommunicationStats& stats) : stats_(time_counts ? &stats : nullptr) {
  if (stats_ == nullptr) return;
  time_counts = false;
  start_ = now();
}

ExposedTime::~ExposedTime() {
  if (stats_ == nullptr) return;
  stats_->seconds_waited += now() - start_;
  time_counts = true;
}

MpiOperation::~MpiOperation() {
  wait();
  forget();  // still there if it failed
}

void MpiOperation::start() {
  under_way.push_back(this);
  set_progress(look_now_and_then);
}

void MpiOperation::forget() { under_way.erase(std::remove(under_way.begin(), under_way.end(), this), under_way.end()); }

bool MpiOperation::advance() {
  try {
    while (!complete_) {
      if (!test_all(requests)) return false;
      requests.clear();
      if (next_ == stages.size()) {
        complete_ = true;
        if (completed) completed();
      } else {
        stages[next_++]();
      }
    }
  } catch (...) {
    complete_ = true;  // nobody may wait for it again, least of all a destructor on the way out
    throw;
  }
  return true;
}

bool MpiOperation::test() {
  if (!complete_) {
    const ExposedTime clock(stats_);
    progress_operations();
  }
  return complete_;
}

void MpiOperation::wait() {
  if (complete_) return;
  const ExposedTime clock(stats_);
  wait_until([&] {
    progress_operations();
    return complete_;
  });
}

void progress_operations() {
  if (progressing) return;
  const Progressing guard;
  // By index: a stage never starts or ends another operation.
  for (std::size_t i = 0; i < under_way.size();) {
    MpiOperation& operation = *under_way[i];
    const ExposedTime clock(operation.stats_);
    if (operation.advance())
      operation.forget();
    else
      ++i;
  }
}

}  // namespace atl
