/// Tests of model/llama_config.hpp. SPDX-License-Identifier: Apache-2.0
#include "model/llama_config.hpp"

#include "core/errors.hpp"
#include "model/strict_json.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace atl {
namespace {

using nlohmann::json;

/// What transformers itself writes; see tests/fixtures/make_llama_config.py.
json fixture() {
  std::ifstream file(ATOLL_SOURCE_DIR "/tests/fixtures/llama_configs.json");
  return json::parse(file).at("configs");
}

json small() { return fixture()["head_dim"]["json"]; }

LlamaConfig parse(const json& object) { return parse_hugging_face_config(object.dump(), "config.json"); }

/// The message of the ConfigError that `parse` must throw.
std::string refusal(const json& object) {
  try {
    parse(object);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal(LlamaConfig config) {
  try {
    complete_and_check(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LlamaConfig, PresetsHaveThePublishedParameterCounts) {
  EXPECT_EQ(parameter_count(llama_preset("1b")), 1'235'814'400);
  EXPECT_EQ(parameter_count(llama_preset("8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(llama_preset("70b")), 70'553'706'496);
  EXPECT_EQ(parameter_count(llama_preset("125m")), 123'587'328);
}

TEST(LlamaConfig, AgreesWithTransformers) {
  const json configs = fixture();
  ASSERT_EQ(configs.size(), 6u);
  for (const auto& [name, entry] : configs.items()) {
    const LlamaConfig config = parse(entry["json"]);
    EXPECT_EQ(parameter_count(config), entry["parameters"].get<std::int64_t>()) << name;
  }
}

TEST(LlamaConfig, PresetsAreThePublishedConfigurations) {
  const json configs = fixture();
  for (const char* name : {"125m", "1b", "8b", "70b"})
    EXPECT_EQ(llama_preset(name), parse(configs[name]["json"])) << name;
}

TEST(LlamaConfig, EveryPresetIsComplete) {
  for (const auto name : llama_preset_names()) {
    const LlamaConfig config = llama_preset(name);
    EXPECT_GT(config.head_dim, 0) << name;
    EXPECT_GT(parameter_count(config), 0) << name;
  }
}

TEST(LlamaConfig, UnknownPresetNamesTheNearest) {
  try {
    llama_preset("8B");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "model.preset = \"8B\" is no preset; there are tiny, 125m, 1b, 8b, 70b; nearest: \"8b\"");
  }
}

TEST(LlamaConfig, ReadsWhatTransformers4Wrote) {
  const LlamaConfig config = parse(json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": false,
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"}})"));
  EXPECT_EQ(config, llama_preset("1b"));
}

TEST(LlamaConfig, AbsentKeysHaveTransformersValues) {
  const LlamaConfig config = parse(json::parse(R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 100,
    "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 99, "head_dim": null})"));
  EXPECT_EQ(config, parse(fixture()["tiny_default"]["json"]));
  EXPECT_EQ(config.num_key_value_heads, 6);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(LlamaConfig, KeepsValuesThatDifferFromTheDefaults) {
  const LlamaConfig config = parse(small());
  EXPECT_EQ(config.head_dim, 10);  // 6 heads of 10 on a width of 48
  EXPECT_EQ(config.query_size(), 60);
  EXPECT_EQ(config.key_value_size(), 30);
  EXPECT_EQ(config.rope_theta, 1234.5);
  EXPECT_EQ(config.initializer_range, 0.01);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(LlamaConfig, WrittenJsonReadsBack) {
  for (const auto name : llama_preset_names()) {
    const LlamaConfig config = llama_preset(name);
    EXPECT_EQ(parse_hugging_face_config(to_hugging_face_json(config), "text"), config) << name;
  }
}

TEST(LlamaConfig, RefusesOtherMathematics) {
  const auto with = [](const char* key, const json& value) {
    json object = small();
    object[key] = value;
    return refusal(object);
  };
  EXPECT_EQ(
      with("attention_bias", true),
      "config.json: attention_bias = true is not supported (it is other mathematics than Llama's here); only false is");
  EXPECT_NE(with("mlp_bias", true).find("mlp_bias"), std::string::npos);
  EXPECT_NE(with("hidden_act", "gelu").find("hidden_act = \"gelu\""), std::string::npos);
  EXPECT_NE(with("model_type", "qwen2").find("model_type = \"qwen2\""), std::string::npos);
  EXPECT_NE(with("model_type", "mistral").find("sliding_window is missing"), std::string::npos);
  EXPECT_NE(with("layer_types", {"full_attention", "sliding_attention"}).find("layer_types"), std::string::npos);
  EXPECT_EQ(with("layer_types", {"full_attention", "full_attention"}), "accepted");
  EXPECT_NE(with("num_local_experts", 8).find("num_local_experts = 8"), std::string::npos);
  EXPECT_NE(with("partial_rotary_factor", 0.5).find("partial_rotary_factor"), std::string::npos);
  EXPECT_NE(with("sliding_window", 4096).find("sliding_window"), std::string::npos);
  EXPECT_NE(with("attention_dropout", 0.1).find("attention_dropout"), std::string::npos);
  EXPECT_NE(with("quantization_config", json::object()).find("quantization_config"), std::string::npos);
  EXPECT_NE(
      with("rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}}).find("rope_parameters.rope_type = \"yarn\""),
      std::string::npos);
  EXPECT_NE(with("rope_theta", 5.0).find("rope_theta"), std::string::npos);  // contradicts rope_parameters
  json older = small();
  older.erase("rope_parameters");
  older["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  EXPECT_NE(refusal(older).find("rope_scaling.type = \"dynamic\""), std::string::npos);
  json both = small();
  both["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_NE(refusal(both).find("the same as rope_parameters"), std::string::npos);
}

// What transformers takes as one and the same.
TEST(LlamaConfig, ReadsOtherWordsForTheSame) {
  const LlamaConfig config = parse(small());
  json object = small();
  object["hidden_act"] = "swish";
  EXPECT_EQ(parse(object), config);
  object["rope_scaling"] = object["rope_parameters"];
  EXPECT_EQ(parse(object), config);
  object.erase("rope_parameters");
  object["rope_scaling"] = json::object();
  object["rope_theta"] = config.rope_theta;
  EXPECT_EQ(parse(object).rope_scaling.kind, RopeScaling::Kind::none);
}

TEST(LlamaConfig, ReadsLinearScalingOfBothLayouts) {
  json object = small();
  object["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.5}, {"rope_theta", 1e4}};
  const LlamaConfig config = parse(object);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(config.rope_scaling.factor, 2.5);
  EXPECT_EQ(config.rope_theta, 1e4);
  object.erase("rope_parameters");
  object["rope_theta"] = 1e4;
  object["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  EXPECT_EQ(parse(object), config);
  EXPECT_EQ(parse_hugging_face_config(to_hugging_face_json(config), "text"), config);
  object["rope_scaling"]["factor"] = 0;
  EXPECT_NE(refusal(object).find("rope_scaling.factor = 0"), std::string::npos);
  object = small();
  object["rope_parameters"] = {{"rope_theta", 777.0}};  // transformers 5 takes "default" then
  EXPECT_EQ(parse(object).rope_theta, 777.0);
}

TEST(LlamaConfig, ReadsMistralWithoutASlidingWindow) {
  json object = small();
  object["model_type"] = "mistral";
  object["sliding_window"] = nullptr;
  for (const char* key : {"attention_bias", "mlp_bias", "pretraining_tp"}) object.erase(key);
  EXPECT_EQ(parse(object), parse(small()));
  object.erase("num_key_value_heads");
  EXPECT_NE(refusal(object).find("num_key_value_heads is missing"), std::string::npos);
}

TEST(LlamaConfig, RefusesHostileText) {
  const auto message = [](const std::string& text) {
    try {
      parse_hugging_face_config(text, "config.json");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string text = small().dump();
  EXPECT_NE(message("{\"model_type\": \"llama\", " + text.substr(1)).find("the key \"model_type\" twice"),
            std::string::npos);
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_NE(message("{\"hidden_act\": " + deep + "}").find("deeper"), std::string::npos);
  json object = small();
  object["hidden_size"] = std::uint64_t{1} << 63;
  EXPECT_NE(refusal(object).find("hidden_size = 9223372036854775808"), std::string::npos);
  object = small();
  object["hidden_act"] = std::string(100000, 'x');
  EXPECT_LT(refusal(object).size(), 400u);
  // The JSON library quotes what it read last, a control character as eight.
  EXPECT_LT(message("{\"architectures\"" + std::string(1000, '\t') + "x").size(), 400u);
  EXPECT_LT(message("{\"" + std::string(1000, 'k') + "\": 1, \"" + std::string(1000, 'k') + "\": 1}").size(), 400u);
  // Cut between characters.
  EXPECT_EQ(brief("a\u00e9\u00e9", 4), "a\u00e9...");
}

TEST(LlamaConfig, NamesMissingAndMistypedKeys) {
  json object = small();
  object.erase("vocab_size");
  EXPECT_EQ(refusal(object), "config.json: vocab_size is missing");
  object = small();
  object["hidden_size"] = "48";
  EXPECT_EQ(refusal(object), "config.json: hidden_size = \"48\" is a string; expected an integer");
  object = small();
  object["rope_parameters"] = {{"rope_type", "llama3"}, {"factor", 8.0}, {"rope_theta", 1e4}};
  EXPECT_EQ(refusal(object), "config.json: rope_parameters.low_freq_factor is missing");
  EXPECT_NE(refusal(json::array()).find("not a JSON object"), std::string::npos);
  EXPECT_THROW(parse_hugging_face_config("{\"hidden_size\": ", "cut.json"), ConfigError);
  EXPECT_THROW(read_hugging_face_config("/no/such/config.json"), ConfigError);
  EXPECT_THROW(read_hugging_face_config(ATOLL_SOURCE_DIR), ConfigError);  // a folder
}

TEST(LlamaConfig, ChecksSizes) {
  LlamaConfig config = llama_preset("tiny");
  config.num_key_value_heads = 3;
  EXPECT_EQ(refusal(config),
            "model.num_attention_heads = 4 is not a multiple of num_key_value_heads = 3 (query heads share "
            "key-value heads evenly); nearest: 3 or 6");
  config = llama_preset("tiny");
  config.head_dim = 15;
  EXPECT_NE(refusal(config).find("head_dim = 15 is odd"), std::string::npos);
  config.head_dim = 0;
  config.hidden_size = 66;
  EXPECT_NE(refusal(config).find("hidden_size = 66 is not a multiple of num_attention_heads = 4"), std::string::npos);
  config = llama_preset("tiny");
  config.vocab_size = -1;
  EXPECT_EQ(refusal(config), "model.vocab_size = -1 must be at least 1");
  config = llama_preset("tiny");
  config.hidden_size = std::int64_t{1} << 40;  // products of sizes must stay inside 64 bits
  EXPECT_NE(refusal(config).find("too large"), std::string::npos);
  config = llama_preset("tiny");
  config.rms_norm_eps = 0;
  EXPECT_NE(refusal(config).find("rms_norm_eps = 0"), std::string::npos);
  config = llama_preset("8b");
  config.rope_scaling.high_freq_factor = 1.0;
  EXPECT_NE(refusal(config).find("low_freq_factor = 1 must be below high_freq_factor = 1"), std::string::npos);
}

}  // namespace
}  // namespace atl
