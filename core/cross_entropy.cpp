/// SPDX-License-Identifier: Apache-2.0
#include "core/cross_entropy.hpp"

#include "core/launch.hpp"

namespace atl {

namespace {

template <class R, class G>
struct CrossEntropy {
  View1<const std::int32_t> targets;
  R scale;
  View2<R> logits;
  G* gradient;  ///< may be the logits; nullptr: none
  View1<R> losses;

  KOKKOS_FUNCTION void operator()(const TeamMember& member) const {
    const int row = member.league_rank(), columns = static_cast<int>(logits.extent(1));
    R* const z = logits.data() + static_cast<std::size_t>(row) * columns;
    G* const g = gradient == nullptr ? nullptr : gradient + static_cast<std::size_t>(row) * columns;
    const int target = targets(row);
    if (target < 0) {
      if (member.team_rank() == 0) losses(row) = 0;
      if (g != nullptr) team_for(member, columns, [&](const int v) { g[v] = G(R(0)); });
      return;
    }
    const R largest = team_max<R>(member, columns, [&](const int v) { return z[v]; });
    const R at_target = z[target];
    member.team_barrier();  // at_target is read before the row is overwritten
    R sum;
    if (g != nullptr) {  // exponentials are kept in place
      team_for(member, columns, [&](const int v) { z[v] = fast_exp(z[v] - largest); });
      member.team_barrier();
      sum = team_sum<R>(member, columns, [&](const int v) { return z[v]; });
      const R factor = scale / sum;
      member.team_barrier();
      team_for(member, columns, [&](const int v) { g[v] = G(factor * z[v] - (v == target ? scale : R(0))); });
    } else {
      sum = team_sum<R>(member, columns, [&](const int v) { return fast_exp(z[v] - largest); });
    }
    if (member.team_rank() == 0) losses(row) = math::log(sum) + (largest - at_target);
  }
};

}  // namespace

template <class T>
void cross_entropy(const Exec& exec, View1<const std::int32_t> targets, double scale, LossGradient gradient,
                   View2<T> logits, View1<T> losses) {
  ATOLL_REQUIRE(targets.extent(0) == logits.extent(0) && losses.extent(0) >= logits.extent(0));
  for_each_team("atoll::cross_entropy", exec, logits.extent(0),
                CrossEntropy<T, T>{targets, static_cast<T>(scale), logits,
                                   gradient == LossGradient::in_place ? logits.data() : nullptr, losses});
}

template <class T>
void cross_entropy(const Exec& exec, View1<const std::int32_t> targets, double scale, View2<Accumulator<T>> logits,
                   View2<T> gradient, View1<Accumulator<T>> losses) {
  using R = Accumulator<T>;
  ATOLL_REQUIRE(targets.extent(0) == logits.extent(0) && losses.extent(0) >= logits.extent(0));
  ATOLL_REQUIRE(gradient.extent(0) == logits.extent(0) && gradient.extent(1) == logits.extent(1));
  for_each_team("atoll::cross_entropy", exec, logits.extent(0),
                CrossEntropy<R, T>{targets, static_cast<R>(scale), logits, gradient.data(), losses});
}

#define ATOLL_INSTANTIATE(T) \
  template void cross_entropy<T>(const Exec&, View1<const std::int32_t>, double, LossGradient, View2<T>, View1<T>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
#undef ATOLL_INSTANTIATE
template void cross_entropy<bf16>(const Exec&, View1<const std::int32_t>, double, View2<float>, View2<bf16>,
                                  View1<float>);

}  // namespace atl
