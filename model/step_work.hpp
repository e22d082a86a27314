/// What a Llama's training step does, as the cost model counts it. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/llama.hpp"
#include "parallel/cost_model.hpp"
#include "parallel/sharded_parameters.hpp"

namespace atl {

struct StepWorkOptions {
  LlamaShape shape;
  AfterForward after = AfterForward::reshard;
  Precision precision = Precision::fp32;
  OptimizerOptions::Kind optimizer = OptimizerOptions::Kind::adamw;
  std::int64_t micro_batches = 1;
  std::int64_t every = 1;  ///< H
  int prefetch = 1;        ///< as of ShardedParameters
  int gradient_bytes = 0;  ///< of a reduced element; 0: as atoll reduces, in the precision of the master weights
};

/// Stages follow Llama::forward_backward. Operations: 2 per multiplication and addition of a matrix product, the
/// causal half of attention, twice the forward in backward, and a block's forward again where it is recomputed; norms,
/// RoPE, softmax and SwiGLU are not counted.
Workload step_work(const LlamaConfig& config, const StepWorkOptions& options);

/// Scales the operations of all stages, so that a micro-batch takes these seconds of computation at machine.flops.
void set_compute_seconds(Workload& work, const Machine& machine, double seconds);

}  // namespace atl
