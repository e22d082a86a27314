/// Texts that a model continues: sequences of tokens, dealt to the ranks. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/decoder.hpp"
#include "model/sampling.hpp"
#include "parallel/communicator.hpp"

#include <functional>

namespace atl {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t samples = 1;               ///< continuations of each prompt
  std::int64_t max_tokens = 256;          ///< new tokens of a sequence, at most
  std::vector<std::int32_t> stop_tokens;  ///< a sequence ends with the first of these
};

/// A continuation. Sequence p samples + s is sample s of prompt p.
struct Generated {
  std::vector<std::int32_t> tokens;  ///< new ones, with the stop token where one came
  bool stopped = false;              ///< by a stop token; otherwise max_tokens were reached
};

struct GenerateResult {
  std::vector<Generated> sequences;
  double prefill_seconds = 0, decode_seconds = 0;
  std::int64_t steps = 0;  ///< of decoding: each reads all weights once on every rank that has a sequence left
};

/// Sequence q belongs to rank q mod (ranks), which alone computes it and draws its tokens; the weights are those of all
/// ranks. After every step all ranks know all new tokens, so all stop together. A sequence is a pure function of model,
/// prompt, sampling options and its sample's number, whatever the number of ranks and the other sequences.
/// `on_token` is told (sequence, token, whether it is the last) on every rank, sequences ascending in each step.
/// Prompts have at least one token. Collective over `world`, whose ranks are those of `parameters`' replicas.
template <class T>
GenerateResult generate(const Exec& exec, const LlamaConfig& config, ShardedParameters<T>& parameters,
                        const Communicator& world, const std::vector<std::vector<std::int32_t>>& prompts,
                        const GenerateOptions& options,
                        const std::function<void(std::size_t, std::int32_t, bool)>& on_token = {});

}  // namespace atl
