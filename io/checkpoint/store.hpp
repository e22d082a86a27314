/// The folder of a run's checkpoints: which there are, the newest, which go. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atl {

/// A folder "step_000400"; whether it is a good checkpoint shows when it is read.
struct CheckpointEntry {
  std::int64_t step = 0;
  std::string path;
};

/// 64 random bits, as 16 hexadecimal digits: for names that nobody else has.
std::string random_id();

/// <run>/checkpoints. Of one rank (rank 0) unless it says otherwise.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string path_of(std::int64_t step) const;  ///< <folder>/step_000400
  std::vector<CheckpointEntry> entries() const;  ///< by step, the newest first; none if there is no folder
  bool has(std::int64_t step) const;

  /// Makes the folder, and a folder ".tmp-<name>" in it, with data/ inside; returns its path. DataError where that
  /// cannot be done, or where the file system has less than `bytes` free.
  std::string begin(const std::string& name, std::uint64_t bytes) const;
  /// A complete temporary folder becomes the checkpoint of this step and what `latest` points to; flushed to the disk
  /// in that order. DataError where that fails.
  void publish(const std::string& temporary, std::int64_t step) const;
  /// Removes all but the newest `keep` ones (0: removes none) and those whose step is a multiple of `keep_every` (0:
  /// none is).
  void remove_old(std::int64_t keep, std::int64_t keep_every) const;
  /// Removes what killed runs left unfinished.
  void remove_temporaries() const;
  /// Checkpoints later than `step` get names that nobody resumes from: "set_aside_step_000500", with a number where
  /// that is taken. Returns their new paths.
  std::vector<std::string> set_aside_after(std::int64_t step) const;

 private:
  std::string folder_;
};

}  // namespace atl
