/// SPDX-License-Identifier: Apache-2.0
#include "parallel/nccl_communicator.hpp"

#include "core/timer.hpp"
#include "parallel/collectives_backends.hpp"
#include "parallel/runtime.hpp"
#include "parallel/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#if NCCL_VERSION_CODE < 21400
#error "atoll needs NCCL 2.14 or newer (communicators that do not block)"
#endif

namespace atl {

namespace {

std::vector<NcclCommunicator*>& alive() {
  static std::vector<NcclCommunicator*> all;
  return all;
}

ncclUniqueId make_id(const Communicator& comm) {
  ncclUniqueId id{};
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
      throw Error(fmt::format("NCCL failed: ncclGetUniqueId: {}; NCCL_DEBUG=WARN in the environment tells more",
                              ncclGetErrorString(result)));
  });
  const std::string bytes = comm.broadcast(std::string(reinterpret_cast<const char*>(&id), sizeof(id)));
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const Communicator& comm, double time_out) : ranks_(comm), time_out_(time_out) {
  const ncclUniqueId id = make_id(comm);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, comm.size(), id, comm.rank(), &config);
  alive().push_back(this);
  try {
    settle(result, "ncclCommInitRankConfig");
  } catch (...) {
    alive().erase(std::find(alive().begin(), alive().end(), this));  // the destructor will not run
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  if (std::uncaught_exceptions() > 0) {
    abort_all();  // what other ranks do is unknown
  } else {
    try {
      finish();
    } catch (const Error& error) {
      abort_job(error.what(), error.code());
    }
  }
  alive().erase(std::find(alive().begin(), alive().end(), this));
}

void NcclCommunicator::finish() {
  if (comm_ == nullptr) return;
  settle(ncclCommFinalize(comm_), "ncclCommFinalize");
  expect(ncclCommDestroy(comm_), "ncclCommDestroy");
}

void NcclCommunicator::group(const std::function<void()>& calls) {
  check();
  expect(ncclGroupStart(), "ncclGroupStart");
  calls();
  settle(ncclGroupEnd(), "ncclGroupEnd");
}

void NcclCommunicator::expect(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const last = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
  const std::string more = last == nullptr || *last == '\0' ? "" : fmt::format(" ({})", last);
  fail(fmt::format("{}: {}{}", call, ncclGetErrorString(result), more));
}

void NcclCommunicator::check() {
  if (comm_ == nullptr) throw Error("NCCL was aborted after an error of this process");
  ncclResult_t state = ncclSuccess;
  expect(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  expect(state, "in an operation under way");
}

void NcclCommunicator::settle(ncclResult_t result, const char* call) {
  expect(result, call);
  if (result == ncclSuccess) return;
  wait(
      [&] {
        if (comm_ == nullptr) return false;  // check() tells
        expect(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError");
        expect(result, call);
        return result == ncclSuccess;
      },
      call);
}

void NcclCommunicator::wait(const std::function<bool()>& done, const char* what) {
  const Stopwatch clock;
  wait_until([&] {
    // An aborted operation is done as well: so errors are looked for afterwards.
    const bool is_done = done();
    check();
    if (!is_done && clock.seconds() > time_out_)
      fail(
          fmt::format("{} did not end within {:g} seconds: another rank is gone, or is not there yet; look for its "
                      "messages, and raise parallel.time_out where ranks may well be that late",
                      what, time_out_));
    return is_done;
  });
}

void NcclCommunicator::fail(const std::string& problem) {
  abort_all();
  throw Error(
      fmt::format("NCCL failed on rank {} of the {} of its communicator: {}; NCCL_DEBUG=WARN in the environment "
                  "tells more",
                  ranks_.rank(), ranks_.size(), problem));
}

void NcclCommunicator::abort_all() noexcept {
  for (NcclCommunicator* each : alive()) {
    if (each->comm_ != nullptr) ncclCommAbort(each->comm_);
    each->comm_ = nullptr;
  }
}

std::string nccl_version() {
  int code = 0;
  if (ncclGetVersion(&code) != ncclSuccess) return "of unknown version";
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace atl
