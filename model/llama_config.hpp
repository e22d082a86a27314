/// Llama's hyperparameters: presets, and Hugging Face config.json. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// RoPE frequency scaling, "rope_type" in config.json: llama3, as Llama 3.1 and later have it, or linear, which only
/// has a factor.
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  bool operator==(const RopeScaling&) const = default;
};

/// Names are those of Hugging Face's LlamaConfig.
struct LlamaConfig {
  std::int64_t hidden_size = 0;        ///< C
  std::int64_t intermediate_size = 0;  ///< F
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;  ///< H
  std::int64_t num_key_value_heads = 0;  ///< K, divides H
  std::int64_t head_dim = 0;             ///< D, even; 0: hidden_size / num_attention_heads
  std::int64_t vocab_size = 0;           ///< V
  std::int64_t max_position_embeddings = 2048;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  double rms_norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;

  std::int64_t query_size() const { return num_attention_heads * head_dim; }      ///< H D
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }  ///< K D
  bool operator==(const LlamaConfig&) const = default;
};

/// "tiny", "125m", "1b" (Llama 3.2 1B), "8b", "70b" (Llama 3.1). ConfigError with the nearest name otherwise.
LlamaConfig llama_preset(std::string_view name);
std::vector<std::string_view> llama_preset_names();

/// Reads a Hugging Face config.json, of model_type "llama", or "mistral" without a sliding window, as transformers 4 or
/// 5 writes it. ConfigError names the key of what is not the same mathematics (model_type, hidden_act, attention_bias,
/// mlp_bias, sliding_window, other rope types, ...), of what is missing and of what has a wrong type.
LlamaConfig read_hugging_face_config(const std::string& path);

/// The same as JSON text, as Hugging Face would write it; and back (used for model files).
std::string to_hugging_face_json(const LlamaConfig& config);
LlamaConfig parse_hugging_face_config(const std::string& json_text, const std::string& where);

/// Fills head_dim where 0; throws ConfigError for the first value that cannot be (naming key, value, reason, fix).
void complete_and_check(LlamaConfig& config);

/// Number of parameters; a tied head counts once.
std::int64_t parameter_count(const LlamaConfig& config);

}  // namespace atl
