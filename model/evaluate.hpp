/// Perplexity of an evaluation set, the same number on any grid. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/llama.hpp"
#include "parallel/communicator.hpp"

#include <cmath>
#include <functional>

namespace atl {

struct Evaluation {
  double loss = 0;          ///< mean over all target tokens, nats
  double total = 0;         ///< their sum, nats
  std::int64_t tokens = 0;  ///< target tokens
  double perplexity() const { return std::exp(loss); }
};

/// Runs `batches` micro-batches on every rank; batch_at(i) makes this rank's i-th (with ignored targets only where it
/// has none left). Their losses are added in the order: first ones of all ranks, second ones of all ranks, ... So the
/// sum has the same bits on any grid that deals the same micro-batches in this order. Collective over the world.
template <class T>
Evaluation evaluate(const Exec& exec, Llama<T>& model, const Communicator& world, std::int64_t batches,
                    const std::function<Batch(std::int64_t)>& batch_at);

}  // namespace atl
