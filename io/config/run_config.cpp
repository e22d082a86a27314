/// Loading, checking and printing of run configurations. SPDX-License-Identifier: Apache-2.0
#include "io/config/run_config.hpp"

#include "core/errors.hpp"
#include "model/lr_schedule.hpp"
#include "parallel/outer_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <xxhash.h>

namespace atl {
namespace {

using nlohmann::json;

/// Sizes without which there is no model, where neither preset nor config gives them.
void require_sizes(const ModelOptions& model) {
  const std::pair<const char*, const std::optional<std::int64_t>*> sizes[] = {
      {"hidden_size", &model.hidden_size},
      {"intermediate_size", &model.intermediate_size},
      {"num_hidden_layers", &model.num_hidden_layers},
      {"num_attention_heads", &model.num_attention_heads},
      {"vocab_size", &model.vocab_size}};
  std::string given, missing;
  for (const auto& [name, value] : sizes)
    (value->has_value() ? given : missing) +=
        fmt::format("{}model.{}", (value->has_value() ? given : missing).empty() ? "" : ", ", name);
  if (given.empty())
    throw ConfigError(fmt::format("no model: give model.preset ({}), model.config (a Hugging Face config.json), or {}",
                                  fmt::join(llama_preset_names(), ", "), missing));
  if (!missing.empty())
    throw ConfigError(
        fmt::format("the model is incomplete: give {} too, or start from model.preset or model.config", missing));
}

template <class T>
void override_with(T& target, const std::optional<T>& given) {
  if (given) target = *given;
}

/// Gives every key of [model] that `model` decides.
void give_all(ModelOptions& all, const LlamaConfig& model) {
  all.hidden_size = model.hidden_size;
  all.intermediate_size = model.intermediate_size;
  all.num_hidden_layers = model.num_hidden_layers;
  all.num_attention_heads = model.num_attention_heads;
  all.num_key_value_heads = model.num_key_value_heads;
  all.head_dim = model.head_dim;
  all.vocab_size = model.vocab_size;
  all.max_position_embeddings = model.max_position_embeddings;
  all.rope_theta = model.rope_theta;
  all.rope_scaling = model.rope_scaling;
  all.rms_norm_eps = model.rms_norm_eps;
  all.initializer_range = model.initializer_range;
  all.tie_word_embeddings = model.tie_word_embeddings;
}

void check_data(const RunConfig& config) {
  const auto& data = config.data;
  if (data.train.empty() || std::count(data.train.begin(), data.train.end(), "") > 0)
    throw ConfigError("data.train is empty; give the path of token data, several of them, or \"synthetic\"");
  const bool synthetic = std::count(data.train.begin(), data.train.end(), synthetic_data) > 0;
  if (synthetic && data.train.size() > 1)
    throw ConfigError("data.train has \"synthetic\" among other data, which are another language; give it alone");
  if (!data.eval.empty() && synthetic != (data.eval == synthetic_data))
    throw ConfigError(
        fmt::format("data.train = {} and data.eval = \"{}\" are different languages; give \"synthetic\" "
                    "for both, or for neither",
                    data.train.size() == 1 ? to_toml(data.train[0]) : to_toml(data.train), data.eval));
  if (!data.weights.empty() && data.weights.size() != data.train.size())
    throw ConfigError(
        fmt::format("data.weights has {} numbers, data.train {} paths; give one for each path, in their "
                    "order, or no weights: in proportion to the sizes",
                    data.weights.size(), data.train.size()));
  check_documents(data.documents,
                  data.train == std::vector{std::string(synthetic_data)} || data.eval == synthetic_data);
  if (config.eval.every > 0 && data.eval.empty())
    throw ConfigError(
        fmt::format("eval.every = {}, but there is nothing to evaluate on; give data.eval", config.eval.every));
}

/// Keys that would be ignored are refused: the run would be another one than it says.
void check_federation(const RunConfig& config) {
  const FederationOptions& federation = config.federation;
  const bool federated = is_federated(config.parallel.strategy);
  outer_options(federation);
  if (federated && federation.inner_state != FederationOptions::InnerState::keep &&
      config.optimizer.kind == OptimizerOptions::Kind::sgd)
    throw ConfigError(
        "federation.inner_state has no meaning with optimizer.kind = \"sgd\", which has no moments; "
        "remove it");
  if (federated) return;
  const char* const fix = "remove it, or use strategy \"fl+fsdp\" or \"fl+hsdp\"";
  if (federation.outer != FederationOptions::Outer::fedavg)
    throw ConfigError(fmt::format("federation.outer = \"{}\" has no meaning with parallel.strategy = \"{}\"; {}",
                                  name_of(federation.outer), name_of(config.parallel.strategy), fix));
  if (federation.inner_state != FederationOptions::InnerState::keep)
    throw ConfigError(fmt::format("federation.inner_state has no meaning with parallel.strategy = \"{}\"; {}",
                                  name_of(config.parallel.strategy), fix));
}

/// Gives every key of the outer optimizer that has a value in force.
void give_all(FederationOptions& all) {
  const OuterOptions in_force = outer_options(all);
  using Outer = FederationOptions::Outer;
  if (all.outer != Outer::fedavg) all.lr = in_force.lr;
  if (all.outer == Outer::sgd) all.momentum = in_force.momentum, all.nesterov = in_force.nesterov;
  if (in_force.beta2 > 0) all.betas = {in_force.beta1, in_force.beta2};
  if (in_force.tau > 0) all.tau = in_force.tau;
}

}  // namespace

LlamaConfig resolve_model(const RunConfig& config) {
  const ModelOptions& given = config.model;
  if (!given.preset.empty() && !given.config.empty())
    throw ConfigError(
        fmt::format("model.preset = \"{}\" and model.config = \"{}\" exclude each other; give one of them",
                    given.preset, given.config));
  LlamaConfig model;
  if (!given.preset.empty())
    model = llama_preset(given.preset);
  else if (!given.config.empty())
    model = read_hugging_face_config(given.config);
  else
    require_sizes(given);

  // Another width or number of heads means another width of a head, unless that is given too.
  if (given.hidden_size || given.num_attention_heads) model.head_dim = 0;
  override_with(model.hidden_size, given.hidden_size);
  override_with(model.intermediate_size, given.intermediate_size);
  override_with(model.num_hidden_layers, given.num_hidden_layers);
  override_with(model.num_attention_heads, given.num_attention_heads);
  if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
  override_with(model.num_key_value_heads, given.num_key_value_heads);
  override_with(model.head_dim, given.head_dim);
  override_with(model.vocab_size, given.vocab_size);
  override_with(model.max_position_embeddings, given.max_position_embeddings);
  override_with(model.rope_theta, given.rope_theta);
  override_with(model.rope_scaling, given.rope_scaling);
  override_with(model.rms_norm_eps, given.rms_norm_eps);
  override_with(model.initializer_range, given.initializer_range);
  override_with(model.tie_word_embeddings, given.tie_word_embeddings);
  complete_and_check(model);
  return model;
}

void check_documents(const DocumentOptions& documents, bool synthetic) {
  if (documents.packing == Packing::documents && synthetic)
    throw ConfigError(
        "data.packing = \"documents\" has no meaning with the synthetic language, which is one text without documents; "
        "leave it out, or use other data");
  if (documents.packing == Packing::concatenate && documents.end_of_document)
    throw ConfigError(
        fmt::format("data.end_of_document = {} has no meaning with data.packing = \"concatenate\"; use "
                    "data.packing = \"documents\", or leave it out",
                    *documents.end_of_document));
}

void check(const RunConfig& config) {
  if (config.run.dir.empty()) throw ConfigError("run.dir is empty; give the folder the run writes to");
  if (config.train.steps == 0)
    throw ConfigError("train.steps is missing; give the number of optimizer steps, as in --set train.steps=1000");
  if (config.train.batch == 0 && config.train.micro_batch == 0)
    throw ConfigError(
        "train.batch is missing; give the sequences of a federation group per optimizer step (or train.micro_batch, "
        "the "
        "sequences of a rank)");
  if (config.train.precision == Precision::fp64 && config.train.reduce_precision == Precision::bf16)
    throw ConfigError(
        "train.reduce_precision = \"bf16\" would throw away what train.precision = \"fp64\" computes; leave it out");
  check_data(config);
  if (config.schedule.min_lr > config.optimizer.lr)
    throw ConfigError(fmt::format("schedule.min_lr = {} is above optimizer.lr = {}, the highest learning rate",
                                  config.schedule.min_lr, config.optimizer.lr));
  schedule_phases(config.schedule, config.train.steps);
  check_federation(config);
  resolve_model(config);
}

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides) {
  RunConfig config;
  ConfigTable table = run_config_table(config);
  if (!path.empty())
    for (const auto& entry : read_toml_file(path)) table.apply(entry);
  for (const auto& text : overrides) table.apply(parse_override(text));
  if (config.data.eval.empty() && config.data.train == std::vector{std::string(synthetic_data)})
    config.data.eval = synthetic_data;
  check(config);
  return config;
}

std::string show(const RunConfig& config) {
  RunConfig given = config, in_force = config;
  try {
    give_all(in_force.federation);
    give_all(in_force.model, resolve_model(config));
  } catch (const ConfigError&) {  // of a configuration without a model the other keys can still be shown
  }
  const ConfigTable resolved = run_config_table(in_force);
  return run_config_table(given).show([&](const ConfigKey& wanted) -> json {
    for (const auto& key : resolved.keys())
      if (key.full_name() == wanted.full_name()) return key.get();
    return nullptr;
  });
}

nlohmann::ordered_json to_json(const RunConfig& config) {
  RunConfig copy = config;
  return run_config_table(copy).to_json();
}

std::uint64_t hash_of(const RunConfig& config) {
  const std::string text = to_json(config).dump() + to_hugging_face_json(resolve_model(config));
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace atl
