/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/run_checkpoints.hpp"

#include "io/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view start_anew =
    "choose another run.dir for a new run, or start one from its model with model.init_from";

/// "train.steps" -> its value, of all keys that are given.
std::map<std::string, Json> flat(const Json& configuration) {
  std::map<std::string, Json> keys;
  for (const auto& [table, entries] : configuration.items())
    for (const auto& [name, value] : entries.items()) keys[table + "." + name] = value;
  return keys;
}

}  // namespace

std::uint64_t checkpoint_copy_bytes(const RunConfig& config, const LlamaConfig& model, const ProcessGrid& grid) {
  const CheckpointOptions& options = config.checkpoint;
  if (!options.async || options.every == 0) return 0;
  const bool in_round = is_federated(config.parallel.strategy) && options.align == CheckpointOptions::Align::step;
  const std::uint64_t element = config.train.precision == Precision::fp64 ? 8 : 4;
  return element * largest_copy(checkpoint_contents(config.federation, config.optimizer.kind, grid.number_of_groups(),
                                                    in_round, options.moments),
                                llama_units(model), grid);
}

ModelInfo model_info(const RunConfig& config, const LlamaConfig& model, std::int64_t step, std::int64_t tokens) {
  return {model,
          step,
          tokens,
          config.data.eval,
          config.data.sequence_length,
          config.run.seed,
          config.data.synthetic_eval_tokens,
          config.data.documents};
}

nlohmann::ordered_json data_identity(const TrainingData& data) {
  std::int64_t tokens = 0;
  Json parts = Json::array();
  for (const auto& source : data.sources) {
    tokens += source->tokens();
    parts.push_back({{"tokens", source->tokens()}, {"fingerprint", source->fingerprint()}});
  }
  return parts.size() == 1 ? parts[0] : Json{{"tokens", tokens}, {"mixture", parts}};
}

std::string accepted_changes(const CheckpointManifest& manifest, const RunConfig& config, const LlamaConfig& model,
                             const nlohmann::ordered_json& data) {
  const auto before = [&] {
    auto keys = flat(manifest.configuration);
    keys.emplace("data.packing", "concatenate");  // of a checkpoint from before this key was there
    return keys;
  }();
  const auto now = flat(to_json(config));
  const auto value = [](const std::map<std::string, Json>& keys, const std::string& key) {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string("(not given)") : found->second.dump();
  };
  const Json saved_model = Json::parse(manifest.model), this_model = Json::parse(to_hugging_face_json(model));
  for (const auto& [key, entry] : this_model.items())
    if (saved_model.value(key, Json()) != entry)
      throw ConfigError(fmt::format("the model of the checkpoint has {} = {}, that of this run {}; {}", key,
                                    saved_model.value(key, Json()).dump(), entry.dump(), start_anew));
  static constexpr std::array fixed{"run.seed",       "data.sequence_length", "data.weights",
                                    "data.packing",   "data.end_of_document", "train.precision",
                                    "optimizer.kind", "federation.outer"};
  for (const char* const key : fixed)
    if (value(before, key) != value(now, key))
      throw ConfigError(fmt::format("{} = {}, but the checkpoint was made with {}, which a run keeps to its end; {}",
                                    key, value(now, key), value(before, key), start_anew));
  if (manifest.data != data)
    throw ConfigError(
        fmt::format("data.train = {} holds other tokens than the data of the checkpoint ({}): {} of "
                    "them, then {}; {}",
                    value(now, "data.train"), value(before, "data.train"), data.at("tokens").dump(),
                    manifest.data.value("tokens", Json()).dump(), start_anew));
  const OuterOptions outer = outer_options(config.federation);
  using Quantity = CheckpointArray::Quantity;
  if (outer.has_moment1() && !manifest.has({Quantity::outer_moment1, -1}))
    throw ConfigError(
        fmt::format("the outer optimizer of this run has momentum, that of the checkpoint had none; "
                    "set federation.momentum = 0, or {}",
                    start_anew));
  std::vector<std::string> changes;
  for (const auto* const keys : {&before, &now})
    for (const auto& [key, entry] : *keys) {
      const bool told = keys == &now && before.count(key) != 0;  // in the first pass
      if (told || key.rfind("model.", 0) == 0 || key.rfind("log.", 0) == 0 || key == "run.dir" ||
          key == "checkpoint.resume" || value(before, key) == value(now, key))
        continue;
      changes.push_back(fmt::format("{} {} -> {}", key, value(before, key), value(now, key)));
    }
  std::sort(changes.begin(), changes.end());
  return fmt::format("{}", fmt::join(changes, ", "));
}

template <class T>
RunCheckpoints<T>::RunCheckpoints(const RunConfig& config, const LlamaConfig& model, const TrainingData& data,
                                  const ProcessGrid& grid, const Communicators& communicators)
    : config_(config),
      model_(model),
      grid_(grid),
      communicators_(communicators),
      data_(data_identity(data)),
      store_(config.run.dir + "/checkpoints"),
      writer_({store_.folder(), config.checkpoint.writers, config.checkpoint.async, config.checkpoint.keep,
               config.checkpoint.keep_every, checkpoint_copy_bytes(config, model, grid)},
              grid, communicators.world) {
  run_id_ = communicators.world.broadcast(random_id());
}

/// What to try, the best first.
template <class T>
std::vector<std::string> RunCheckpoints<T>::candidates() const {
  const std::string& resume = config_.checkpoint.resume;
  std::vector<std::string> paths;
  if (resume == "never") return paths;
  if (resume != "auto") return {resume};
  std::string text;
  collectively(communicators_.world, [&] {
    if (communicators_.world.rank() == 0)
      for (const CheckpointEntry& entry : store_.entries()) text += entry.path + "\n";
  });
  std::istringstream lines(communicators_.world.broadcast(text));
  for (std::string line; std::getline(lines, line);) paths.push_back(line);
  return paths;
}

template <class T>
TrainingPosition RunCheckpoints<T>::resume(const Exec& exec, TrainingState<T> state) {
  const Communicator& world = communicators_.world;
  const std::vector<std::string> paths = candidates();
  for (const std::string& path : paths) {
    try {
      CheckpointReader reader(path, world);
      const CheckpointManifest& manifest = reader.manifest();
      collectively(world, [&] {
        changes_ = accepted_changes(manifest, config_, model_, data_);
        if (manifest.position.step > config_.train.steps)
          throw ConfigError(fmt::format("train.steps = {}, but {} is after step {}; raise train.steps, or {}",
                                        config_.train.steps, path, manifest.position.step, start_anew));
      });
      const std::vector<std::string> notes = restore_state(exec, reader, state, grid_, communicators_);
      resumed_from_ = path;
      run_id_ = manifest.run_id;
      first_ = saved_ = manifest.position.step;
      spdlog::info("going on from {}, after step {}{}{}{}", path, first_,
                   first_ == config_.train.steps ? ", the last one: nothing is left to train" : "",
                   changes_.empty() ? "" : "; changed: ", changes_);
      for (const std::string& note : notes) spdlog::warn("{}: {}", path, note);
      return manifest.position;
    } catch (const CollectiveError& error) {
      if (config_.checkpoint.resume != "auto" || error.code() != ExitCode::data) throw;
      spdlog::warn("checkpoint skipped: {}", error.what());
    }
  }
  if (!paths.empty())
    throw CollectiveError(fmt::format("none of the {} checkpoints in {} can be used (see above); set checkpoint.resume "
                                      "= \"never\" to start anew, which sets them aside",
                                      paths.size(), store_.folder()),
                          ExitCode::data);
  return {};
}

template <class T>
void RunCheckpoints<T>::start_folder() const {
  store_.remove_temporaries();
  for (const std::string& path : store_.set_aside_after(resumed_from_.empty() ? -1 : first_))
    spdlog::warn("an earlier run's checkpoint is later than where this one starts: now {}", path);
}

template <class T>
bool RunCheckpoints<T>::in_round(std::int64_t step) const {
  return is_federated(config_.parallel.strategy) && step % config_.federation.every != 0 && step != config_.train.steps;
}

template <class T>
bool RunCheckpoints<T>::due(std::int64_t step) const {
  const std::int64_t every = config_.checkpoint.every;
  // A run that was stopped early, and went on, leaves where it ended: given again, it has nothing left to do.
  if (step == config_.train.steps) return every > 0 || !resumed_from_.empty();
  if (every == 0) return false;
  if (config_.checkpoint.align == CheckpointOptions::Align::step) return step % every == 0;
  if (in_round(step)) return false;
  const std::int64_t before =
      is_federated(config_.parallel.strategy) ? std::max<std::int64_t>(0, step - config_.federation.every) : step - 1;
  return step / every > before / every;
}

template <class T>
void RunCheckpoints<T>::save(const Exec& exec, TrainingState<T> state, std::int64_t step, std::int64_t cursor,
                             RunLog& log) {
  if (saved_ == step) return;
  saved_ = step;
  log.flush(state.federation);
  CheckpointManifest head;
  head.run_id = run_id_;
  head.atoll = version();
  head.configuration = to_json(config_);
  head.model = to_hugging_face_json(model_);
  head.data = data_;
  head.position.step = step;
  head.position.cursor = cursor;
  head.position.tokens = log.tokens();
  const CheckpointContents contents = checkpoint_contents(
      config_.federation, config_.optimizer.kind, grid_.number_of_groups(), in_round(step), config_.checkpoint.moments);
  tell(save_state(exec, writer_, state, head, model_info(config_, model_, step, log.tokens()), grid_, communicators_,
                  contents),
       log);
  log.skip_time();
}

template <class T>
CheckpointContents RunCheckpoints<T>::contents(bool in_round) const {
  return checkpoint_contents(config_.federation, config_.optimizer.kind, grid_.number_of_groups(), in_round,
                             config_.checkpoint.moments);
}

template <class T>
std::uint64_t RunCheckpoints<T>::expected_bytes() const {
  return sizeof(Accumulator<T>) * checkpoint_elements(contents(is_federated(config_.parallel.strategy)),
                                                      static_cast<std::uint64_t>(parameter_count(model_)));
}

template <class T>
void RunCheckpoints<T>::tell(const std::optional<SaveReport>& report, RunLog& log) {
  if (!report) return;
  longest_save_ = std::max(longest_save_, report->seconds);
  if (!report->told) log.checkpoint(*report);
}

template <class T>
void RunCheckpoints<T>::poll(RunLog& log) {
  tell(writer_.poll(), log);
}

template <class T>
void RunCheckpoints<T>::finish(RunLog& log) {
  const auto report = writer_.finish();
  tell(report, log);
  if (report && !report->error.empty())
    throw CollectiveError(
        fmt::format("the last checkpoint, of step {}, could not be saved: {}", report->step, report->error));
}

template class RunCheckpoints<float>;
template class RunCheckpoints<double>;
template class RunCheckpoints<bf16>;

}  // namespace atl
