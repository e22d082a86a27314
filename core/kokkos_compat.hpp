/// All that differs between Kokkos 3.4 and 5.x. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>

#include <cmath>
#include <type_traits>

namespace atl {

/// The execution space of every kernel: one per build.
using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

/// True where kernels run on host threads.
inline constexpr bool kernels_on_host =
    Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, Memory>::accessible &&
    std::is_same_v<Memory, Kokkos::HostSpace>;

/// True where a team is one thread whose loops vectorise; elsewhere its members share the work as on a device. With
/// ATOLL_DEVICE_KERNELS the second also on host threads, so that it can be tested without a device.
#ifdef ATOLL_DEVICE_KERNELS
inline constexpr bool vector_kernels = false;
#else
inline constexpr bool vector_kernels = kernels_on_host;
#endif

/// Members of a team. Several host threads may be one where there are as many.
inline int team_size(const Exec& exec) {
  if (vector_kernels) return 1;
  return kernels_on_host ? (exec.concurrency() < 2 ? 1 : 2) : 128;
}

// Mathematical functions for device code: Kokkos 3.4 has them in Kokkos::Experimental, 3.7 and later in Kokkos. The
// overloads of <cmath> are usable in device code of CUDA and HIP as well, and are the same in all versions.
namespace math {
using std::cos;
using std::exp;
using std::fabs;
using std::isfinite;
using std::log;
using std::pow;
using std::sin;
using std::sqrt;
}  // namespace math

inline int kokkos_version() { return KOKKOS_VERSION; }

/// Devices this process sees; 0 in a host build, and where there is no driver (Kokkos' own functions abort then). May
/// be called before Kokkos is initialised.
inline int number_of_devices() {
  if constexpr (kernels_on_host) return 0;
  int count = 0;
#if defined(KOKKOS_ENABLE_CUDA)
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
#elif defined(KOKKOS_ENABLE_HIP)
  if (hipGetDeviceCount(&count) != hipSuccess) count = 0;
#elif KOKKOS_VERSION >= 40300
  count = Kokkos::num_devices();
#endif
  return count;
}

/// Starts Kokkos without its warnings. `threads` of a threaded host backend; `device` of an accelerator, -1 for none.
inline void initialize_kokkos(int threads, int device) {
#if KOKKOS_VERSION >= 30700
  Kokkos::InitializationSettings settings;
  settings.set_num_threads(threads).set_disable_warnings(true);
  if (device >= 0) settings.set_device_id(device);
#else
  Kokkos::InitArguments settings;
  settings.num_threads = threads;
  settings.device_id = device;
  settings.disable_warnings = true;
#endif
  Kokkos::initialize(settings);
}

}  // namespace atl
