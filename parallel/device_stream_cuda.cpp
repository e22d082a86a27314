/// Streams and events of CUDA. SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives_backends.hpp"
#include "parallel/device_stream.hpp"

#include <array>
#include <cuda_runtime.h>

namespace atl {

namespace {

void require(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw Error(std::string("CUDA failed: ") + call + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) +
              ")");
}
#define ATOLL_CUDA(call) require((call), #call)

}  // namespace

struct DeviceEvent::State {
  cudaEvent_t event = nullptr;
};

DeviceEvent::DeviceEvent() : state_(std::make_unique<State>()) {
  ATOLL_CUDA(cudaEventCreateWithFlags(&state_->event, cudaEventDisableTiming));
}
DeviceEvent::~DeviceEvent() { cudaEventDestroy(state_->event); }  // those who wait for it on the device still do

void DeviceEvent::record(const Exec& exec) { ATOLL_CUDA(cudaEventRecord(state_->event, exec.cuda_stream())); }

bool DeviceEvent::complete() const {
  const cudaError_t code = cudaEventQuery(state_->event);
  if (code == cudaErrorNotReady) return false;
  ATOLL_CUDA(code);
  return true;
}

struct DeviceStream::State {
  cudaStream_t stream = nullptr;
  std::unique_ptr<Exec> exec;  // of that stream
};

DeviceStream::DeviceStream() : state_(std::make_unique<State>()) {
  // Before the kernels of Exec where both could run: transfers take few multiprocessors, and others wait for them.
  int least = 0, greatest = 0;
  ATOLL_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  ATOLL_CUDA(cudaStreamCreateWithPriority(&state_->stream, cudaStreamNonBlocking, greatest));
  state_->exec = std::make_unique<Exec>(state_->stream);
}

DeviceStream::~DeviceStream() {
  state_->exec.reset();
  cudaStreamDestroy(state_->stream);
}

void DeviceStream::wait_for(const DeviceEvent& event) {
  ATOLL_CUDA(cudaStreamWaitEvent(state_->stream, event.state_->event, 0));
}
void DeviceStream::record(DeviceEvent& event) { ATOLL_CUDA(cudaEventRecord(event.state_->event, state_->stream)); }
void DeviceStream::launch(const std::function<void(const Exec&)>& kernels) { kernels(*state_->exec); }
void* DeviceStream::native() const { return state_->stream; }

std::string device_identity() {
  int device = 0;
  ATOLL_CUDA(cudaGetDevice(&device));
  std::array<char, 32> bus{};
  ATOLL_CUDA(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device));
  return bus.data();
}

}  // namespace atl
