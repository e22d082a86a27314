/// SPDX-License-Identifier: Apache-2.0
#include "parallel/stop_agreement.hpp"

#include "core/timer.hpp"
#include "parallel/mpi_error.hpp"
#include "parallel/mpi_transfer.hpp"
#include "parallel/waiting.hpp"

#include <algorithm>
#include <array>

namespace atl {

namespace {

constexpr int tell_tag = 1;

/// What a leader says at its start. Steps are exact in double.
struct Start {
  double step, tells, reason, rank;
};
using Told = std::array<double, 2>;  // reason, rank

}  // namespace

/// Buffers and requests of a leader, which must live as long as the messages are under way.
struct StopAgreement::Messages {
  explicit Messages(std::size_t groups) : all(groups), heard_of(groups, false) {}

  Start mine{};
  std::vector<Start> all;           // in group order
  std::vector<MPI_Request> starts;  // the all-gather
  Told told{};
  std::vector<MPI_Request> tells;
  std::vector<bool> heard_of;  // leaders whose telling was received
};

StopAgreement::StopAgreement(const ProcessGrid& grid, const Communicators& communicators)
    : group_(communicators.group), groups_(grid.number_of_groups()) {
  if (groups_ == 1 || grid.rank_in_group() != 0) return;
  leaders_.emplace(communicators.federation.get());  // equal groups or not, that of the first ranks joins just them
  ATOLL_REQUIRE(leaders_->size() == groups_ && leaders_->rank() == grid.group());
  messages_ = std::make_unique<Messages>(static_cast<std::size_t>(groups_));
}

StopAgreement::~StopAgreement() {
  if (!messages_) return;
  // Nothing is under way at the end of a run. An error may leave something: all leaders had started then, but some may
  // be far behind, and the error must be told now. What MPI may still write to stays.
  const Stopwatch watch;
  bool complete = false;
  try {
    wait_until([&] {
      complete = test_all(messages_->starts) && test_all(messages_->tells);
      return complete || watch.seconds() > 1;
    });
  } catch (const Error&) {  // the one that ends the run is told
  }
  if (!complete) static_cast<void>(messages_.release());
}

StopWish StopAgreement::with_told(const StopWish& own) {
  while (messages_ && state_ == State::quiet) {
    int there = 0;
    MPI_Status status;
    ATOLL_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tell_tag, leaders_->get(), &there, &status));
    if (there == 0) break;
    Told told{};
    std::vector<MPI_Request> request;
    start_receive(told.data(), told.size(), MPI_DOUBLE, status.MPI_SOURCE, tell_tag, leaders_->get(), request);
    wait_all(request);
    messages_->heard_of[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    told_ = {static_cast<int>(told[0]), static_cast<int>(told[1])};
  }
  return own ? own : told_;
}

void StopAgreement::end_step(std::int64_t step, const StopWish& wish, bool groups_meet) {
  if (state_ == State::agreed) return;
  if (groups_ == 1) {
    if (!wish) return;
    stop_step_ = step;
    reason_ = wish;
    state_ = State::agreed;
    return;
  }
  ATOLL_REQUIRE(state_ == State::quiet);  // stops_after() was called since the last meeting
  if (!wish && !groups_meet) return;
  start(step, wish, groups_meet);
  state_ = State::started;
}

void StopAgreement::start(std::int64_t step, const StopWish& wish, bool groups_meet) {
  if (!messages_) return;
  // At the meeting nobody can stop earlier any more; and who was told by one leader knows that all others were.
  const bool tells = wish && !groups_meet && !told_;
  messages_->mine = {static_cast<double>(step), tells ? 1.0 : 0.0, static_cast<double>(wish.reason),
                     static_cast<double>(wish.rank)};
  constexpr std::size_t doubles = sizeof(Start) / sizeof(double);
  start_all_gather(&messages_->mine, messages_->all.data(), doubles, MPI_DOUBLE, leaders_->get(), messages_->starts);
  if (!tells) return;
  messages_->told = {static_cast<double>(wish.reason), static_cast<double>(wish.rank)};
  for (int other = 0; other < groups_; ++other)
    if (other != leaders_->rank())
      start_send(messages_->told.data(), messages_->told.size(), MPI_DOUBLE, other, tell_tag, leaders_->get(),
                 messages_->tells);
}

void StopAgreement::find_result() {
  std::vector<double> result(3);  // step, reason, rank
  if (messages_) {
    wait_all(messages_->starts);
    messages_->starts.clear();
    const auto& all = messages_->all;
    const auto first = std::find_if(all.begin(), all.end(), [](const Start& start) { return start.reason != 0; });
    if (first != all.end()) {
      result = {0, first->reason, first->rank};
      for (const Start& start : all) result[0] = std::max(result[0], start.step);
    }
  }
  group_.broadcast(result);
  reason_ = {static_cast<int>(result[1]), static_cast<int>(result[2])};
  if (!reason_) reason_ = {};
  stop_step_ = static_cast<std::int64_t>(result[0]);
  state_ = reason_ ? State::agreed : State::quiet;
}

bool StopAgreement::stops_after(std::int64_t step) {
  if (state_ == State::started) find_result();
  if (state_ != State::agreed || stop_step_ != step) return false;
  complete_messages();
  return true;
}

/// All leaders are here, after the last step: nobody waits for somebody who is elsewhere.
void StopAgreement::complete_messages() {
  if (!messages_) return;
  std::vector<Told> rest(messages_->all.size());
  std::vector<MPI_Request>& requests = messages_->tells;
  for (int other = 0; other < groups_; ++other) {
    const auto g = static_cast<std::size_t>(other);
    if (other == leaders_->rank() || messages_->all[g].tells == 0 || messages_->heard_of[g]) continue;
    start_receive(rest[g].data(), rest[g].size(), MPI_DOUBLE, other, tell_tag, leaders_->get(), requests);
    messages_->heard_of[g] = true;
  }
  wait_all(requests);
  requests.clear();
}

}  // namespace atl
