/// SPDX-License-Identifier: Apache-2.0
#include "model/training_step.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace atl {

namespace {

/// Every rank of the group is here, as all have the same norm: time to ask who had lost it already in the forward pass.
[[noreturn]] void throw_of_group(const GradientError& error, const Communicator& group, double loss) {
  std::vector<std::size_t> ranks;
  const std::vector<double> losses = group.all_gather({loss});
  for (std::size_t r = 0; r < losses.size(); ++r)
    if (!std::isfinite(losses[r])) ranks.push_back(r);
  const std::string where = ranks.empty() ? "the losses of all ranks are finite"
                                          : fmt::format("the loss is not finite on rank {} of the group's {}",
                                                        fmt::join(ranks, ", "), group.size());
  throw GroupError(fmt::format("{}; {}", error.what(), where), group);
}

/// Loss (a sum in rank order: the same bits on all ranks) and wish of the group, in one message.
void exchange(StepResult& result, const Communicator& group, double loss, const StopWish& mine) {
  const std::vector<double> all =
      group.all_gather({loss, static_cast<double>(mine.reason), static_cast<double>(mine.rank)});
  for (std::size_t i = 0; i < all.size(); i += 3) {
    result.loss += all[i];
    if (!result.stop_wish && all[i + 1] != 0)
      result.stop_wish = {static_cast<int>(all[i + 1]), static_cast<int>(all[i + 2])};
  }
}

}  // namespace

template <class T>
StepResult training_step(const Exec& exec, Llama<T>& model, Optimizer<T>& optimizer, const Communicator& group,
                         const std::vector<Batch>& micro_batches, double lr,
                         const std::function<StopWish()>& stop_wish) {
  StepResult result;
  std::int64_t mine = 0;
  for (const Batch& batch : micro_batches) mine += batch.target_count();
  result.tokens = group.sum(mine);
  const double scale = result.tokens > 0 ? 1.0 / static_cast<double>(result.tokens) : 0.0;

  double loss = 0;
  model.parameters().begin_gradients(static_cast<std::int64_t>(micro_batches.size()));
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const bool last = i + 1 == micro_batches.size();
    loss += model.forward_backward(exec, micro_batches[i], scale, last ? Follows::anything : Follows::micro_batch);
  }
  model.parameters().finish_gradients(exec);
  try {
    result.gradient_norm = optimizer.step(exec, lr);
  } catch (const GradientError& error) {
    throw_of_group(error, group, loss);
  }
  exchange(result, group, loss, stop_wish ? stop_wish() : StopWish());
  result.loss *= scale;
  return result;
}

template StepResult training_step<float>(const Exec&, Llama<float>&, Optimizer<float>&, const Communicator&,
                                         const std::vector<Batch>&, double, const std::function<StopWish()>&);
template StepResult training_step<double>(const Exec&, Llama<double>&, Optimizer<double>&, const Communicator&,
                                          const std::vector<Batch>&, double, const std::function<StopWish()>&);
template StepResult training_step<bf16>(const Exec&, Llama<bf16>&, Optimizer<bf16>&, const Communicator&,
                                        const std::vector<Batch>&, double, const std::function<StopWish()>&);

}  // namespace atl
