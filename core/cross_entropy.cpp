/// SPDX-License-Identifier: Apache-2.0
#include "core/cross_entropy.hpp"

#include "core/launch.hpp"

namespace atl {

namespace {

template <class T>
struct CrossEntropy {
  using R = Accumulator<T>;
  View1<const std::int32_t> targets;
  R scale;
  bool with_gradient;
  View2<T> logits;
  View1<R> losses;

  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int row = member.league_rank(), columns = static_cast<int>(logits.extent(1));
    T* const z = logits.data() + static_cast<std::size_t>(row) * columns;
    const int target = targets(row);
    if (target < 0) {
      if (member.team_rank() == 0) losses(row) = 0;
      if (with_gradient) team_for(member, columns, [&](const int v) { z[v] = T(0); });
      return;
    }
    const R largest = team_max<R>(member, columns, [&](const int v) { return R(z[v]); });
    const R at_target = z[target];
    member.team_barrier();  // at_target is read before the row is overwritten
    R sum;
    // Exponentials are kept in place for the gradient, unless T would round them.
    constexpr bool keep = std::is_same_v<T, R>;
    if (keep && with_gradient) {
      team_for(member, columns, [&](const int v) { z[v] = T(fast_exp(R(z[v]) - largest)); });
      member.team_barrier();
      sum = team_sum<R>(member, columns, [&](const int v) { return R(z[v]); });
    } else {
      sum = team_sum<R>(member, columns, [&](const int v) { return fast_exp(R(z[v]) - largest); });
    }
    if (with_gradient) {
      const R factor = scale / sum;
      member.team_barrier();
      team_for(member, columns, [&](const int v) {
        const R exponential = keep ? R(z[v]) : fast_exp(R(z[v]) - largest);
        z[v] = T(factor * exponential - (v == target ? scale : R(0)));
      });
    }
    if (member.team_rank() == 0) losses(row) = math::log(sum) + (largest - at_target);
  }
};

}  // namespace

template <class T>
void cross_entropy(const Exec& exec, View1<const std::int32_t> targets, double scale, LossGradient gradient,
                   View2<T> logits, View1<Accumulator<T>> losses) {
  ATOLL_REQUIRE(targets.extent(0) == logits.extent(0) && losses.extent(0) >= logits.extent(0));
  for_each_team(
      "atoll::cross_entropy", exec, logits.extent(0),
      CrossEntropy<T>{targets, static_cast<Accumulator<T>>(scale), gradient == LossGradient::in_place, logits, losses});
}

#define ATOLL_INSTANTIATE(T)                                                                             \
  template void cross_entropy<T>(const Exec&, View1<const std::int32_t>, double, LossGradient, View2<T>, \
                                 View1<Accumulator<T>>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
