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

namespace atl {

/// Owns a duplicate or a split; move-only. Every wait goes through the wait policy (parallel/waiting.hpp).
/// The functions below move small host values; arrays of the device go through parallel/collectives.hpp. All are
/// collective over the communicator.
class Communicator {
 public:
  /// Duplicate of `parent`, which the caller keeps (MPI_COMM_WORLD, or that of a program that embeds atoll).
  explicit Communicator(MPI_Comm parent);
  /// Those ranks of `parent` that give the same color, ordered by key.
  Communicator(const Communicator& parent, int color, int key);
  /// These ranks of `parent`, in this order; this rank is one of them. Collective over them alone: ranks that make
  /// several take them in one order, the same everywhere.
  Communicator(const Communicator& parent, const std::vector<int>& members);
  ~Communicator();  // frees, unless MPI was finalized
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm get() const { return comm_; }

  void barrier() const;
  std::string broadcast(const std::string& text, int root = 0) const;
  std::vector<double> all_gather(const std::vector<double>& mine) const;  ///< equal lengths; in rank order
  void broadcast(std::vector<double>& values, int root = 0) const;        ///< equal lengths
  double sum(double mine) const;  ///< added in rank order: same bits on all ranks
  std::int64_t sum(std::int64_t mine) const;
  double max(double mine) const;  ///< NaN if any is

  /// Time spent in all of the above so far: for others, and for the network.
  double seconds_waited() const { return seconds_waited_; }

 private:
  void complete(std::vector<MPI_Request>& requests) const;  ///< counts the time
  template <class T>
  std::vector<T> gather_values(const T& mine, MPI_Datatype type) const;  ///< one value of every rank, in rank order
  friend void collectively(const Communicator& comm, const std::function<void()>& work);
  friend void require_equal(const Communicator& comm, const std::string& value, const std::string& what);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  mutable double seconds_waited_ = 0;
};

/// An error that every rank of a communicator throws at the same place: the program can end in order, without
/// MPI_Abort.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

/// An error that every rank of a federation group throws at the same place, while other groups know nothing of it. The
/// group's first rank tells it and ends the job; where the group is the world it is as good as a CollectiveError.
class GroupError : public Error {
 public:
  GroupError(const std::string& message, const Communicator& group)
      : Error(message), first_(group.rank() == 0), ranks_(group.size()) {}
  bool first() const { return first_; }  ///< this rank tells
  int ranks() const { return ranks_; }   ///< of the group

 private:
  bool first_;
  int ranks_;
};

/// Runs `work` on every rank of `comm`. If it throws anywhere, every rank throws a CollectiveError with message and
/// exit code of the lowest such rank: so no rank goes on alone into a collective call. Collective; `work` may itself be
/// collective only where all ranks throw, or none.
void collectively(const Communicator& comm, const std::function<void()>& work);

/// Throws CollectiveError (ExitCode::usage) on every rank if `value` is not the same on all; `what` names it.
void require_equal(const Communicator& comm, const std::string& value, const std::string& what);

/// The five communicators of a grid.
struct Communicators {
  Communicator world;
  Communicator group;    ///< the N_g ranks of one group
  Communicator replica;  ///< the R_g ranks of one group that own the same shard
  Communicator shard;    ///< the S ranks of one replica
  /// Equal groups: ranks that own the same slice (same shard and replica) in every group, in group order. Unequal
  /// groups have no such ranks: it joins the first ranks of all groups, and any other rank is alone.
  Communicator federation;

  Communicators(MPI_Comm parent, const ProcessGrid& grid);

  /// Values of every group, in group order, on every rank; `mine` is the same on all ranks of a group, of the same
  /// length everywhere. Collective over the world.
  std::vector<double> gather_over_groups(const std::vector<double>& mine) const;

 private:
  int groups_;
  bool equal_groups_;
};

}  // namespace atl
