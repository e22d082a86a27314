/// SPDX-License-Identifier: Apache-2.0
#include "model/rope_frequencies.hpp"

#include <cmath>

namespace atl {

std::vector<double> rope_frequencies(const LlamaConfig& config) {
  const double pi = 3.14159265358979323846;
  const RopeScaling& scaling = config.rope_scaling;
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  std::vector<double> frequencies;
  for (std::int64_t d = 0; d < config.head_dim / 2; ++d) {
    double frequency =
        std::pow(config.rope_theta, -2.0 * static_cast<double>(d) / static_cast<double>(config.head_dim));
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= scaling.factor;
    if (scaling.kind == RopeScaling::Kind::llama3) {
      const double wavelength = 2 * pi / frequency;
      if (wavelength > original / scaling.low_freq_factor) {
        frequency /= scaling.factor;
      } else if (wavelength >= original / scaling.high_freq_factor) {
        const double smooth =
            (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace atl
