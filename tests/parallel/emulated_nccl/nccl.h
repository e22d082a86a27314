/// NCCL's interface as far as atoll calls it, for emulated_nccl.cpp. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

struct EmulatedStream;
using cudaStream_t = EmulatedStream*;
struct EmulatedComm;
using ncclComm_t = EmulatedComm*;

#define NCCL_VERSION_CODE 21400
#define NCCL_CONFIG_INITIALIZER \
  { 1 }

enum ncclResult_t { ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclRemoteError = 6, ncclInProgress = 7 };
enum ncclDataType_t { ncclUint8, ncclFloat32, ncclFloat64 };
enum ncclRedOp_t { ncclSum };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int rank, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int rank, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
