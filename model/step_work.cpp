/// SPDX-License-Identifier: Apache-2.0
#include "model/step_work.hpp"

#include "model/parameters.hpp"

namespace atl {

namespace {

/// Operations of one block's forward pass for n tokens in sequences of t.
double block_flops(const LlamaConfig& config, double n, double t) {
  const auto c = static_cast<double>(config.hidden_size), f = static_cast<double>(config.intermediate_size);
  const auto q = static_cast<double>(config.query_size()), kv = static_cast<double>(config.key_value_size());
  const double products = 2 * (c * (q + 2 * kv) + q * c + 3 * c * f);
  const double attention = 2 * q * t;  // Q K^T and P V of the t / 2 positions before a token, on average
  return n * (products + attention);
}

}  // namespace

Workload step_work(const LlamaConfig& config, const StepWorkOptions& options) {
  Workload work;
  for (const UnitSpec& unit : llama_units(config)) work.units.push_back(ShardLayout(unit, 1).size());
  const auto length = static_cast<double>(options.shape.sequence_length);
  work.tokens = options.shape.micro_batch * options.shape.sequence_length;
  work.micro_batches = options.micro_batches;
  work.every = options.every;
  work.prefetch = options.prefetch;
  const int master = options.precision == Precision::fp64 ? 8 : 4;
  work.gathered_bytes = options.precision == Precision::bf16 ? 2 : master;
  work.gradient_bytes = options.gradient_bytes > 0 ? options.gradient_bytes : master;
  work.averaged_bytes = master;
  // The norm reads the gradient; AdamW reads gradient, weights and two moments, and writes all but the first.
  work.update_bytes = (options.optimizer == OptimizerOptions::Kind::adamw ? 8 : 4) * master;
  if (options.precision == Precision::bf16) work.update_bytes += work.gathered_bytes;  // the weights written beside

  const auto n = static_cast<double>(work.tokens);
  const double block = block_flops(config, n, length);
  const double again = options.shape.recompute == Recompute::block ? block : 0;
  const double head = 2 * n * static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  const bool tied = config.tie_word_embeddings;
  const bool kept = options.after == AfterForward::keep;
  const auto unit = [&](std::size_t index) { return work.units[index]; };
  const auto layers = config.num_hidden_layers;

  work.stages.push_back({unit(embedding_unit()), true, false, 0});
  for (std::int64_t layer = 0; layer < layers; ++layer)
    work.stages.push_back({unit(block_unit(layer)), true, false, block});
  // A tied table is reduced once, at the end, with the gradients of both its uses.
  work.stages.push_back({unit(head_unit(config)), true, !tied, 3 * head});
  for (std::int64_t layer = layers; layer-- > 0;)
    work.stages.push_back({unit(block_unit(layer)), !kept, true, 2 * block + again});
  work.stages.push_back({unit(embedding_unit()), false, true, 0});
  return work;
}

void set_compute_seconds(Workload& work, const Machine& machine, double seconds) {
  double flops = 0;
  for (const Stage& stage : work.stages) flops += stage.flops;
  for (Stage& stage : work.stages) stage.flops *= seconds * machine.flops / flops;
}

}  // namespace atl
