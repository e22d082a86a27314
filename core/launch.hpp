/// How kernels are launched: a flat range, or a team for each row. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/array.hpp"
#include "core/math.hpp"
#include "core/progress.hpp"

#include <string>

namespace atl {

using FlatPolicy = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
using TeamPolicy = Kokkos::TeamPolicy<Exec>;
using TeamMember = TeamPolicy::member_type;
template <class T>
using Scratch = Kokkos::View<T*, Exec::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// f(i) for i in [0, n).
template <class F>
void for_each(const std::string& label, const Exec& exec, std::size_t n, const F& f) {
  if (n == 0) return;
  make_progress();
  Kokkos::parallel_for(label, FlatPolicy(exec, 0, static_cast<std::int64_t>(n)), f);
}

/// f(member) for a team of team_size(exec) threads for each of `teams` (league_rank), with scratch memory.
template <class F>
void for_each_team(const std::string& label, const Exec& exec, std::size_t teams, const F& f,
                   std::size_t scratch_bytes = 0) {
  if (teams == 0) return;
  ATOLL_REQUIRE(teams <= static_cast<std::size_t>(INT32_MAX));
  make_progress();
  TeamPolicy policy(exec, static_cast<int>(teams), team_size(exec));
  if (scratch_bytes > 0) policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch_bytes)));
  Kokkos::parallel_for(label, policy, f);
}

}  // namespace atl
