/// Random initialisation that no grid changes. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/llama_config.hpp"
#include "parallel/sharded_parameters.hpp"

namespace atl {

/// Norm weights are 1, all others normal with mean 0 and standard deviation config.initializer_range. Every value is a
/// pure function of (seed, Hugging Face name, flat element index). Padding stays zero.
template <class T>
void initialise(const Exec& exec, const LlamaConfig& config, std::uint64_t seed, ShardedParameters<T>& parameters);

}  // namespace atl
