/// A NCCL communicator, owned, and calls on it that never hang. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/communicator.hpp"

#include <nccl.h>

#include <functional>

namespace atl {

/// The ranks of a Communicator, in its order, each with a device of its own. NCCL's calls do not block; where one has
/// to be waited for, here or in the operations that it started, NCCL is asked for errors meanwhile, and after
/// `time_out` seconds it counts as failed. The first failure aborts all NCCL communicators of the process, so that
/// their kernels end on the device, and is thrown as an Error: it ends the job.
class NcclCommunicator {
 public:
  /// Collective over `comm`, which must outlive this.
  NcclCommunicator(const Communicator& comm, double time_out);
  ~NcclCommunicator();  ///< collective; aborts instead where an exception is on its way
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  ncclComm_t get() const { return comm_; }

  /// Operations of `calls` as one: they start together. Returns when they are in their streams.
  void group(const std::function<void()>& calls);
  /// For the calls inside a group.
  void expect(ncclResult_t result, const char* call);
  /// Throws if NCCL found an error, on this rank or on another one, or if the communicator was aborted.
  void check();
  /// Returns when `done()` is true. `what` it waits for is told if that fails.
  void wait(const std::function<bool()>& done, const char* what);

  /// Ends what NCCL is doing on this process's device. Nothing can be communicated afterwards.
  static void abort_all() noexcept;

 private:
  void settle(ncclResult_t result, const char* call);
  [[noreturn]] void fail(const std::string& problem);
  void finish();

  const Communicator& ranks_;
  double time_out_;
  ncclComm_t comm_ = nullptr;  // null: aborted
};

}  // namespace atl
