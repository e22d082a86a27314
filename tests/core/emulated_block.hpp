/// A block of threads of a device on the host, for kernels of core/tensor_core_tiles.hpp. SPDX-License-Identifier:
/// Apache-2.0
///
/// Each thread is a context of its own; they take turns, and change at barriers and at instructions of a warp, which
/// happen at once for all 32 lanes when the last one arrives. One warp runs ahead to the next barrier before another
/// one starts. What these do is written after the PTX ISA (fragments of mma.m16n8k16, ldmatrix, shfl.bfly, cp.async).
/// An exception tells of threads that wait for each other, or at different instructions, and of addresses outside of
/// shared memory or unaligned.
#pragma once

#include "core/tensor_core_tiles.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <ucontext.h>
#include <vector>

namespace atl::test {

/// When an asynchronous copy happens: at the earliest or at the latest moment that a device may choose. With early the
/// first warp runs ahead, with late the last one.
enum class Copies { early, late };

class EmulatedBlock;

/// One thread of the block, as core/tensor_core_tiles.hpp describes it.
class EmulatedThread {
 public:
  EmulatedThread(EmulatedBlock& block, int number) : block_(block), number_(number) {}
  int thread() const { return number_; }
  char* shared() const;
  void barrier();
  void copy(bf16* to, const bf16* from, bool known);
  void commit();
  template <int n>
  void wait() {
    finish_groups(n);
  }
  void copy_out(bf16* to, const bf16* from);
  void store_pair(bf16* to, std::uint32_t pair);
  void load_matrices(std::uint32_t (&r)[4], const bf16* row) { load(r, row, false); }
  void load_matrices_transposed(std::uint32_t (&r)[4], const bf16* row) { load(r, row, true); }
  void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
  float shuffle_xor(float value, int mask);
  std::uint32_t pack(float low, float high) const {
    return bf16(low).bits | static_cast<std::uint32_t>(bf16(high).bits) << 16;
  }
  float exp2(float x) const { return std::exp2(x); }

 private:
  struct Copy {
    bf16* to;
    const bf16* from;
    bool known;
  };
  static void perform(const Copy& copy);
  void load(std::uint32_t (&r)[4], const bf16* row, bool transposed);
  void finish_groups(std::size_t all_but);

  EmulatedBlock& block_;
  int number_;
  std::vector<Copy> open_;
  std::vector<std::vector<Copy>> groups_;
};

class EmulatedBlock {
 public:
  EmulatedBlock(std::size_t shared_bytes, Copies copies);
  /// body(thread) for all threads. May be called again; shared memory is NaN at first, each time.
  void run(const std::function<void(EmulatedThread&)>& body);

 private:
  friend class EmulatedThread;
  enum class Kind { none, load, load_transposed, multiply, shuffle, barrier };
  static constexpr int lanes = 32;

  /// What a lane brings to an instruction of its warp, and takes away.
  struct Operands {
    std::array<std::uint32_t, 6> words{};
    std::array<float, 4> numbers{};
    const bf16* row = nullptr;
  };
  struct Context {
    ucontext_t state{};
    std::vector<char> stack;
    Kind waiting = Kind::none;
    Operands operands;
    bool finished = false;
  };

  static void enter();
  Operands together(int thread, Kind kind, const Operands& mine);
  bool advance(int warp);
  bool complete_warp(int warp);
  void load(Operands* all, bool transposed) const;
  static void multiply(Operands* all);
  void require_shared(const void* address, std::size_t bytes) const;
  void yield(int thread) { swapcontext(&contexts_[static_cast<std::size_t>(thread)].state, &scheduler_); }

  struct alignas(16) Line {
    char bytes[16];
  };
  std::vector<Line> memory_;
  std::size_t shared_bytes_;
  Copies copies_;
  std::vector<Context> contexts_;
  ucontext_t scheduler_{};
  std::function<void(EmulatedThread&)> body_;
  std::exception_ptr error_;
  int starting_ = 0;
  static inline EmulatedBlock* running_ = nullptr;
};

// --- threads

inline char* EmulatedThread::shared() const { return reinterpret_cast<char*>(block_.memory_.data()); }
inline void EmulatedThread::barrier() { block_.together(number_, EmulatedBlock::Kind::barrier, {}); }

inline void EmulatedThread::perform(const Copy& copy) {
  if (copy.known)
    std::memcpy(static_cast<void*>(copy.to), copy.from, 16);
  else
    std::memset(static_cast<void*>(copy.to), 0, 16);
}

inline void require_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) throw std::logic_error("an address is not aligned");
}

inline void EmulatedThread::copy(bf16* to, const bf16* from, bool known) {
  block_.require_shared(to, 16);
  if (known) require_aligned(from, 16);
  if (block_.copies_ == Copies::early)
    perform({to, from, known});
  else
    open_.push_back({to, from, known});
}

inline void EmulatedThread::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

inline void EmulatedThread::finish_groups(std::size_t all_but) {
  while (groups_.size() > all_but) {
    for (const Copy& copy : groups_.front()) perform(copy);
    groups_.erase(groups_.begin());
  }
}

inline void EmulatedThread::copy_out(bf16* to, const bf16* from) {
  block_.require_shared(from, 16);
  require_aligned(to, 16);
  std::memcpy(static_cast<void*>(to), from, 16);
}

inline void EmulatedThread::store_pair(bf16* to, std::uint32_t pair) {
  block_.require_shared(to, 4);
  std::memcpy(static_cast<void*>(to), &pair, 4);
}

inline void EmulatedThread::load(std::uint32_t (&r)[4], const bf16* row, bool transposed) {
  EmulatedBlock::Operands mine;
  mine.row = row;
  mine = block_.together(number_, transposed ? EmulatedBlock::Kind::load_transposed : EmulatedBlock::Kind::load, mine);
  std::copy(mine.words.begin(), mine.words.begin() + 4, r);
}

inline void EmulatedThread::multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  EmulatedBlock::Operands mine;
  mine.words = {a[0], a[1], a[2], a[3], b0, b1};
  std::copy(c, c + 4, mine.numbers.begin());
  mine = block_.together(number_, EmulatedBlock::Kind::multiply, mine);
  std::copy(mine.numbers.begin(), mine.numbers.end(), c);
}

inline float EmulatedThread::shuffle_xor(float value, int mask) {
  EmulatedBlock::Operands mine;
  mine.words[0] = static_cast<std::uint32_t>(mask);
  mine.numbers[0] = value;
  return block_.together(number_, EmulatedBlock::Kind::shuffle, mine).numbers[0];
}

// --- the block

inline EmulatedBlock::EmulatedBlock(std::size_t shared_bytes, Copies copies)
    : memory_((shared_bytes + 15) / 16),
      shared_bytes_(shared_bytes),
      copies_(copies),
      contexts_(tensor_cores::threads) {
  for (Context& context : contexts_) context.stack.resize(std::size_t{128} << 10);
}

inline void EmulatedBlock::require_shared(const void* address, std::size_t bytes) const {
  require_aligned(address, bytes);
  const auto* const begin = reinterpret_cast<const char*>(memory_.data());
  const auto* const at = static_cast<const char*>(address);
  if (at < begin || at + bytes > begin + shared_bytes_) throw std::logic_error("an address outside of shared memory");
}

inline void EmulatedBlock::enter() {
  EmulatedBlock& block = *running_;
  const int number = block.starting_;
  try {
    EmulatedThread thread(block, number);
    block.body_(thread);
  } catch (...) {
    if (!block.error_) block.error_ = std::current_exception();
  }
  block.contexts_[static_cast<std::size_t>(number)].finished = true;
  block.yield(number);  // for good
}

inline void EmulatedBlock::run(const std::function<void(EmulatedThread&)>& body) {
  running_ = this;
  body_ = body;
  error_ = nullptr;
  std::memset(static_cast<void*>(memory_.data()), 0xff, memory_.size() * 16);
  for (Context& context : contexts_) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = context.stack.data();
    context.state.uc_stack.ss_size = context.stack.size();
    context.waiting = Kind::none;
    context.finished = false;
    makecontext(&context.state, &EmulatedBlock::enter, 0);
  }
  for (;;) {
    int warp = 0;
    while (warp < tensor_cores::warps && !advance(copies_ == Copies::early ? warp : tensor_cores::warps - 1 - warp))
      ++warp;
    if (warp < tensor_cores::warps) continue;
    const auto all = [&](const auto& holds) { return std::all_of(contexts_.begin(), contexts_.end(), holds); };
    if (all([](const Context& c) { return c.finished; })) return;
    if (!all([](const Context& c) { return c.waiting == Kind::barrier; }))
      throw std::logic_error("threads wait at different barriers or instructions, or some have ended");
    for (Context& context : contexts_) context.waiting = Kind::none;
  }
}

/// Runs the lanes of a warp until each waits or has ended, and what they wait for if it is the same; false: nothing.
inline bool EmulatedBlock::advance(int warp) {
  bool moved = false;
  for (int thread = warp * lanes; thread < (warp + 1) * lanes; ++thread) {
    Context& context = contexts_[static_cast<std::size_t>(thread)];
    if (context.finished || context.waiting != Kind::none) continue;
    starting_ = thread;
    swapcontext(&scheduler_, &context.state);
    moved = true;
    if (error_) std::rethrow_exception(error_);
  }
  return complete_warp(warp) || moved;
}

/// Waits until all lanes of the warp, or all threads at a barrier, are here.
inline EmulatedBlock::Operands EmulatedBlock::together(int thread, Kind kind, const Operands& mine) {
  Context& context = contexts_[static_cast<std::size_t>(thread)];
  context.operands = mine;
  context.waiting = kind;
  yield(thread);
  return context.operands;
}

inline bool EmulatedBlock::complete_warp(int warp) {
  Context* const first = &contexts_[static_cast<std::size_t>(warp * lanes)];
  const Kind kind = first->waiting;
  if (kind == Kind::none || kind == Kind::barrier) return false;
  if (!std::all_of(first, first + lanes, [&](const Context& c) { return !c.finished && c.waiting == kind; }))
    return false;
  std::array<Operands, lanes> all;
  for (std::size_t l = 0; l < lanes; ++l) all[l] = first[l].operands;
  switch (kind) {
    case Kind::load:
    case Kind::load_transposed:
      load(all.data(), kind == Kind::load_transposed);
      break;
    case Kind::multiply:
      multiply(all.data());
      break;
    default: {
      const auto before = all;
      for (std::size_t l = 0; l < lanes; ++l) all[l].numbers[0] = before[l ^ before[l].words[0]].numbers[0];
    }
  }
  for (std::size_t l = 0; l < lanes; ++l) {
    first[l].operands = all[l];
    first[l].waiting = Kind::none;
  }
  return true;
}

/// Lanes 8 m to 8 m + 7 name the rows of matrix m. Lane 4 g + t takes elements 2 t and 2 t + 1 of row g of each matrix;
/// transposed, of column g.
inline void EmulatedBlock::load(Operands* all, bool transposed) const {
  for (int l = 0; l < lanes; ++l) require_shared(all[l].row, 16);
  for (int l = 0; l < lanes; ++l)
    for (int m = 0; m < 4; ++m) {
      const int g = l / 4, t = l % 4;
      const auto element = [&](int row, int column) { return std::uint32_t{all[8 * m + row].row[column].bits}; };
      const std::uint32_t low = transposed ? element(2 * t, g) : element(g, 2 * t);
      const std::uint32_t high = transposed ? element(2 * t + 1, g) : element(g, 2 * t + 1);
      all[l].words[static_cast<std::size_t>(m)] = low | high << 16;
    }
}

inline void EmulatedBlock::multiply(Operands* all) {
  const auto number = [](std::uint32_t word, int half) {
    bf16 value;
    value.bits = static_cast<std::uint16_t>(half == 0 ? word : word >> 16);
    return static_cast<float>(value);
  };
  float a[16][16], b[16][8];
  for (int l = 0; l < lanes; ++l)
    for (int half = 0; half < 2; ++half) {
      const int g = l / 4, t = l % 4, at = 2 * t + half;
      a[g][at] = number(all[l].words[0], half);
      a[g + 8][at] = number(all[l].words[1], half);
      a[g][at + 8] = number(all[l].words[2], half);
      a[g + 8][at + 8] = number(all[l].words[3], half);
      b[at][g] = number(all[l].words[4], half);
      b[at + 8][g] = number(all[l].words[5], half);
    }
  for (int l = 0; l < lanes; ++l)
    for (int e = 0; e < 4; ++e) {
      const int row = l / 4 + e / 2 * 8, column = l % 4 * 2 + e % 2;
      float& sum = all[l].numbers[static_cast<std::size_t>(e)];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
    }
}

}  // namespace atl::test
