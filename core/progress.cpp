/// SPDX-License-Identifier: Apache-2.0
#include "core/progress.hpp"

namespace atl {

namespace {

void (*hook)() = nullptr;
bool under_way = false;

struct Once {
  Once() { under_way = true; }
  ~Once() { under_way = false; }
};

}  // namespace

void set_progress(void (*progress)()) { hook = progress; }

void make_progress() {
  if (hook == nullptr || under_way) return;
  const Once once;
  hook();
}

}  // namespace atl
