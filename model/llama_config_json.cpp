/// Hugging Face's config.json. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "model/llama_config.hpp"
#include "model/strict_json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

namespace atl {
namespace {

using nlohmann::json;

constexpr std::uintmax_t largest_file = 1 << 20;

/// One JSON object of a config.json, read with the place of every error.
class Reader {
 public:
  Reader(const json& object, std::string where, std::string prefix = {})
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

  /// Absent and null are the same to Hugging Face.
  const json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has(const char* key) const { return object_.contains(key); }  ///< null counts
  const std::string& where() const { return where_; }
  const json& need(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) throw ConfigError(fmt::format("{}: {}{} is missing", where_, prefix_, key));
    return *value;
  }
  std::int64_t integer(const char* key) const { return integer_of(key, need(key)); }
  std::int64_t integer(const char* key, std::int64_t absent) const {
    const json* value = find(key);
    return value == nullptr ? absent : integer_of(key, *value);
  }
  double number(const char* key) const { return number_of(key, need(key)); }
  double number(const char* key, double absent) const {
    const json* value = find(key);
    return value == nullptr ? absent : number_of(key, *value);
  }
  bool boolean(const char* key, bool absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) wrong_type(key, *value, "true or false");
    return value->get<bool>();
  }
  std::string text(const char* key) const {
    const json& value = need(key);
    if (!value.is_string()) wrong_type(key, value, "a string");
    return value.get<std::string>();
  }
  Reader object(const char* key) const {
    const json& value = need(key);
    if (!value.is_object()) wrong_type(key, value, "an object");
    return Reader(value, where_, prefix_ + key + ".");
  }

  /// Refuses a value that would change what is computed.
  [[noreturn]] void refuse(const char* key, std::string_view accepted) const {
    throw ConfigError(
        fmt::format("{}: {}{} = {} is not supported (it is other mathematics than Llama's here); only {} is", where_,
                    prefix_, key, brief_json(need(key)), accepted));
  }
  void only(const char* key, const json& accepted) const {
    const json* value = find(key);
    if (value != nullptr && *value != accepted) refuse(key, accepted.dump());
  }

 private:
  [[noreturn]] void wrong_type(const char* key, const json& value, std::string_view expected) const {
    throw ConfigError(fmt::format("{}: {}{} = {} is a {}; expected {}", where_, prefix_, key, brief_json(value),
                                  value.type_name(), expected));
  }
  std::int64_t integer_of(const char* key, const json& value) const {
    const bool too_large = value.is_number_unsigned() &&
                           value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!value.is_number_integer() || too_large) wrong_type(key, value, "an integer");
    return value.get<std::int64_t>();
  }
  double number_of(const char* key, const json& value) const {
    if (!value.is_number()) wrong_type(key, value, "a number");
    return value.get<double>();
  }

  const json& object_;
  std::string where_, prefix_;
};

/// transformers 4 writes `rope_scaling` beside `rope_theta`, transformers 5 both in `rope_parameters`.
void read_rope(const Reader& file, LlamaConfig& config) {
  const json *newer = file.find("rope_parameters"), *older = file.find("rope_scaling");
  if (newer != nullptr && older != nullptr && *newer != *older)
    file.refuse("rope_scaling", "the same as rope_parameters, or one of them");
  config.rope_theta = file.number("rope_theta", 10000.0);
  const char* key = newer != nullptr ? "rope_parameters" : "rope_scaling";
  if (file.find(key) == nullptr || (older != nullptr && older->empty())) return;  // {} is none to Hugging Face

  const Reader rope = file.object(key);
  const double theta = rope.number("rope_theta", config.rope_theta);
  if (file.find("rope_theta") != nullptr && theta != config.rope_theta)
    file.refuse("rope_theta", fmt::format("the value of {}.rope_theta", key));
  config.rope_theta = theta;
  rope.only("partial_rotary_factor", 1.0);
  const char* type_key = rope.find("rope_type") != nullptr || rope.find("type") == nullptr ? "rope_type" : "type";
  const std::string type = newer != nullptr && rope.find(type_key) == nullptr ? "default" : rope.text(type_key);
  RopeScaling& scaling = config.rope_scaling;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor = rope.number("factor");
  } else if (type == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.factor = rope.number("factor");
    scaling.low_freq_factor = rope.number("low_freq_factor");
    scaling.high_freq_factor = rope.number("high_freq_factor");
    scaling.original_max_position_embeddings = rope.integer("original_max_position_embeddings");
    file.only("original_max_position_embeddings", scaling.original_max_position_embeddings);
  } else if (type != "default") {
    rope.refuse(type_key, "\"default\", \"linear\" or \"llama3\"");
  }
}

/// Mistral's mathematics is Llama's where nothing slides. Absent keys mean other values there, so they must be given.
void read_mistral(const Reader& file) {
  if (!file.has("sliding_window"))
    throw ConfigError(file.where() +
                      ": sliding_window is missing, which means 4096 to Mistral; only null is supported");
  if (!file.has("num_key_value_heads"))
    throw ConfigError(file.where() + ": num_key_value_heads is missing, which means 8 to Mistral; give it");
}

std::string read_small_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw ConfigError(fmt::format("{}: cannot read the model's configuration: {}", path,
                                  error ? error.message() : "not a file, or not there"));
  if (std::filesystem::file_size(path, error) > largest_file)
    throw ConfigError(fmt::format("{}: larger than {} bytes, so no config.json", path, largest_file));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || text.empty())
    throw ConfigError(fmt::format("{}: cannot read the model's configuration: {}", path,
                                  errno != 0 ? std::strerror(errno) : "it is empty"));
  return text;
}

}  // namespace

LlamaConfig parse_hugging_face_config(const std::string& json_text, const std::string& where) {
  json object;
  try {
    object = parse_strict_object(json_text);
  } catch (const std::runtime_error& error) {
    throw ConfigError(fmt::format("{}: no config.json: {}", where, error.what()));
  }
  const Reader file(object, where);

  const std::string type = file.text("model_type");
  if (type == "mistral")
    read_mistral(file);
  else if (type != "llama")
    file.refuse("model_type", "\"llama\" or \"mistral\"");
  if (const json* activation = file.find("hidden_act"); activation != nullptr && *activation != "swish")
    file.only("hidden_act", "silu");  // two names of one function
  file.only("attention_bias", false);
  file.only("mlp_bias", false);
  file.only("attention_dropout", 0.0);
  file.only("partial_rotary_factor", 1.0);
  for (const char* key : {"sliding_window", "quantization_config", "no_rope_layers", "num_local_experts"})
    if (file.find(key) != nullptr) file.refuse(key, "null");
  if (const json* layers = file.find("layer_types"))
    for (const json& layer : *layers)
      if (layer != "full_attention") file.refuse("layer_types", "\"full_attention\" of all layers");

  // What may be absent has the value Hugging Face's LlamaConfig then takes; sizes must be there.
  LlamaConfig config;
  config.hidden_size = file.integer("hidden_size");
  config.intermediate_size = file.integer("intermediate_size");
  config.num_hidden_layers = file.integer("num_hidden_layers");
  config.num_attention_heads = file.integer("num_attention_heads");
  config.num_key_value_heads = file.integer("num_key_value_heads", config.num_attention_heads);
  config.head_dim = file.integer("head_dim", 0);
  config.vocab_size = file.integer("vocab_size");
  config.max_position_embeddings = file.integer("max_position_embeddings", 2048);
  config.rms_norm_eps = file.number("rms_norm_eps", 1e-6);
  config.initializer_range = file.number("initializer_range", 0.02);
  config.tie_word_embeddings = file.boolean("tie_word_embeddings", false);
  read_rope(file, config);
  try {
    complete_and_check(config);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", where, error.what()));
  }
  return config;
}

LlamaConfig read_hugging_face_config(const std::string& path) {
  return parse_hugging_face_config(read_small_file(path), path);
}

std::string to_hugging_face_json(const LlamaConfig& config) {
  nlohmann::ordered_json out = {{"architectures", {"LlamaForCausalLM"}},
                                {"model_type", "llama"},
                                {"hidden_act", "silu"},
                                {"attention_bias", false},
                                {"attention_dropout", 0.0},
                                {"mlp_bias", false},
                                {"hidden_size", config.hidden_size},
                                {"intermediate_size", config.intermediate_size},
                                {"num_hidden_layers", config.num_hidden_layers},
                                {"num_attention_heads", config.num_attention_heads},
                                {"num_key_value_heads", config.num_key_value_heads},
                                {"head_dim", config.head_dim},
                                {"vocab_size", config.vocab_size},
                                {"max_position_embeddings", config.max_position_embeddings},
                                {"rms_norm_eps", config.rms_norm_eps},
                                {"initializer_range", config.initializer_range},
                                {"tie_word_embeddings", config.tie_word_embeddings},
                                {"rope_theta", config.rope_theta},
                                {"rope_scaling", nullptr}};
  if (config.rope_scaling.kind == RopeScaling::Kind::linear)
    out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", config.rope_scaling.factor}};
  if (config.rope_scaling.kind == RopeScaling::Kind::llama3)
    out["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", config.rope_scaling.factor},
                           {"low_freq_factor", config.rope_scaling.low_freq_factor},
                           {"high_freq_factor", config.rope_scaling.high_freq_factor},
                           {"original_max_position_embeddings", config.rope_scaling.original_max_position_embeddings}};
  return out.dump(2) + "\n";
}

}  // namespace atl
