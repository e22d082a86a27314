/// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.hpp"

#include <string>

namespace atl {

namespace {
// Embedding and head are never full at the same time, nor are two blocks.
constexpr int vocabulary_buffer = 0, block_buffer = 1;
}  // namespace

std::vector<UnitSpec> llama_units(const LlamaConfig& config) {
  const auto c = static_cast<std::size_t>(config.hidden_size), f = static_cast<std::size_t>(config.intermediate_size);
  const auto v = static_cast<std::size_t>(config.vocab_size);
  const auto q = static_cast<std::size_t>(config.query_size()), kv = static_cast<std::size_t>(config.key_value_size());
  const TensorSpec final_norm{"model.norm.weight", {c}, false};

  std::vector<UnitSpec> units;
  units.push_back({"embedding", {{"model.embed_tokens.weight", {v, c}}}, vocabulary_buffer});
  if (config.tie_word_embeddings) units.back().tensors.push_back(final_norm);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    units.push_back({"block " + std::to_string(layer),
                     {{prefix + "self_attn.q_proj.weight", {q, c}},
                      {prefix + "self_attn.k_proj.weight", {kv, c}},
                      {prefix + "self_attn.v_proj.weight", {kv, c}},
                      {prefix + "self_attn.o_proj.weight", {c, q}},
                      {prefix + "mlp.gate_proj.weight", {f, c}},
                      {prefix + "mlp.up_proj.weight", {f, c}},
                      {prefix + "mlp.down_proj.weight", {c, f}},
                      {prefix + "input_layernorm.weight", {c}, false},
                      {prefix + "post_attention_layernorm.weight", {c}, false}},
                     block_buffer});
  }
  if (!config.tie_word_embeddings)
    units.push_back({"head", {{"lm_head.weight", {v, c}}, final_norm}, vocabulary_buffer});
  return units;
}

std::size_t head_unit(const LlamaConfig& config) {
  return config.tie_word_embeddings ? embedding_unit() : block_unit(config.num_hidden_layers);
}

}  // namespace atl
