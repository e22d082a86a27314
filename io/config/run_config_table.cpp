/// Every key of the run configuration, once: name, target, limits, documentation. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "core/nearest_name.hpp"
#include "io/config/run_config.hpp"
#include "model/time_limit.hpp"
#include "parallel/outer_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace atl {
namespace {

using nlohmann::json;

/// A number that is a count of steps where >= 1, and a fraction of all steps below.
void limit_to_steps_or_fraction(ConfigKey& key) {
  key.limits = "at least 0; whole steps, or a fraction of train.steps below 1";
  key.set = [set = key.set](const json& value) {
    if (value.is_number_float() && value.get<double>() > 1.0 && std::floor(value.get<double>()) != value.get<double>())
      throw WrongValue("is neither a whole number of steps nor a fraction below 1");
    set(value);
  };
}

/// A key of two numbers in [0, 1); set(beta1, beta2) stores them.
template <class Set>
ConfigKey& add_betas(ConfigTable& table, const char* name, const char* documentation, const Set& set) {
  ConfigKey& key = table.add(name, documentation);
  key.type = "array of two numbers";
  key.limits = "at least 0, below 1";
  key.set = [set](const json& value) {
    if (!value.is_array()) throw WrongValue(fmt::format("is {}; expected an array of two numbers", kind_of(value)));
    if (value.size() != 2 || !value[0].is_number() || !value[1].is_number())
      throw WrongValue("is not an array of two numbers");
    for (const auto& beta : value)
      if (!(beta.get<double>() >= 0.0 && beta.get<double>() < 1.0))
        throw WrongValue("is out of range; both must be at least 0, below 1");
    set(value[0].get<double>(), value[1].get<double>());
  };
  return key;
}

void add_group_sizes(ConfigTable& table, std::vector<int>& sizes) {
  ConfigKey& key = table.add("parallel.group_sizes",
                             "Ranks of each group, where they differ; with fl+hsdp each a multiple of shard_size. "
                             "Instead of group_size and groups.");
  key.type = "array of integers";
  key.limits = "at least 1";
  key.absent = json::array();
  key.get = [&sizes] { return json(sizes); };
  key.set = [&sizes](const json& value) {
    if (!value.is_array()) throw WrongValue(fmt::format("is {}; expected an array of integers", kind_of(value)));
    std::vector<int> read;
    for (const auto& entry : value) {
      if (!entry.is_number_integer()) throw WrongValue("is not an array of integers");
      if (entry < 1 || entry > (1 << 30)) throw WrongValue("is out of range; each must be at least 1");
      read.push_back(entry.get<int>());
    }
    sizes = read;
  };
}

/// Text, or a number of seconds.
void add_time_limit(ConfigTable& table, std::string& limit) {
  ConfigKey& key = table.add("train.time_limit",
                             "How long the run may take from its start: \"1h30m\", seconds, \"1:30:00\", Slurm's "
                             "\"1-12:00:00\"; it stops, saves and exits with 75 before. \"none\": no limit. Where not "
                             "given, SLURM_JOB_END_TIME is the end.");
  key.type = "string or integer";
  key.absent = "";
  key.get = [&limit] { return json(limit); };
  key.set = [&limit](const json& value) {
    if (!value.is_string() && !value.is_number_integer())
      throw WrongValue(fmt::format("is {}; expected a duration such as \"1h30m\", or seconds", kind_of(value)));
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (const std::string wrong = wrong_duration(text); !text.empty() && text != "none" && !wrong.empty())
      throw WrongValue(wrong);
    limit = text;
  };
}

void add_groups(ConfigTable& table, ParallelOptions& parallel) {
  table.add("parallel.group_size", &parallel.group_size, at_least(0), "Ranks of a federation group.").absent = 0;
  table.add("parallel.groups", &parallel.groups, at_least(0), "Number of federation groups.").absent = 0;
  add_group_sizes(table, parallel.group_sizes);
  using GroupBy = ParallelOptions::GroupBy;
  ConfigKey& by = table.add_choice<GroupBy>(
      "parallel.group_by", &parallel.group_by, {{"", GroupBy::none}, {"node", GroupBy::node}},
      "node: the ranks of a node are a group, wherever they stand in the world. Instead of numbers.");
  by.limits = quoted_choices({"node"}, " | ");
  by.absent = "";
  table
      .add("parallel.group_file", &parallel.group_file,
           "Path of a file of lines \"host cell\": the ranks on the hosts of a cell are a group, as of a dragonfly "
           "network. Instead of numbers.")
      .absent = "";
}

void add_communication(ConfigTable& table, CollectivesOptions& collectives) {
  table.add_choice<Backend>("parallel.backend", &collectives.backend,
                            {{"auto", Backend::automatic}, {"mpi", Backend::mpi}, {"nccl", Backend::nccl}},
                            "Library that moves arrays between ranks; auto: NCCL where the build has it and every rank "
                            "a device of its own, else MPI.");
  table.add_choice<SumOrder>("parallel.sum_order", &collectives.sums,
                             {{"rank", SumOrder::rank}, {"library", SumOrder::library}},
                             "Order in which NCCL's sums are added; rank: as with MPI, the same bits always; library: "
                             "NCCL's own, for shards across nodes, whose bits may change from one cluster to another.");
  table.add("parallel.time_out", &collectives.time_out, above(0),
            "Seconds that a rank waits for one NCCL operation before it ends the job.");
}

void add_outer_optimizer(ConfigTable& table, FederationOptions& federation) {
  using Outer = FederationOptions::Outer;
  std::vector<std::pair<std::string, Outer>> kinds;
  for (const auto kind : {Outer::fedavg, Outer::sgd, Outer::adam, Outer::yogi, Outer::adagrad})
    kinds.emplace_back(name_of(kind), kind);
  table.add_choice<Outer>("federation.outer", &federation.outer, kinds,
                          "Outer optimizer, the step that follows the averaging; fedavg: none. Only for strategies "
                          "with fl+.");
  table.add("federation.lr", &federation.lr, above(0),
            "Learning rate of the outer optimizer; sgd: 0.7 where not given; required for adam, yogi, adagrad.");
  table.add("federation.momentum", &federation.momentum, {.least = 0, .most = 1, .most_allowed = false},
            "Momentum of outer sgd; 0.9 where not given.");
  table.add("federation.nesterov", &federation.nesterov,
            "Whether outer sgd's momentum is Nesterov's; true where not given, as DiLoCo.");
  add_betas(table, "federation.betas", "Decays of outer adam and yogi; [0.9, 0.99] where not given.",
            [&federation](double beta1, double beta2) {
              federation.betas = {beta1, beta2};
            })
      .get = [&federation]() -> json { return federation.betas ? json(*federation.betas) : json(nullptr); };
  table.add("federation.tau", &federation.tau, above(0),
            "Added to the root in outer adam, yogi and adagrad; 0.001 where not given.");
}

json rope_scaling_json(const RopeScaling& rope) {
  if (rope.kind == RopeScaling::Kind::none) return {{"rope_type", "default"}};
  if (rope.kind == RopeScaling::Kind::linear) return {{"rope_type", "linear"}, {"factor", rope.factor}};
  return {{"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_max_position_embeddings}};
}

RopeScaling rope_scaling_from(const json& value) {
  static const std::array<std::string, 5> names = {"rope_type", "factor", "low_freq_factor", "high_freq_factor",
                                                   "original_max_position_embeddings"};
  if (!value.is_object())
    throw WrongValue(
        fmt::format("is {}; expected a table such as {{ rope_type = \"llama3\", factor = 8.0, "
                    "low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position_embeddings = 8192 }}",
                    kind_of(value)));
  for (const auto& [name, entry] : value.items())
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw WrongValue(fmt::format("has the unknown key {}; did you mean {}?", name, nearest_name(name, names)));
  if (!value.contains("rope_type")) throw WrongValue("has no rope_type; it is \"llama3\", \"linear\" or \"default\"");
  require_choice(value["rope_type"], {"llama3", "linear", "default"});
  RopeScaling rope;
  if (value["rope_type"] == "default") {
    if (value.size() > 1) throw WrongValue("has rope_type \"default\", which takes no other key");
    return rope;
  }
  const auto type = value["rope_type"].get<std::string>();
  const auto number = [&](const std::string& name) -> const json& {
    if (!value.contains(name)) throw WrongValue(fmt::format("has no {}, which rope_type \"{}\" needs", name, type));
    if (!value[name].is_number())
      throw WrongValue(fmt::format("has {}, which is {}; expected a number", name, kind_of(value[name])));
    return value[name];
  };
  rope.factor = number("factor").get<double>();
  if (type == "linear") {
    if (value.size() > 2) throw WrongValue("has rope_type \"linear\", which takes factor and no other key");
    rope.kind = RopeScaling::Kind::linear;
    return rope;
  }
  rope.kind = RopeScaling::Kind::llama3;
  rope.low_freq_factor = number("low_freq_factor").get<double>();
  rope.high_freq_factor = number("high_freq_factor").get<double>();
  const json& original = number("original_max_position_embeddings");
  if (!original.is_number_integer())
    throw WrongValue("has original_max_position_embeddings that is a floating-point number; expected an integer");
  rope.original_max_position_embeddings = original.get<std::int64_t>();
  return rope;
}

void add_model(ConfigTable& table, ModelOptions& model) {
  ConfigKey& preset = table.add(
      "model.preset", &model.preset,
      "Sizes of a known model: 1b is Llama 3.2 1B, 8b and 70b are Llama 3.1. Excludes config; keys below override it.");
  std::vector<std::string> names;
  for (const auto name : llama_preset_names()) names.emplace_back(name);
  preset.limits = quoted_choices(names, " | ");
  preset.absent = "";
  preset.set = [set = preset.set, names](const json& value) {
    if (value != "") require_choice(value, names);
    set(value);
  };
  table
      .add("model.config", &model.config,
           "Path of a Hugging Face Llama config.json. Excludes preset; keys below override it.")
      .absent = "";
  table.add("model.hidden_size", &model.hidden_size, at_least(1), "Width of the residual stream.");
  table.add("model.intermediate_size", &model.intermediate_size, at_least(1), "Width of the SwiGLU layer.");
  table.add("model.num_hidden_layers", &model.num_hidden_layers, at_least(1), "Transformer blocks.");
  table.add("model.num_attention_heads", &model.num_attention_heads, at_least(1), "Query heads.");
  table.add("model.num_key_value_heads", &model.num_key_value_heads, at_least(1),
            "Key and value heads; divides num_attention_heads, which it is where not given.");
  table.add("model.head_dim", &model.head_dim, at_least(2),
            "Width of a head, even; hidden_size / num_attention_heads where not given.");
  table.add("model.vocab_size", &model.vocab_size, at_least(1),
            "Rows of the embedding: more than the largest token of the data.");
  table.add("model.rope_theta", &model.rope_theta, above(0), "Base of the rotary position embedding.");
  ConfigKey& rope = table.add(
      "model.rope_scaling",
      "Scaling of the rotary frequencies: rope_type \"default\" (none), \"linear\" with factor, or \"llama3\" with "
      "factor, low_freq_factor, high_freq_factor, original_max_position_embeddings.");
  rope.type = "inline table";
  rope.set = [&model](const json& value) { model.rope_scaling = rope_scaling_from(value); };
  rope.get = [&model] { return model.rope_scaling ? rope_scaling_json(*model.rope_scaling) : json(nullptr); };
  table.add("model.rms_norm_eps", &model.rms_norm_eps, above(0), "Added to the mean square in RMSNorm.");
  table.add("model.tie_word_embeddings", &model.tie_word_embeddings,
            "Whether the head shares the embedding's weights.");
  table.add("model.max_position_embeddings", &model.max_position_embeddings, at_least(1),
            "Longest sequence the model is meant for. Recorded with the model; does not limit data.sequence_length.");
  table.add("model.initializer_range", &model.initializer_range, above(0),
            "Standard deviation of the initial weights.");
  table
      .add("model.init_from", &model.init_from,
           "Path of a saved model, checkpoint or safetensors folder to start from, instead of random weights.")
      .absent = "";
}

/// A path, or an array of them.
void add_paths(ConfigKey& key, std::vector<std::string>& paths) {
  key.type = "string or array of strings";
  key.get = [&paths]() -> json { return paths.size() == 1 ? json(paths[0]) : json(paths); };
  key.set = [&paths](const json& value) {
    const json all = value.is_array() ? value : json::array({value});
    for (const auto& path : all)
      if (!path.is_string())
        throw WrongValue(fmt::format("has {}; expected a path, or an array of paths", kind_of(path)));
    paths = all.get<std::vector<std::string>>();
  };
}

void add_data(ConfigTable& table, DataOptions& data) {
  add_paths(table.add("data.train",
                      "Path of token data (docs/data.md), or a pattern (\"shards/*.bin\"), or several in an array: a "
                      "mixture; or \"synthetic\" for the built-in language."),
            data.train);
  ConfigKey& weights =
      table.add("data.weights",
                "Of a mixture: what share of the sequences each path of train is to have, in any unit; by "
                "their sizes where not given.");
  weights.type = "array of numbers";
  weights.limits = "above 0, at most 1e15";
  weights.absent = json::array();
  weights.get = [&data] { return json(data.weights); };
  weights.set = [&data](const json& value) {
    if (!value.is_array()) throw WrongValue(fmt::format("is {}; expected an array of numbers", kind_of(value)));
    std::vector<double> read;
    for (const auto& entry : value) {
      if (!entry.is_number()) throw WrongValue("is not an array of numbers");
      const double weight = entry.get<double>();
      if (!(weight > 0 && weight <= 1e15))
        throw WrongValue(
            "is out of range; each must be above 0 and at most 1e15 (leave a path out of data.train to give it none)");
      read.push_back(weight);
    }
    data.weights = read;
  };
  table
      .add("data.eval", &data.eval,
           "A path or pattern to evaluate on; \"synthetic\" where data.train is and this is not given, otherwise no "
           "evaluation.")
      .absent = "";
  std::vector<std::pair<std::string, std::optional<TokenType>>> types{{"auto", std::nullopt}};
  for (const auto type : {TokenType::u16, TokenType::u32, TokenType::i32, TokenType::i64})
    types.emplace_back(name_of(type), type);
  table.add_choice<std::optional<TokenType>>(
      "data.raw_type", &data.raw_type, types,
      "Type of the tokens in files without a header, as nanoGPT's; auto: uint16, but an error for bytes that may be a "
      "wider type.");
}

void add_checkpoint(ConfigTable& table, CheckpointOptions& checkpoint) {
  table.add("checkpoint.every", &checkpoint.every, at_least(0),
            "Optimizer steps between checkpoints, and one at the end; 0: none, but for that of a run that is stopped "
            "early.");
  using Align = CheckpointOptions::Align;
  table.add_choice<Align>("checkpoint.align", &checkpoint.align, {{"round", Align::round}, {"step", Align::step}},
                          "round: a checkpoint waits for the end of the round, where all groups have one model; step: "
                          "inside a round it holds every group's own.");
  table.add("checkpoint.keep", &checkpoint.keep, at_least(0), "Newest checkpoints that stay; 0: all.");
  table.add("checkpoint.keep_every", &checkpoint.keep_every, at_least(0),
            "Checkpoints whose step is a multiple of this stay for ever; 0: none.");
  table.add("checkpoint.async", &checkpoint.async,
            "Whether files are written beside training, from a copy in host memory; otherwise training waits.");
  table.add("checkpoint.writers", &checkpoint.writers, at_least(0),
            "Data files of a checkpoint, each written by neighbouring ranks; 0: one a rank.");
  table.add_choice<SavedMoments>(
      "checkpoint.moments", &checkpoint.moments,
      {{"all", SavedMoments::all}, {"average", SavedMoments::average}, {"none", SavedMoments::none}},
      "AdamW moments that are saved where groups have their own: all of them, their weighted mean, or none; only all "
      "resumes exactly.");
  ConfigKey& resume = table.add("checkpoint.resume", &checkpoint.resume,
                                "auto: go on from the newest good checkpoint of run.dir, if it has any; never: start "
                                "anew; or the path of the checkpoint to go on from.");
  resume.limits = "\"auto\" | \"never\" | a path";
}

}  // namespace

ConfigTable run_config_table(RunConfig& config) {
  ConfigTable table;
  table.add("run.dir", &config.run.dir, "Folder of everything the run writes; made where it is not there.");
  table.add("run.seed", &config.run.seed, at_least(0),
            "Seed of the initial weights, of the order of the data and of the synthetic language.");

  add_model(table, config.model);

  add_data(table, config.data);
  table.add("data.sequence_length", &config.data.sequence_length, between(1, 1 << 24), "Tokens of a sequence.");
  table.add_choice<Packing>(
      "data.packing", &config.data.documents.packing,
      {{"concatenate", Packing::concatenate}, {"documents", Packing::documents}},
      "concatenate: documents follow one another, and attention goes back to the start of the sequence; documents: it "
      "stays inside each document, whose first token is not predicted.");
  table.add(
      "data.end_of_document", &config.data.documents.end_of_document, between(0, INT32_MAX),
      "For packing = \"documents\": id of the token that ends each document, in data that have no index of them.");
  table.add("data.synthetic_tokens", &config.data.synthetic_tokens, at_least(2),
            "Tokens of the synthetic training text; other data ignore it.");
  table.add("data.synthetic_eval_tokens", &config.data.synthetic_eval_tokens, at_least(2),
            "Tokens of the synthetic text to evaluate on; other data ignore it.");

  table.add("train.steps", &config.train.steps, between(1, 1e12), "Optimizer steps of each federation group. Required.")
      .absent = 0;
  table
      .add("train.batch", &config.train.batch, at_least(0),
           "Sequences of a federation group per optimizer step; accumulate follows, so it survives another number of "
           "ranks. This or micro_batch is required.")
      .absent = 0;
  table
      .add("train.micro_batch", &config.train.micro_batch, at_least(0),
           "Sequences a rank computes at once; its whole share of batch where not given.")
      .absent = 0;
  table
      .add("train.accumulate", &config.train.accumulate, at_least(0),
           "Micro-batches per optimizer step; follows from batch where that is given, else 1.")
      .absent = 0;
  table.add_choice<Precision>("train.precision", &config.train.precision,
                              {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp64", Precision::fp64}},
                              "Element type of weights and activations; bf16 keeps fp32 master weights.");
  table.add_choice<Precision>(
      "train.reduce_precision", &config.train.reduce_precision, {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}},
      "In which gradients travel between ranks; bf16 halves the bytes. Sums are fp32 (fp64 with that precision).");
  table.add_choice<Recompute>(
      "train.recompute", &config.train.recompute, {{"none", Recompute::none}, {"block", Recompute::block}},
      "Whether each block's activations are kept for backward, or computed again from its input.");
  table.add("train.loss_chunk", &config.train.loss_chunk, at_least(1),
            "Tokens whose logits exist at once; bounds the memory of the loss.");
  table.add("train.tf32", &config.train.tf32,
            "Whether products of fp32 may round their factors to TF32's 10 bits, on NVIDIA's tensor cores.");
  add_time_limit(table, config.train.time_limit);

  using Optimizer = OptimizerOptions::Kind;
  table.add_choice<Optimizer>("optimizer.kind", &config.optimizer.kind,
                              {{"adamw", Optimizer::adamw}, {"sgd", Optimizer::sgd}},
                              "AdamW with decoupled weight decay, or plain gradient descent.");
  table.add("optimizer.lr", &config.optimizer.lr, above(0), "Highest learning rate of the schedule.");
  add_betas(table, "optimizer.betas", "AdamW: decay of the first and of the second moment.",
            [&config](double beta1, double beta2) { config.optimizer.beta1 = beta1, config.optimizer.beta2 = beta2; })
      .get = [&config]() -> json {
    return json::array({config.optimizer.beta1, config.optimizer.beta2});
  };
  table.add("optimizer.eps", &config.optimizer.eps, above(0), "AdamW: added to the root of the second moment.");
  table.add("optimizer.weight_decay", &config.optimizer.weight_decay, at_least(0),
            "Decoupled weight decay; norms have none.");
  table.add("optimizer.clip_norm", &config.optimizer.clip_norm, at_least(0),
            "Largest L2 norm of the whole model's gradient; 0: no clipping.");

  using Schedule = ScheduleOptions::Kind;
  table.add_choice<Schedule>("schedule.kind", &config.schedule.kind,
                             {{"cosine", Schedule::cosine},
                              {"linear", Schedule::linear},
                              {"constant", Schedule::constant},
                              {"wsd", Schedule::wsd}},
                             "Shape after the warm-up; wsd stays at lr and decays linearly at the end.");
  limit_to_steps_or_fraction(
      table.add("schedule.warmup", &config.schedule.warmup, at_least(0), "Linear warm-up from lr / warmup to lr."));
  table.add("schedule.min_lr", &config.schedule.min_lr, at_least(0), "Learning rate at the end of the decay.");
  limit_to_steps_or_fraction(table.add(
      "schedule.decay_steps", &config.schedule.decay_steps, at_least(0),
      "Length of the decay. cosine, linear: follows the warm-up, 0 lasts to the end. wsd: ends the run, 0 is a "
      "tenth of it."));

  using Name = std::pair<std::string, Strategy>;
  std::vector<Name> strategies;
  for (const auto strategy : {Strategy::ddp, Strategy::fsdp, Strategy::hsdp, Strategy::fl_fsdp, Strategy::fl_hsdp})
    strategies.emplace_back(name_of(strategy), strategy);
  table.add_choice<Strategy>(
      "parallel.strategy", &config.parallel.strategy, strategies,
      "How the model and the data are spread over the ranks; fl+: federation groups that average.");
  table.add("parallel.shard_size", &config.parallel.shard_size, at_least(0), "Ranks that hold one copy of the model.")
      .absent = 0;
  add_groups(table, config.parallel);
  table.add(
      "parallel.reshard_after_forward", &config.parallel.reshard_after_forward,
      "Whether a block's gathered weights are freed after forward and gathered again in backward (less memory), or "
      "kept (less communication).");
  table.add(
      "parallel.prefetch", &config.parallel.prefetch, between(0, 2),
      "Units gathered ahead of the one that computes, while gradients are reduced beside the next unit's backward; "
      "0: nothing overlaps. Costs memory for as many units, and changes no bit of the result.");

  add_communication(table, config.parallel.collectives);

  table.add("federation.every", &config.federation.every, at_least(1),
            "H: optimizer steps between two aggregations. This table counts only for strategies with fl+.");
  add_outer_optimizer(table, config.federation);
  using Weights = FederationOptions::Weights;
  table.add_choice<Weights>("federation.weights", &config.federation.weights,
                            {{"tokens", Weights::tokens}, {"uniform", Weights::uniform}},
                            "What a group counts for in the mean: its target tokens of the round, or as any other.");
  using InnerState = FederationOptions::InnerState;
  table.add_choice<InnerState>(
      "federation.inner_state", &config.federation.inner_state,
      {{"keep", InnerState::keep}, {"average", InnerState::average}, {"reset", InnerState::reset}},
      "The groups' own AdamW moments after an aggregation: as they were, their mean, or zero.");

  table.add("eval.every", &config.eval.every, at_least(0),
            "Optimizer steps between evaluations; 0: only after the last step.");
  table.add("eval.batches", &config.eval.batches, at_least(0),
            "Batches of an evaluation; 0: the whole evaluation set.");

  add_checkpoint(table, config.checkpoint);

  table.add("log.every", &config.log.every, at_least(1), "Optimizer steps between lines of progress.");
  std::vector<std::pair<std::string, std::string>> levels;
  for (const char* level : {"trace", "debug", "info", "warn", "error", "off"}) levels.emplace_back(level, level);
  table.add_choice<std::string>("log.level", &config.log.level, levels, "Least level of the messages on stderr.");
  return table;
}

}  // namespace atl
