/// A tiny run that saves checkpoints and restores them, and faults to put into them: for tests.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint/training_state.hpp"
#include "io/saved_model.hpp"
#include "tests/io/shared_folder.hpp"
#include "tests/model/tiny_run.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

namespace atl {

/// One block and few parameters, so that a checkpoint is small.
inline LlamaConfig small_config(std::int64_t hidden = 4, std::int64_t vocabulary = 16) {
  LlamaConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = hidden;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 1;
  config.num_key_value_heads = 1;
  config.vocab_size = vocabulary;
  config.tie_word_embeddings = true;
  complete_and_check(config);
  return config;
}

/// Every rank of the world is a group of its own, unless `groups` says how many there are; model and moments are
/// made-up numbers, other ones in every group and at every step.
struct SavedRun {
  explicit SavedRun(const std::string& folder, const LlamaConfig& model = small_config(), bool async = true,
                    std::int64_t keep = 0, int writers = 1, int groups = world_ranks())
      : config(model),
        run(grid_of(std::vector<GroupShape>(static_cast<std::size_t>(groups), {1, world_ranks() / groups})), config,
            options()),
        world(run.communicators.world),
        writer({folder, writers, async, keep, 0}, run.grid, world) {}

  static TinyOptions options() {
    TinyOptions options;
    options.shape.micro_batch = 1;
    options.shape.sequence_length = 4;
    return options;
  }

  TrainingState<float> state() { return {run.parameters, run.optimizer, run.federation}; }

  void fill(std::int64_t step) {
    const auto value = [&](std::size_t quantity) {
      const auto key = random_key(static_cast<std::uint64_t>(100 * step + run.grid.group()), "made up") + quantity;
      return [key](std::size_t u, std::size_t i) { return random_normal(key + 10 * u, i); };
    };
    run.set(&ShardedUnit<float>::master, value(0));
    run.set(&ShardedUnit<float>::moment1, value(1));
    run.set(&ShardedUnit<float>::moment2, value(2));
    run.optimizer.restore(step, false);
    run.federation.restore(step / 4, 100.0 * (run.grid.group() + 1), {});
  }

  /// Begins to save what fill(step) makes, inside a round; returns the report of the save before.
  std::optional<SaveReport> begin_save(std::int64_t step, const std::string& run_id = "a run") {
    fill(step);
    CheckpointManifest head;
    head.run_id = run_id;
    head.atoll = "test";
    head.configuration = {{"run", {{"seed", 1}}}, {"data", {{"sequence_length", 4}}}};
    head.model = to_hugging_face_json(config);
    head.data = {{"tokens", 1000}};
    head.position.step = step;
    head.position.cursor = 8 * step;
    head.position.tokens = 32 * step;
    const auto contents = checkpoint_contents(run.options.federation, OptimizerOptions::Kind::adamw,
                                              run.grid.number_of_groups(), true, SavedMoments::all);
    return save_state(run.exec, writer, state(), head, {config, step, 32 * step}, run.grid, run.communicators,
                      contents);
  }
  SaveReport save(std::int64_t step, const std::string& run_id = "a run") {
    begin_save(step, run_id);
    return writer.finish().value();
  }

  /// Opens and restores as `atoll train` does.
  void restore(const std::string& checkpoint) {
    CheckpointReader reader(checkpoint, world);
    restore_state(run.exec, reader, state(), run.grid, run.communicators);
  }
  /// The reason why it is refused as corrupt data; empty where it is accepted, "?..." for any other kind of error.
  std::string refusal(const std::string& checkpoint) {
    try {
      restore(checkpoint);
    } catch (const CollectiveError& error) {
      return (error.code() == ExitCode::data ? "" : "?") + std::string(error.what());
    }
    return "";
  }

  /// All that a checkpoint restores of this rank, as bytes.
  std::string everything() const {
    std::string bytes;
    for (const auto view : {&ShardedUnit<float>::master, &ShardedUnit<float>::moment1, &ShardedUnit<float>::moment2})
      bytes += bytes_of(run.full(view));
    return bytes + std::to_string(run.optimizer.steps()) + "," + std::to_string(run.federation.round()) + "," +
           std::to_string(run.federation.tokens_in_round());
  }
  /// It holds what fill(step) makes.
  void expect_step(const std::string& checkpoint, std::int64_t step) {
    fill(step);
    const std::string expected = everything();
    fill(step + 1000);
    EXPECT_EQ(refusal(checkpoint), "");
    EXPECT_TRUE(everything() == expected) << checkpoint << " does not hold the state of step " << step;
  }

  LlamaConfig config;
  TinyRun<float> run;
  const Communicator& world;
  CheckpointWriter writer;
};

/// Relative paths of all files of a folder, sorted.
inline std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(std::filesystem::relative(entry.path(), folder).string());
  std::sort(names.begin(), names.end());
  return names;
}

inline void set_content(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// What is left of unfinished saves.
inline std::vector<std::string> temporaries_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().rfind(".tmp-", 0) == 0) names.push_back(entry.path().filename().string());
  return names;
}

}  // namespace atl
