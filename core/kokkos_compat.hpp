/// All that differs between Kokkos 3.4 and 5.x. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>

#include <cmath>
#include <type_traits>

namespace atoll {

/// The execution space of every kernel: one per build.
using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

/// True where kernels run on host threads, whose loops vectorise and whose teams have one member.
inline constexpr bool kernels_on_host =
    Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, Memory>::accessible &&
    std::is_same_v<Memory, Kokkos::HostSpace>;

/// Members of a team: one on the host, where a team's loops are vector loops of one thread.
inline constexpr int team_size = kernels_on_host ? 1 : 128;

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

}  // namespace atoll
