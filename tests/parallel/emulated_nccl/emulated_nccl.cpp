/// Streams of a device and NCCL, emulated on the host over MPI. SPDX-License-Identifier: Apache-2.0
///
/// What is put into a stream runs later, in order, whenever somebody asks for an event or launches a kernel; a transfer
/// reads its arrays when it starts and writes them before it ends. So an order that is missing between streams shows as
/// a wrong result, an error of NCCL and a transfer that never ends can be made, and operations of two communicators
/// that are under way at once, which may hang a device, are counted.
#include "tests/parallel/emulated_nccl/emulated_nccl.hpp"

#include "core/progress.hpp"
#include "parallel/device_stream.hpp"
#include "parallel/mpi_error.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

struct EmulatedStream {
  std::deque<std::function<bool()>> work;  // each: true when done
};

struct EmulatedComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  int polls_until_ready = 3;
  ncclResult_t error = ncclSuccess;
  bool aborted = false;
};

namespace {

std::vector<EmulatedStream*> streams;
MPI_Comm next_communicator = MPI_COMM_NULL;
EmulatedComm* under_way = nullptr;

void pump() {
  static bool pumping = false;  // kernels look for progress, too
  if (pumping) return;
  pumping = true;
  for (EmulatedStream* stream : streams)
    while (!stream->work.empty() && stream->work.front()()) stream->work.pop_front();
  pumping = false;
}

void push(EmulatedStream* stream, std::function<bool()> work) {
  stream->work.push_back(std::move(work));
  atl::set_progress(pump);
}

/// One call inside a group: starts its messages.
struct Transfer {
  EmulatedComm* comm;
  cudaStream_t stream;
  std::function<void(std::vector<MPI_Request>&)> start;
};
std::vector<Transfer> group;
int depth = 0;

ncclResult_t add(EmulatedComm* comm, cudaStream_t stream, std::function<void(std::vector<MPI_Request>&)> start) {
  ATOLL_REQUIRE(depth == 1 && comm->polls_until_ready == 0 && !comm->aborted);
  group.push_back({comm, stream, std::move(start)});
  return ncclSuccess;
}

MPI_Datatype type_of(ncclDataType_t type) {
  return type == ncclUint8 ? MPI_BYTE : type == ncclFloat32 ? MPI_FLOAT : MPI_DOUBLE;
}
std::size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8; }

bool count_down(int& left) { return left > 0 && --left == 0; }

/// All transfers of a group; runs in a stream.
struct RunningGroup {
  std::vector<Transfer> transfers;
  std::vector<MPI_Request> requests;
  bool started = false, hangs = false;

  bool operator()() {
    EmulatedComm* const comm = transfers.front().comm;
    if (comm->aborted) {
      if (under_way == comm) under_way = nullptr;
      return true;
    }
    if (!started) {
      auto& events = atl::emulation::events();
      ++events.transfers;
      if (under_way != nullptr) ++events.together;
      under_way = comm;
      started = true;
      if (count_down(events.fail_transfer)) comm->error = ncclRemoteError;
      hangs = count_down(events.hang_transfer) || comm->error != ncclSuccess;
      if (!hangs)
        for (const Transfer& transfer : transfers) transfer.start(requests);
    }
    int done = 0;
    if (!hangs) MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) under_way = nullptr;
    return done != 0;
  }
};

}  // namespace

namespace atl {

struct DeviceEvent::State {
  std::shared_ptr<bool> reached = std::make_shared<bool>(true);
};
DeviceEvent::DeviceEvent() : state_(std::make_unique<State>()) {}
DeviceEvent::~DeviceEvent() = default;
void DeviceEvent::record(const Exec& exec) {
  exec.fence();  // kernels of Exec run at once here
  state_->reached = std::make_shared<bool>(true);
}
bool DeviceEvent::complete() const {
  pump();
  return *state_->reached;
}

struct DeviceStream::State {
  EmulatedStream stream;
};
DeviceStream::DeviceStream() : state_(std::make_unique<State>()) { streams.push_back(&state_->stream); }
DeviceStream::~DeviceStream() { streams.erase(std::find(streams.begin(), streams.end(), &state_->stream)); }
void DeviceStream::wait_for(const DeviceEvent& event) {
  push(&state_->stream, [reached = event.state_->reached] { return *reached; });
}
void DeviceStream::record(DeviceEvent& event) {
  event.state_->reached = std::make_shared<bool>(false);
  push(&state_->stream, [reached = event.state_->reached] { return *reached = true; });
}
void DeviceStream::launch(const std::function<void(const Exec&)>& kernels) {
  push(&state_->stream, [kernels] {
    const Exec exec;
    kernels(exec);
    exec.fence();
    return true;
  });
}
void* DeviceStream::native() const { return &state_->stream; }

namespace emulation {

Events& events() {
  static Events all;
  return all;
}

std::unique_ptr<Collectives> make_collectives(const Communicator& comm, const CollectivesOptions& options) {
  next_communicator = comm.get();
  return make_nccl_collectives(comm, options);
}

}  // namespace emulation
}  // namespace atl

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number = 0;
  std::memset(id->internal, ++number, sizeof(id->internal));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  ATOLL_REQUIRE(config->blocking == 0);
  auto* const comm = new EmulatedComm;
  MPI_Comm_dup(next_communicator, &comm->mpi);
  MPI_Comm_rank(comm->mpi, &comm->rank);
  MPI_Comm_size(comm->mpi, &comm->size);
  ATOLL_REQUIRE(comm->rank == rank && comm->size == ranks);
  ncclUniqueId first = id;
  MPI_Bcast(&first, sizeof(first), MPI_BYTE, 0, comm->mpi);
  ATOLL_REQUIRE(id.internal[0] != 0 && std::memcmp(&first, &id, sizeof(id)) == 0);  // one id on all ranks
  *made = comm;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  pump();
  if (comm->polls_until_ready > 0 && --comm->polls_until_ready > 0) {
    *state = ncclInProgress;
    return ncclSuccess;
  }
  *state = atl::emulation::events().fail_init ? ncclSystemError : comm->error;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->polls_until_ready = 2;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ATOLL_REQUIRE(comm->polls_until_ready == 0);
  ++atl::emulation::events().destroyed;
  MPI_Comm_free(&comm->mpi);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;  // kept: streams may still hold its transfers
  ++atl::emulation::events().aborted;
  pump();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "unhandled system error";
}
const char* ncclGetLastError(ncclComm_t) { return "last words"; }

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0 || group.empty()) return ncclSuccess;
  EmulatedComm* const comm = group.front().comm;
  for (const Transfer& transfer : group)
    ATOLL_REQUIRE(transfer.comm == comm && transfer.stream == group.front().stream);
  push(group.front().stream,
       [running = std::make_shared<RunningGroup>(RunningGroup{group, {}})] { return (*running)(); });
  group.clear();
  comm->polls_until_ready = 2;
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int rank, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>& requests) {
    MPI_Isend(from, static_cast<int>(count), type_of(type), rank, 0, comm->mpi, &requests.emplace_back());
  });
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int rank, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>& requests) {
    MPI_Irecv(to, static_cast<int>(count), type_of(type), rank, 0, comm->mpi, &requests.emplace_back());
  });
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>& requests) {
    char* const mine = static_cast<char*>(to) + static_cast<std::size_t>(comm->rank) * count * size_of(type);
    const int n = static_cast<int>(count);
    MPI_Iallgather(from == mine ? MPI_IN_PLACE : from, n, type_of(type), to, n, type_of(type), comm->mpi,
                   &requests.emplace_back());
  });
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>& requests) {
    // NCCL reads and writes one array here where MPI wants two.
    const std::size_t bytes = static_cast<std::size_t>(comm->size) * count * size_of(type);
    static std::vector<char> copy;
    copy.assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    MPI_Ireduce_scatter_block(copy.data(), to, static_cast<int>(count), type_of(type), MPI_SUM, comm->mpi,
                              &requests.emplace_back());
  });
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>& requests) {
    ATOLL_REQUIRE(from == to);
    MPI_Iallreduce(MPI_IN_PLACE, to, static_cast<int>(count), type_of(type), MPI_SUM, comm->mpi,
                   &requests.emplace_back());
  });
}
