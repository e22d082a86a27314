/// Presets and checks. SPDX-License-Identifier: Apache-2.0
#include "model/llama_config.hpp"

#include "core/errors.hpp"
#include "core/nearest_name.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace atl {
namespace {

constexpr std::array<std::string_view, 5> preset_names = {"tiny", "125m", "1b", "8b", "70b"};

/// Llama 3.1 and 3.2 share everything but their sizes, the tied head and the RoPE factor.
LlamaConfig llama_3(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers, std::int64_t heads) {
  LlamaConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = intermediate;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.num_key_value_heads = 8;
  config.vocab_size = 128256;
  config.max_position_embeddings = 131072;
  config.rope_theta = 500000.0;
  config.rope_scaling.kind = RopeScaling::Kind::llama3;
  config.rms_norm_eps = 1e-5;
  return config;
}

void check_size(const char* key, std::int64_t value, std::int64_t largest) {
  if (value < 1) throw ConfigError(fmt::format("model.{} = {} must be at least 1", key, value));
  if (value > largest) throw ConfigError(fmt::format("model.{} = {} is too large; at most {}", key, value, largest));
}

void check_positive(const char* key, double value) {
  if (!(value > 0.0) || !std::isfinite(value))
    throw ConfigError(fmt::format("model.{} = {} must be a positive number", key, value));
}

/// "28 or 32": the multiples of `unit` around `value`.
std::string multiples_around(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = value / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

}  // namespace

std::vector<std::string_view> llama_preset_names() { return {preset_names.begin(), preset_names.end()}; }

LlamaConfig llama_preset(std::string_view name) {
  LlamaConfig config;
  if (name == "tiny") {  // 131,648 parameters with the byte-level vocabulary: 256 bytes, begin and end of document
    config.hidden_size = 64;
    config.intermediate_size = 192;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 258;
  } else if (name == "125m") {  // GPT-2 small's sizes on Llama's architecture: 123,587,328 parameters
    config.hidden_size = 768;
    config.intermediate_size = 2048;
    config.num_hidden_layers = 12;
    config.num_attention_heads = 12;
    config.num_key_value_heads = 12;
    config.vocab_size = 50304;
    config.tie_word_embeddings = true;
  } else if (name == "1b") {  // Llama 3.2 1B: 1,235,814,400 parameters
    config = llama_3(2048, 8192, 16, 32);
    config.rope_scaling.factor = 32.0;
    config.tie_word_embeddings = true;
  } else if (name == "8b") {  // Llama 3.1 8B: 8,030,261,248 parameters
    config = llama_3(4096, 14336, 32, 32);
  } else if (name == "70b") {  // Llama 3.1 70B: 70,553,706,496 parameters
    config = llama_3(8192, 28672, 80, 64);
  } else {
    throw ConfigError(fmt::format("model.preset = \"{}\" is no preset; there are {}; nearest: \"{}\"", name,
                                  fmt::join(preset_names, ", "), nearest_name(name, preset_names)));
  }
  complete_and_check(config);
  return config;
}

void complete_and_check(LlamaConfig& config) {
  // The upper bounds keep every product of sizes, and their sum, inside 64 bits.
  check_size("hidden_size", config.hidden_size, std::int64_t{1} << 20);
  check_size("intermediate_size", config.intermediate_size, std::int64_t{1} << 22);
  check_size("num_hidden_layers", config.num_hidden_layers, 1 << 12);
  check_size("num_attention_heads", config.num_attention_heads, 1 << 14);
  check_size("num_key_value_heads", config.num_key_value_heads, 1 << 14);
  check_size("vocab_size", config.vocab_size, std::int64_t{1} << 30);
  check_size("max_position_embeddings", config.max_position_embeddings, std::int64_t{1} << 30);

  if (config.num_attention_heads % config.num_key_value_heads != 0)
    throw ConfigError(
        fmt::format("model.num_attention_heads = {} is not a multiple of num_key_value_heads = {} (query heads share "
                    "key-value heads evenly); nearest: {}",
                    config.num_attention_heads, config.num_key_value_heads,
                    multiples_around(config.num_attention_heads, config.num_key_value_heads)));
  if (config.head_dim == 0) {
    if (config.hidden_size % config.num_attention_heads != 0)
      throw ConfigError(fmt::format(
          "model.hidden_size = {} is not a multiple of num_attention_heads = {}; give head_dim, or hidden_size = {}",
          config.hidden_size, config.num_attention_heads,
          multiples_around(config.hidden_size, config.num_attention_heads)));
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  check_size("head_dim", config.head_dim, 1 << 12);
  if (config.head_dim % 2 != 0)
    throw ConfigError(
        fmt::format("model.head_dim = {} is odd, but RoPE rotates pairs; give an even head_dim (it is hidden_size / "
                    "num_attention_heads where not given)",
                    config.head_dim));

  check_positive("rope_theta", config.rope_theta);
  check_positive("rms_norm_eps", config.rms_norm_eps);
  check_positive("initializer_range", config.initializer_range);
  const RopeScaling& rope = config.rope_scaling;
  if (rope.kind != RopeScaling::Kind::none) check_positive("rope_scaling.factor", rope.factor);
  if (rope.kind == RopeScaling::Kind::llama3) {
    check_positive("rope_scaling.low_freq_factor", rope.low_freq_factor);
    check_positive("rope_scaling.high_freq_factor", rope.high_freq_factor);
    check_size("rope_scaling.original_max_position_embeddings", rope.original_max_position_embeddings,
               std::int64_t{1} << 30);
    if (!(rope.low_freq_factor < rope.high_freq_factor))
      throw ConfigError(fmt::format("model.rope_scaling.low_freq_factor = {} must be below high_freq_factor = {}",
                                    rope.low_freq_factor, rope.high_freq_factor));
  }
}

std::int64_t parameter_count(const LlamaConfig& config) {
  const std::int64_t c = config.hidden_size;
  const std::int64_t attention = 2 * c * config.query_size() + 2 * c * config.key_value_size();  // q, o and k, v
  const std::int64_t mlp = 3 * c * config.intermediate_size;                                     // gate, up, down
  const std::int64_t norms = 2 * c;
  const std::int64_t embedding = config.vocab_size * c;
  const std::int64_t head = config.tie_word_embeddings ? 0 : embedding;
  return embedding + config.num_hidden_layers * (attention + mlp + norms) + c + head;
}

}  // namespace atl
