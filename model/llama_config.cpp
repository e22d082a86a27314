/// Presets, checks and Hugging Face's config.json. SPDX-License-Identifier: Apache-2.0
#include "model/llama_config.hpp"

#include "core/errors.hpp"
#include "core/nearest_name.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

namespace atl {
namespace {

using nlohmann::json;

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
                    prefix_, key, need(key).dump(), accepted));
  }
  void only(const char* key, const json& accepted) const {
    const json* value = find(key);
    if (value != nullptr && *value != accepted) refuse(key, accepted.dump());
  }

 private:
  [[noreturn]] void wrong_type(const char* key, const json& value, std::string_view expected) const {
    throw ConfigError(fmt::format("{}: {}{} = {} is a {}; expected {}", where_, prefix_, key, value.dump(),
                                  value.type_name(), expected));
  }
  std::int64_t integer_of(const char* key, const json& value) const {
    if (!value.is_number_integer()) wrong_type(key, value, "an integer");
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
  const bool newer = file.find("rope_parameters") != nullptr;
  if (newer && file.find("rope_scaling") != nullptr)
    file.refuse("rope_scaling", "one of rope_parameters and rope_scaling");
  config.rope_theta = file.number("rope_theta", 10000.0);
  const char* key = newer ? "rope_parameters" : "rope_scaling";
  if (file.find(key) == nullptr) return;

  const Reader rope = file.object(key);
  if (newer) {
    const double theta = rope.number("rope_theta", config.rope_theta);
    if (file.find("rope_theta") != nullptr && theta != config.rope_theta)
      file.refuse("rope_theta", "the value of rope_parameters.rope_theta");
    config.rope_theta = theta;
  }
  rope.only("partial_rotary_factor", 1.0);
  const char* type_key = rope.find("rope_type") != nullptr || rope.find("type") == nullptr ? "rope_type" : "type";
  const std::string type = rope.text(type_key);
  if (type == "default") return;
  if (type != "llama3") rope.refuse(type_key, "\"llama3\" or \"default\"");
  config.rope_scaling.kind = RopeScaling::Kind::llama3;
  config.rope_scaling.factor = rope.number("factor");
  config.rope_scaling.low_freq_factor = rope.number("low_freq_factor");
  config.rope_scaling.high_freq_factor = rope.number("high_freq_factor");
  config.rope_scaling.original_max_position_embeddings = rope.integer("original_max_position_embeddings");
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

LlamaConfig parse_hugging_face_config(const std::string& json_text, const std::string& where) {
  json object;
  try {
    object = json::parse(json_text);
  } catch (const json::parse_error& error) {
    throw ConfigError(fmt::format("{}: not JSON: {}", where, error.what()));
  }
  if (!object.is_object()) throw ConfigError(fmt::format("{}: not a JSON object, so not a config.json", where));
  const Reader file(object, where);

  if (file.text("model_type") != "llama") file.refuse("model_type", "\"llama\"");
  file.only("hidden_act", "silu");
  file.only("attention_bias", false);
  file.only("mlp_bias", false);
  file.only("attention_dropout", 0.0);
  file.only("partial_rotary_factor", 1.0);
  for (const char* key : {"sliding_window", "quantization_config"})
    if (file.find(key) != nullptr) file.refuse(key, "null");

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
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw ConfigError(fmt::format("{}: cannot read the model's configuration: {}", path,
                                  errno != 0 ? std::strerror(errno) : "empty or not a file"));
  return parse_hugging_face_config(text.str(), path);
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
  if (config.rope_scaling.kind == RopeScaling::Kind::llama3)
    out["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", config.rope_scaling.factor},
                           {"low_freq_factor", config.rope_scaling.low_freq_factor},
                           {"high_freq_factor", config.rope_scaling.high_freq_factor},
                           {"original_max_position_embeddings", config.rope_scaling.original_max_position_embeddings}};
  return out.dump(2) + "\n";
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
  if (config.rope_scaling.kind == RopeScaling::Kind::llama3) {
    const RopeScaling& rope = config.rope_scaling;
    check_positive("rope_scaling.factor", rope.factor);
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
