/// Saving beside training: every rank writes its own parts. SPDX-License-Identifier: Apache-2.0
///
/// The step stalls while files are laid out and each rank copies its parts to host memory; a thread of each rank writes
/// them meanwhile, hashing as it goes. Reports go to rank 0, which writes manifest and COMMIT once all have come,
/// renames the folder, and only then removes older checkpoints. Nothing that fails here throws: it is told in a report,
/// and the checkpoints before it stay.
#pragma once

#include "io/checkpoint/files.hpp"
#include "io/checkpoint/store.hpp"
#include "parallel/mailbox.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace atl {

/// What became of one save.
struct SaveReport {
  std::int64_t step = 0;
  std::string path;
  std::uint64_t bytes = 0;
  double seconds = 0;        ///< until it was complete on the disk
  double stall_seconds = 0;  ///< of rank 0's training
  std::string error;         ///< empty: it is there
  std::string warning;       ///< it is there, but older ones could not be removed
  bool told = false;         ///< poll() has returned it on this rank before
};

/// One part of this rank and its numbers, in memory of the execution space.
struct PartSource {
  CheckpointPart part;
  View1<const char> bytes;
};

class CheckpointWriter {
 public:
  struct Options {
    std::string folder;  ///< <run>/checkpoints
    int writers = 0;     ///< as of files_of_ranks
    bool async = true;
    std::int64_t keep = 0, keep_every = 0;  ///< as of CheckpointStore::remove_old
    /// Of this rank's copy, made and touched at the start, so that the first save stalls no longer than the others; a
    /// larger save makes a larger one.
    std::uint64_t copy_bytes = 0;
  };

  /// Collective over the world. ConfigError for too many writers.
  CheckpointWriter(const Options& options, const ProcessGrid& grid, const Communicator& world);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Begins a save; waits for the one before. `head`: all of the manifest but files and parts. `arrays`: those saved.
  /// `mine`: exactly parts_of_rank, in that order; read during the call only. Collective over the world. Returns what
  /// finish() says of the save before.
  std::optional<SaveReport> save(const Exec& exec, const CheckpointManifest& head, const ModelInfo& model,
                                 const std::vector<UnitSpec>& units, const std::vector<CheckpointArray>& arrays,
                                 const std::vector<PartSource>& mine);

  /// Moves a save on without waiting; on rank 0 its report once it has ended. Not collective: call it every step.
  std::optional<SaveReport> poll();

  /// Waits for the end of the save that began last; its report, the same on all ranks (but for `told`), unless finish()
  /// has returned it before. Collective over the world.
  std::optional<SaveReport> finish();

  std::uint64_t copy_bytes() const { return copy_.extent(0); }  ///< host memory held for asynchronous saving

 private:
  struct Save;
  struct Place {
    int group = 0, rank_in_group = 0;
  };
  std::vector<CheckpointPart> parts_of(int rank, const Save& save, const std::vector<CheckpointArray>& arrays) const;
  void lay_out(Save& save, const std::vector<UnitSpec>& units, const ModelInfo& model,
               const std::vector<CheckpointArray>& arrays);
  void publish(Save& save);
  void collect(Save& save);

  Options options_;
  const ProcessGrid& grid_;
  const Communicator& world_;
  std::vector<int> files_;     ///< of every rank
  std::vector<Place> places_;  ///< of every rank
  Communicator file_;          ///< ranks of the same file
  Mailbox mailbox_;
  CheckpointStore store_;
  Kokkos::View<char*, Kokkos::HostSpace> copy_;
  std::unique_ptr<Save> save_;  ///< under way, or ended and not yet finished by all ranks
};

}  // namespace atl
