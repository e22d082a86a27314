/// The checkpoints of a run: which one to go on from, when to save. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint/training_state.hpp"
#include "io/config/run_config.hpp"
#include "io/data/mixture.hpp"
#include "io/report/run_log.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace atl {

/// "train.steps 100 -> 200, optimizer.lr 0.001 -> 0.0005": keys that differ between the run that saved and this one;
/// empty: none. ConfigError for one that would make another run of it: the model, the data and their order, element
/// type, kinds of optimizer. `data` is that of manifests.
std::string accepted_changes(const CheckpointManifest& manifest, const RunConfig& config, const LlamaConfig& model,
                             const nlohmann::ordered_json& data);

/// Host memory of the rank that copies most for a scheduled save; 0 where none is made beside training.
std::uint64_t checkpoint_copy_bytes(const RunConfig& config, const LlamaConfig& model, const ProcessGrid& grid);

/// What a saved model says of the run.
ModelInfo model_info(const RunConfig& config, const LlamaConfig& model, std::int64_t step, std::int64_t tokens);

/// What identifies training data in a manifest.
nlohmann::ordered_json data_identity(const TrainingData& data);

/// Every rank has one and calls it alike.
template <class T>
class RunCheckpoints {
 public:
  /// Collective over the world. ConfigError (on all ranks) for keys of [checkpoint] that do not fit the job.
  RunCheckpoints(const RunConfig& config, const LlamaConfig& model, const TrainingData& data, const ProcessGrid& grid,
                 const Communicators& communicators);

  /// Restores the state as checkpoint.resume says; the position where training goes on, step 0 for a new run. With
  /// "auto" incomplete and corrupt checkpoints are skipped with a warning; if there are only such, or a given one is
  /// bad, that is an error. Collective over the world; throws CollectiveError.
  TrainingPosition resume(const Exec& exec, TrainingState<T> state);
  const std::string& resumed_from() const { return resumed_from_; }  ///< empty: a new run
  const std::string& changes() const { return changes_; }            ///< accepted_changes

  /// When nothing can be wrong any more: what killed runs left goes, and checkpoints later than where this run starts
  /// are set aside. Rank 0.
  void start_folder() const;

  /// True if a scheduled save follows optimizer step `step`.
  bool due(std::int64_t step) const;
  /// Begins to save after `step`, with `cursor` sequences consumed; nothing where that is done. Collective over the
  /// world.
  void save(const Exec& exec, TrainingState<T> state, std::int64_t step, std::int64_t cursor, RunLog& log);
  std::uint64_t expected_bytes() const;                  ///< of a save inside a round
  double longest_save() const { return longest_save_; }  ///< seconds until one was on the disk; known to rank 0

  /// After every step: tells what has ended.
  void poll(RunLog& log);
  /// Waits for the last save. Throws CollectiveError if it failed. Collective over the world.
  void finish(RunLog& log);

 private:
  bool in_round(std::int64_t step) const;
  void tell(const std::optional<SaveReport>& report, RunLog& log);
  CheckpointContents contents(bool in_round) const;
  std::vector<std::string> candidates() const;

  const RunConfig& config_;
  const LlamaConfig& model_;
  const ProcessGrid& grid_;
  const Communicators& communicators_;
  nlohmann::ordered_json data_;
  CheckpointStore store_;
  CheckpointWriter writer_;
  std::string run_id_, resumed_from_, changes_;
  std::int64_t first_ = 0, saved_ = -1;
  double longest_save_ = 0;
};

}  // namespace atl
