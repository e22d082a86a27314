/// SPDX-License-Identifier: Apache-2.0
#include "model/evaluate.hpp"

namespace atl {

template <class T>
Evaluation evaluate(const Exec& exec, Llama<T>& model, const Communicator& world, std::int64_t batches,
                    const std::function<Batch(std::int64_t)>& batch_at) {
  std::vector<double> losses;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < batches; ++i) {
    const Batch batch = batch_at(i);
    tokens += batch.target_count();
    losses.push_back(model.forward(exec, batch));
  }
  Evaluation result;
  result.tokens = world.sum(tokens);
  // In the order of the micro-batches, whoever computed them.
  const std::vector<double> all = world.all_gather(losses);
  for (std::size_t i = 0; i < losses.size(); ++i)
    for (std::size_t rank = 0; rank < all.size() / losses.size(); ++rank) result.total += all[rank * losses.size() + i];
  result.loss = result.tokens > 0 ? result.total / static_cast<double>(result.tokens) : 0.0;
  return result;
}

template Evaluation evaluate<float>(const Exec&, Llama<float>&, const Communicator&, std::int64_t,
                                    const std::function<Batch(std::int64_t)>&);
template Evaluation evaluate<double>(const Exec&, Llama<double>&, const Communicator&, std::int64_t,
                                     const std::function<Batch(std::int64_t)>&);
template Evaluation evaluate<bf16>(const Exec&, Llama<bf16>&, const Communicator&, std::int64_t,
                                   const std::function<Batch(std::int64_t)>&);

}  // namespace atl
