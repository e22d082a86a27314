/// The configuration of a training run: a TOML file and --set overrides, filled into the option structs of each folder.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint/layout.hpp"
#include "io/config/config_table.hpp"
#include "io/data/document_index.hpp"
#include "io/data/token_array.hpp"
#include "model/llama_config.hpp"
#include "model/options.hpp"
#include "parallel/federation_options.hpp"
#include "parallel/process_grid.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace atl {

struct RunOptions {
  std::string dir = "run";  ///< folder of everything the run writes
  std::int64_t seed = 1;    ///< of initialisation, data order and the synthetic language; >= 0
};

/// The model is a preset, a Hugging Face config.json, or given by keys; keys on top of the first two override them.
struct ModelOptions {
  std::string preset;  ///< empty: not given
  std::string config;  ///< path of a config.json; empty: not given
  std::optional<std::int64_t> hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
  std::optional<std::int64_t> num_key_value_heads, head_dim, vocab_size, max_position_embeddings;
  std::optional<double> rope_theta, rms_norm_eps, initializer_range;
  std::optional<RopeScaling> rope_scaling;
  std::optional<bool> tie_word_embeddings;
  std::string init_from;  ///< path of a saved model to start from; empty: random initialisation
};

/// `train` or `eval` with this name is the built-in language.
inline constexpr std::string_view synthetic_data = "synthetic";

struct DataOptions {
  std::vector<std::string> train{std::string(synthetic_data)};  ///< paths or patterns of token data, or "synthetic"
  std::vector<double> weights;        ///< shares of train's sequences, of any sum; empty: by their sizes
  std::string eval;                   ///< a path or pattern, or "synthetic"; empty: no evaluation
  std::optional<TokenType> raw_type;  ///< of files without a header
  std::int64_t sequence_length = 1024;
  DocumentOptions documents;
  std::int64_t synthetic_tokens = std::int64_t{1} << 22;       ///< tokens of the synthetic training text
  std::int64_t synthetic_eval_tokens = std::int64_t{1} << 16;  ///< and of the text to evaluate on
};

struct EvalOptions {
  std::int64_t every = 0;    ///< optimizer steps between evaluations; 0: only after the last step
  std::int64_t batches = 0;  ///< batches of an evaluation; 0: the whole evaluation set
};

struct CheckpointOptions {
  /// When a scheduled save may happen: at the end of a round, where all groups have one model, or after any step.
  enum class Align { round, step };
  std::int64_t every = 0;  ///< optimizer steps between saves; 0: only when the run is stopped early
  Align align = Align::round;
  std::int64_t keep = 2;        ///< newest ones that stay; 0: all
  std::int64_t keep_every = 0;  ///< those whose step is a multiple of it stay for ever; 0: none
  bool async = true;            ///< written beside training, from a copy
  int writers = 0;              ///< data files; 0: one a rank
  SavedMoments moments = SavedMoments::all;
  std::string resume = "auto";  ///< "auto", "never", or the path of a checkpoint
};

struct LogOptions {
  std::int64_t every = 10;     ///< optimizer steps between progress lines
  std::string level = "info";  ///< a level of spdlog
};

struct RunConfig {
  RunOptions run;
  ModelOptions model;
  DataOptions data;
  TrainOptions train;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ParallelOptions parallel;
  FederationOptions federation;
  EvalOptions eval;
  CheckpointOptions checkpoint;
  LogOptions log;
};

/// Every key of the run configuration, bound to `config`, which must outlive the table. The one place that names them.
ConfigTable run_config_table(RunConfig& config);

/// Reads the file (empty path: none, so defaults), then the overrides ("table.key=value", the last one wins), and
/// checks the whole. Relative paths in it are relative to the current directory. ConfigError names place, value and
/// fix.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides);

/// What one key alone cannot tell: required keys, keys that exclude each other, and a model that can be. Called by
/// load_run_config. What depends on the number of ranks is checked with the grid.
void check(const RunConfig& config);

/// What the table [data] says of documents: ConfigError where one key has no meaning with another, or with the
/// synthetic language.
void check_documents(const DocumentOptions& documents, bool synthetic);

/// The model of [model], complete. ConfigError where it is not given, given twice, or cannot be.
LlamaConfig resolve_model(const RunConfig& config);

/// Valid TOML with every value in force and a comment for each key; load_run_config gives the same configuration back.
/// Keys that are not given are comments, in [model] with the value that follows from preset or config.
std::string show(const RunConfig& config);

/// Tables of the keys that are given or have a default, as in metrics.jsonl.
nlohmann::ordered_json to_json(const RunConfig& config);

/// Equal configurations and models give equal numbers: ranks compare it before they start.
std::uint64_t hash_of(const RunConfig& config);

}  // namespace atl
