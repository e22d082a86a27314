/// Collectives under way over MPI, and what drives them. SPDX-License-Identifier: Apache-2.0
///
/// An operation is a list of stages: each starts when the transfers of the one before are complete, which somebody has
/// to look at. All operations of the process, on whatever communicator, are looked at together: between the kernels of
/// the compute loop (core/progress), and in every wait. So transfers go on beside computation, and a rank that waits
/// for one thing never holds up another rank that waits for a different one.
#pragma once

#include "parallel/collectives.hpp"

#include <mpi.h>

#include <functional>
#include <vector>

namespace atl {

/// Adds the time of its life to `stats.seconds_waited`, unless it lives inside another one: so that no second counts
/// twice.
class ExposedTime {
 public:
  explicit ExposedTime(CommunicationStats& stats);
  ~ExposedTime();
  ExposedTime(const ExposedTime&) = delete;
  ExposedTime& operator=(const ExposedTime&) = delete;

 private:
  CommunicationStats* stats_;
  double start_ = 0;
};

class MpiOperation final : public Ticket::Operation {
 public:
  explicit MpiOperation(CommunicationStats& stats) : stats_(stats) {}
  ~MpiOperation() override;  ///< waits

  std::vector<MPI_Request> requests;          ///< transfers under way
  std::vector<std::function<void()>> stages;  ///< what follows them; each may add to `requests`
  std::function<void()> completed;            ///< called once at the end, if set

  /// From here on progress_operations() drives it.
  void start();

  bool test() override;
  void wait() override;

 private:
  friend void progress_operations();
  bool advance();  ///< goes on as far as the transfers allow; true when complete
  void forget();

  CommunicationStats& stats_;
  std::size_t next_ = 0;
  bool complete_ = false;
};

/// Drives all operations under way in this process.
void progress_operations();

}  // namespace atl
