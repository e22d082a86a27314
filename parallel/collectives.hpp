/// The one interface for collectives on device arrays. SPDX-License-Identifier: Apache-2.0
///
/// A collective starts the transfer and returns a Ticket; nothing is complete before Ticket::wait(). Behind it are MPI
/// (collectives_mpi.cpp) and, for memory of devices, NCCL (collectives_nccl.cpp).
/// Counts are size_t and never narrowed: large ones are sent by MPI-4 large counts or derived types.
/// Order: all ranks start the same operations in the same order; several may be under way at once, and each rank may
/// test and wait for them in any order. NCCL wants that order over all Collectives of a process, not of each alone.
/// Tickets end before the Collectives they came from.
/// Determinism: sums are added in rank order, so bits do not depend on timing, algorithm choice or library; with one
/// exception, which has to be asked for (SumOrder::library).
#pragma once

#include "core/element.hpp"
#include "parallel/collectives_options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace atl {

class Communicator;

/// An operation under way. Destroying a ticket that was not waited for waits.
class Ticket {
 public:
  class Operation {
   public:
    virtual ~Operation() = default;  ///< waits; may give up the operation where an exception is on its way
    virtual bool test() = 0;         ///< progress; true when complete (further calls stay true)
    virtual void
    wait() = 0;  ///< complete on return: results visible to kernels launched on the Exec given at the start
  };
  Ticket() = default;  ///< complete
  explicit Ticket(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept {
    if (this != &other) {
      wait();
      operation_ = std::move(other.operation_);
    }
    return *this;
  }
  ~Ticket() = default;
  bool test() { return !operation_ || operation_->test(); }
  void wait() {
    if (operation_) operation_->wait();
    operation_.reset();
  }

 private:
  std::unique_ptr<Operation> operation_;
};

/// Counted where it happens. bytes_sent is what a ring sends from this rank: (m-1)/m of the whole for an all-gather or
/// a reduce-scatter of m ranks, twice that for an all-reduce (its whole rounded up to m equal slices).
struct CommunicationStats {
  std::uint64_t bytes_sent = 0;
  double seconds_waited = 0;  ///< exposed: time inside calls, tests and waits; not that of kernels launched before
};

/// How the terms of a sum of fp32 travel: as they are, or each rounded to bf16 first, in half the bytes. Sums are fp32
/// in either case.
enum class Wire { exact, bf16 };

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// recv[r * count + i] = send_r[i] for every rank r. `send` may be recv + rank * count (in place), else they are
  /// disjoint.
  virtual Ticket all_gather(const void* send, void* recv, std::size_t count, Element element, const Exec& exec) = 0;

  /// recv[i] = sum over ranks r, in rank order, of send_r[rank * count + i]. `send` has size() * count elements and
  /// must stay untouched until the ticket is complete. fp32 and fp64. With accumulate, recv[i] += that sum. `recv` may
  /// be send + rank * count (in place), else they are disjoint. Wire::bf16 rounds all terms, the rank's own too;
  /// nothing is rounded on one rank alone.
  virtual Ticket reduce_scatter(const void* send, void* recv, std::size_t count, Element element, bool accumulate,
                                const Exec& exec, Wire wire = Wire::exact) = 0;

  /// data[i] = sum over ranks, in rank order: a reduce-scatter and an all-gather of slices. fp32 and fp64. Wire::bf16
  /// rounds all terms, and the sums before they are gathered: the same bits on all ranks.
  virtual Ticket all_reduce(void* data, std::size_t count, Element element, const Exec& exec,
                            Wire wire = Wire::exact) = 0;

  const CommunicationStats& stats() const { return stats_; }

 protected:
  CommunicationStats stats_;
};

/// How MPI gets at the arrays: it reads and writes them itself, or copies of them in host memory.
enum class MpiAccess { direct, staged };
/// direct where the host reaches the memory of kernels, or where the MPI library says that it handles device memory.
MpiAccess mpi_access();

/// Collectives over MPI, on a duplicate of `comm`, so that their messages meet no others: collective. Must be destroyed
/// before MPI_Finalize and Kokkos::finalize.
std::unique_ptr<Collectives> make_mpi_collectives(const Communicator& comm, MpiAccess access = mpi_access());

/// `wanted` with the backend that is used for these ranks, the same on all of them. automatic: NCCL where the build has
/// it, kernels run on devices, and no two ranks share one; else MPI. Collective over `world`. Throws CollectiveError
/// (ExitCode::usage), which says what is missing, where NCCL is asked for and cannot be.
CollectivesOptions choose_backend(CollectivesOptions wanted, const Communicator& world);
bool nccl_built_in();

/// Collectives on `comm` with options of choose_backend. Collective over `comm`; as make_mpi_collectives.
std::unique_ptr<Collectives> make_collectives(const Communicator& comm, const CollectivesOptions& options);

/// For people: "NCCL 2.28.9, sums in rank order" or "MPI, staged through host memory".
std::string describe(const CollectivesOptions& options);

}  // namespace atl
