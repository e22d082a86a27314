/// Work on a device beside that of Exec. SPDX-License-Identifier: Apache-2.0
///
/// Behind it is one source a kind of device (device_stream_cuda.cpp). Nothing here blocks the host.
#pragma once

#include "core/array.hpp"

#include <functional>
#include <memory>
#include <string>

namespace atl {

/// A point in the work of a stream.
class DeviceEvent {
 public:
  DeviceEvent();
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  void record(const Exec& exec);  ///< the end of what was launched on exec so far
  bool complete() const;          ///< that work is done. Throws Error where the device has failed

 private:
  friend class DeviceStream;
  struct State;
  std::unique_ptr<State> state_;
};

/// A queue of work of its own, which runs in order. Must end before Kokkos::finalize.
class DeviceStream {
 public:
  DeviceStream();
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  void wait_for(const DeviceEvent& event);  ///< what is launched from now on starts after that point
  void record(DeviceEvent& event);          ///< the end of what was launched on this stream so far
  /// `kernels` launches kernels on the execution space that it is given.
  void launch(const std::function<void(const Exec&)>& kernels);
  void* native() const;  ///< the handle that a vendor's libraries take

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl
