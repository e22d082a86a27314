/// Communicators, owned and freed, and what host code agrees on through them. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/errors.hpp"
#include "parallel/process_grid.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace atoll {

/// Owns a duplicate or a split; move-only. Every wait goes through the wait policy (parallel/waiting.hpp).
/// The functions below move small host values; arrays of the device go through parallel/collectives.hpp. All are
/// collective over the communicator.
class Communicator {
 public:
  /// Duplicate of `parent`, which the caller keeps (MPI_COMM_WORLD, or that of a program that embeds atoll).
  explicit Communicator(MPI_Comm parent);
  /// Those ranks of `parent` that give the same color, ordered by key.
  Communicator(const Communicator& parent, int color, int key);
  ~Communicator();  // frees, unless MPI was finalized
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm get() const { return comm_; }

  void barrier() const;
  std::string broadcast(const std::string& text, int root = 0) const;
  std::vector<double> all_gather(const std::vector<double>& mine) const;  ///< equal lengths; in rank order
  double sum(double mine) const;                                          ///< added in rank order: same bits on all ranks
  std::int64_t sum(std::int64_t mine) const;
  double max(double mine) const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

/// Runs `work` on every rank of `comm`. If it throws anywhere, every rank throws the error of the lowest such rank
/// (same message, same exit code): so no rank goes on alone into a collective call. Collective.
void collectively(const Communicator& comm, const std::function<void()>& work);

/// Throws on every rank if `value` is not the same on all of them; `what` names it.
void require_equal(const Communicator& comm, const std::string& value, const std::string& what);

/// The five communicators of a grid.
struct Communicators {
  Communicator world;
  Communicator group;       ///< the N_g ranks of one group
  Communicator replica;     ///< the R_g ranks of one group that own the same shard
  Communicator shard;       ///< the S ranks of one replica
  Communicator federation;  ///< ranks that own the same slice (same shard and replica) in every group, in group order

  Communicators(MPI_Comm parent, const ProcessGrid& grid);
};

}  // namespace atoll
