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
  model.parameters().clear_gradients();
  for (const Batch& batch : micro_batches) loss += model.forward_backward(exec, batch, scale);
  model.parameters().reduce_over_replicas(exec);
  result.gradient_norm = optimizer.step(exec, lr);
  result.loss = group.sum(loss) * scale;
  return result;
}

template StepResult training_step<float>(const Exec&, Llama<float>&, Optimizer<float>&, const Communicator&,
                                         const std::vector<Batch>&, double);
template StepResult training_step<double>(const Exec&, Llama<double>&, Optimizer<double>&, const Communicator&,
                                          const std::vector<Batch>&, double);

}  // namespace atl
