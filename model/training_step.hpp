/// One optimizer step of a group: micro-batches, reductions, update. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/llama.hpp"
#include "model/optimizer.hpp"
#include "parallel/communicator.hpp"

#include <vector>

namespace atl {

/// Of the whole group, the same on all its ranks.
struct StepResult {
  double loss = 0;           ///< mean over the group's target tokens, before the update
  double gradient_norm = 0;  ///< before clipping
  std::int64_t tokens = 0;   ///< target tokens of the group
};

/// The gradient is that of the mean loss over all target tokens of the group's batch, however they are spread over
/// ranks and micro-batches: every micro-batch is scaled by the same 1 / tokens. `micro_batches`: this rank's, equally
/// many on every rank of the group. Collective over the group; throws GroupError if the gradient is not finite.
template <class T>
StepResult training_step(const Exec& exec, Llama<T>& model, Optimizer<T>& optimizer, const Communicator& group,
                         const std::vector<Batch>& micro_batches, double lr);

}  // namespace atl
