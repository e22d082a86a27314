/// What a training run tells: metrics.jsonl, log lines, a progress bar. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timer.hpp"
#include "io/checkpoint/writer.hpp"
#include "io/data/data_sets.hpp"
#include "io/report/metrics.hpp"
#include "io/report/progress.hpp"
#include "model/evaluate.hpp"
#include "model/training_step.hpp"
#include "parallel/collectives.hpp"
#include "parallel/federation.hpp"
#include "parallel/federation_links.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace atl {

/// Sets up spdlog for this process: stderr, `level` on rank 0, errors only elsewhere. ConfigError for an unknown level.
void start_logging(int rank, const std::string& level);

/// Every rank has one and calls it alike; rank 0 writes. Between two aggregations groups do not talk, so the records of
/// steps wait in memory until the next one, when their losses are averaged over the groups. The progress bar shows the
/// loss of rank 0's group at once.
class RunLog {
 public:
  struct Options {
    std::string folder;  ///< metrics.jsonl goes there
    std::int64_t steps = 0;
    std::int64_t every = 10;  ///< steps between log lines where stderr is not a terminal
    int rank = 0;
    double world_per_group = 1;  ///< sequences of all groups for one of this group
    std::int64_t first = 0;      ///< optimizer steps done before: metrics.jsonl goes on after that step
    std::int64_t tokens = 0;     ///< target tokens before
  };
  /// The communication whose bytes and waits are reported.
  struct Traffic {
    const Collectives& shard;
    const Collectives& replica;
    const FederationLinks& federation;
    const Communicators& communicators;  ///< small values of the host: only the time that they take
  };

  RunLog(const Options& options, const Traffic& traffic);

  void start(const RunRecord& record);
  /// Floor of the built-in language, as a record of kind "language".
  void language(const LanguageFacts& facts);
  void step(std::int64_t step, std::int64_t round, const StepResult& result, double lr);
  /// Exchanges and writes the records since the last aggregation. Collective over the world.
  template <class T>
  void flush(const Federation<T>& federation);
  /// After an aggregation: all time and everything sent since the last step belong to it.
  void round(const RoundReport& report, std::int64_t step);
  void eval(std::int64_t step, const Evaluation& evaluation);
  /// What became of a checkpoint.
  void checkpoint(const SaveReport& report);
  /// That the run goes on from a checkpoint, as a record of kind "resume".
  void resumed(const std::string& path, const std::string& changes);
  void finish();
  /// Time since the last step that is not the next step's: evaluation, saving.
  void skip_time() { mark_ = Mark::of(traffic_, clock_.seconds()); }

  std::int64_t tokens() const { return tokens_; }  ///< target tokens of all groups in all flushed steps

 private:
  struct Mark {
    double seconds = 0, waited = 0;
    std::uint64_t shard = 0, replica = 0, federation = 0;
    static Mark of(const Traffic& traffic, double seconds);
    std::int64_t shard_since(const Mark& before) const { return static_cast<std::int64_t>(shard - before.shard); }
    std::int64_t replica_since(const Mark& before) const { return static_cast<std::int64_t>(replica - before.replica); }
    std::int64_t federation_since(const Mark& before) const {
      return static_cast<std::int64_t>(federation - before.federation);
    }
  };
  std::string progress_text(const StepRecord& record) const;

  Options options_;
  Traffic traffic_;
  std::unique_ptr<MetricsFile> metrics_;  // rank 0 only
  std::optional<Progress> progress_;      // rank 0, on a terminal
  Stopwatch clock_;
  Mark mark_;
  double training_seconds_ = 0;  // of all steps and aggregations so far, without evaluations
  std::vector<StepRecord> pending_;
  std::vector<double> losses_, weights_;  // of the pending steps, of this group
  std::int64_t tokens_ = 0;
};

/// Largest resident memory of this process so far, bytes.
std::int64_t peak_memory();

}  // namespace atl
