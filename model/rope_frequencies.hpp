/// RoPE's angles per position, plain or scaled. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/llama_config.hpp"

#include <vector>

namespace atl {

/// D/2 frequencies theta^(-2 d / D). Linear scaling divides all by `factor` (arXiv:2306.15595). With llama3 scaling,
/// wavelengths above original / low_freq_factor are divided by `factor`, those below original / high_freq_factor kept,
/// and those between interpolated (Llama 3.1, arXiv:2407.21783; the formula is that of Hugging Face's "llama3" rope
/// type).
std::vector<double> rope_frequencies(const LlamaConfig& config);

}  // namespace atl
