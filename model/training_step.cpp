/// SPDX-License-Identifier: Apache-2.0
#include "model/training_step.hpp"

namespace atl {

template <class T>
StepResult training_step(const Exec& exec, Llama<T>& model, Optimizer<T>& optimizer, const Communicator& group,
                         const std::vector<Batch>& micro_batches, double lr) {
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
  result.gradient_norm = optimizer.step(exec, lr);
  result.loss = group.sum(loss) * scale;
  return result;
}

template StepResult training_step<float>(const Exec&, Llama<float>&, Optimizer<float>&, const Communicator&,
                                         const std::vector<Batch>&, double);
template StepResult training_step<double>(const Exec&, Llama<double>&, Optimizer<double>&, const Communicator&,
                                          const std::vector<Batch>&, double);

}  // namespace atl
