/// One optimizer step of a group: micro-batches, reductions, update. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/llama.hpp"
#include "model/optimizer.hpp"
#include "parallel/communicator.hpp"
#include "parallel/stop_agreement.hpp"

#include <functional>
#include <vector>

namespace atl {

/// Of the whole group, the same on all its ranks.
struct StepResult {
  double loss = 0;           ///< mean over the group's target tokens, before the update
  double gradient_norm = 0;  ///< before clipping
  std::int64_t tokens = 0;   ///< target tokens of the group
  StopWish stop_wish;        ///< that of the group's first rank that has one
};

/// The gradient is that of the mean loss over all target tokens of the group's batch, however they are spread over
/// ranks and micro-batches: every micro-batch is scaled by the same 1 / tokens. `micro_batches`: this rank's, equally
/// many on every rank of the group. `stop_wish` is asked once, as late as possible: its answer is told to the group
/// with the loss. Collective over the group; throws GroupError if the gradient is not finite.
template <class T>
StepResult training_step(const Exec& exec, Llama<T>& model, Optimizer<T>& optimizer, const Communicator& group,
                         const std::vector<Batch>& micro_batches, double lr,
                         const std::function<StopWish()>& stop_wish = {});

}  // namespace atl
