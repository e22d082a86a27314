/// metrics.jsonl: what a run measured, one JSON object a line. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace atl {

/// First line of a run.
struct RunRecord {
  nlohmann::ordered_json configuration;  ///< to_json(RunConfig)
  nlohmann::ordered_json grid;           ///< ranks, groups, replicas, shards
  nlohmann::ordered_json versions;       ///< atoll, Kokkos, MPI, HDF5, GEMM library
  std::string git_revision;
  std::int64_t seed = 0;
};

/// After an optimizer step. Times in seconds; bytes sent by rank 0 in this step, for each kind of communicator, as
/// CommunicationStats counts them; tokens are target tokens. An aggregation that follows is not in it.
struct StepRecord {
  std::int64_t step = 0;    ///< 1 after the first step
  std::int64_t round = 0;   ///< 1 in the first round
  std::int64_t tokens = 0;  ///< of all ranks, since the start
  double loss = 0;          ///< token-weighted mean over the world, natural logarithm
  double lr = 0;
  double grad_norm = 0;  ///< before clipping
  double step_seconds = 0;
  double tokens_per_second = 0;
  double compute_seconds = 0;
  double exposed_comm_seconds = 0;  ///< of rank 0: communication that nothing hid, and waiting for other ranks
  std::int64_t bytes_shard = 0, bytes_replica = 0, bytes_federation = 0;
  std::int64_t memory_bytes = 0;
};

struct EvalRecord {
  std::int64_t step = 0;
  double loss = 0;  ///< mean over all target tokens of the evaluation
  double perplexity = 0;
  std::int64_t tokens = 0;
};

/// After an aggregation; vectors have one entry a group.
struct RoundRecord {
  std::int64_t round = 0;
  std::int64_t step = 0;
  std::vector<std::int64_t> tokens;  ///< target tokens of each group in the round
  std::int64_t bytes = 0;            ///< sent by rank 0 for this aggregation: the sum of the three kinds
  std::int64_t bytes_shard = 0, bytes_replica = 0, bytes_federation = 0;
  double seconds = 0;  ///< since the last step: waiting for the other groups, exchange of losses, aggregation
  double exposed_comm_seconds = 0;  ///< of these
  std::vector<double> drift;        ///< L2 distance of each group's model from the average
};

/// The file, opened by rank 0 only. Every record is one line, written and flushed at once, so a reader never waits and
/// a job that is killed loses nothing. JSON has no NaN and no infinity: such a number is null.
class MetricsFile {
 public:
  enum class Mode {
    create,  ///< empties a file of that name
    append   ///< continues it; a last line that was cut off in the middle is removed
  };

  /// Makes missing folders of the path. ConfigError with path and the system's reason where it cannot be written.
  explicit MetricsFile(const std::string& path, Mode mode = Mode::create);

  /// Removes the records of later steps from a file, and what is no record: a run that goes on from a checkpoint
  /// repeats those steps. DataError where that fails; nothing where there is no file.
  static void drop_after(const std::string& path, std::int64_t step);

  void write(const RunRecord& record);
  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void write(const RoundRecord& record);
  /// A record of another kind: {"kind": kind, fields...}.
  void write(const std::string& kind, const nlohmann::ordered_json& fields);

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace atl
