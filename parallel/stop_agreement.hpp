/// After which optimizer step all ranks stop, when some wish to. SPDX-License-Identifier: Apache-2.0
///
/// Groups do not talk inside a round, and may be at different steps of it. They meet where a collective operation of
/// the world follows a step: an aggregation, an evaluation, a save. The stretch of steps from one meeting to the next
/// is a segment; the numbers of a segment's steps are the same for all groups.
///
/// In a group a wish travels with the loss (model/training_step), so all its ranks learn of it at the end of a step.
/// Between groups their first ranks, the leaders, agree: once a segment, by a non-blocking all-gather, which each
/// starts
///   early: at the end of the step in which its group learns of a wish; the group then waits for the others, or
///   late:  at the end of the segment, just before the meeting; its result is looked at after the meeting.
/// The groups stop after the latest step at which any of them started, if one of them knew of a wish: none of them is
/// beyond that step, as an early group waits, and a late one is at the segment's end. A leader that starts early, and
/// was not told by another one, tells all others, so that they start early as well.
///
/// No hang: every leader starts the all-gather by itself before a meeting, so an early group waits only for steps of
/// others, never for a group inside the meeting. Messages that tell of a wish are completed after the last step of all.
#pragma once

#include "parallel/communicator.hpp"
#include "parallel/process_grid.hpp"

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace atl {

/// That a rank wishes to stop, and why.
struct StopWish {
  int reason = 0;  ///< 0: no wish; else the number of a signal, or what the caller has chosen
  int rank = -1;   ///< of the world: who had it
  explicit operator bool() const { return reason != 0; }
  bool operator==(const StopWish&) const = default;
};

/// Of a run: every rank has one, and calls end_step and stops_after after each of its steps. One group sends nothing.
/// Several send, a segment, 32 bytes from each leader to the others, and 24 bytes from each leader to its group; beyond
/// that only where there is a wish.
class StopAgreement {
 public:
  /// Collective over the first ranks of all groups. The communicators must outlive this.
  StopAgreement(const ProcessGrid& grid, const Communicators& communicators);
  /// Frees the leaders' communicator. While an exception flies it waits a second at most for messages under way.
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// This rank's own wish, or else that of another group which it was told: for training_step.
  StopWish with_told(const StopWish& own);

  /// At the end of optimizer step `step`, before anything that the groups meet for. `wish`: StepResult::stop_wish, the
  /// same on all ranks of the group. `groups_meet`: whether a collective operation of the world follows this step; the
  /// same for all groups. Waits for nobody.
  void end_step(std::int64_t step, const StopWish& wish, bool groups_meet);

  /// Whether all stop after `step`: to ask after each step, and after what the groups met for. The same on all ranks of
  /// the world. Collective over the group; where the group started early, it waits for the others to start.
  bool stops_after(std::int64_t step);

  const StopWish& reason() const { return reason_; }  ///< once agreed; the same on all ranks

  /// On the first rank of a group, where there are several groups.
  const std::optional<Communicator>& leaders() const { return leaders_; }

 private:
  struct Messages;
  enum class State {
    quiet,    ///< nothing started in this segment
    started,  ///< early or late; the result is not known yet
    agreed    ///< all stop after stop_step_
  };
  void start(std::int64_t step, const StopWish& wish, bool groups_meet);
  void find_result();
  void complete_messages();

  const Communicator& group_;
  int groups_;
  std::optional<Communicator> leaders_;
  std::unique_ptr<Messages> messages_;  ///< of a leader
  State state_ = State::quiet;
  std::int64_t stop_step_ = 0;
  StopWish reason_, told_;
};

}  // namespace atl
