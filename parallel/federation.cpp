/// SPDX-License-Identifier: Apache-2.0
#include "parallel/federation.hpp"

#include "core/launch.hpp"
#include "core/norm.hpp"
#include "core/timer.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace atl {

namespace {

/// Elements [begin, end) of a shard of this size that one of R replicas averages; its padding is somebody's too.
Range slice_of_shard(std::size_t shard, const Collectives& replica) {
  return equal_part(shard, static_cast<std::size_t>(replica.size()), static_cast<std::size_t>(replica.rank()));
}

// Not in the member that uses it: nvcc wants no kernel in a private member.
template <class R>
void weigh(const Exec& exec, R factor, View1<const R> x, View1<R> y) {
  for_each(
      "atoll::weigh_parameters", exec, x.extent(0), KOKKOS_LAMBDA(const std::int64_t i) { y(i) = factor * x(i); });
}

}  // namespace

template <class T>
Federation<T>::Federation(const FederationOptions& options, std::int64_t steps, const ProcessGrid& grid,
                          const Communicators& communicators, FederationLinks& links, Collectives& replica,
                          const ShardedParameters<T>& parameters)
    : options_(options),
      outer_options_(outer_options(options)),
      steps_(steps),
      grid_(grid),
      communicators_(communicators),
      links_(links),
      replica_(replica),
      partial_sums_(allocate<double>("atoll::partial_sums", sum_workspace)) {
  std::vector<std::size_t> sizes;
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    const auto& unit = parameters.unit(u);
    const std::string name = unit.layout.unit().name;
    sizes.push_back(unit.layout.size());
    OuterState<T> state{slice_of(sizes.back(), grid.shape(), grid.rank_in_group()), View1<R>(), View1<R>(), View1<R>()};
    const std::size_t n = state.owned.size();
    if (outer_options_.has_anchor()) {
      state.anchor = allocate<R>("atoll::outer_anchor " + name, n);
      Kokkos::deep_copy(state.anchor, part(own_slice(unit.master), 0, n));
    }
    if (outer_options_.has_moment1()) state.moment1 = allocate<R>("atoll::outer_moment1 " + name, n);
    if (outer_options_.has_moment2()) {
      state.moment2 = allocate<R>("atoll::outer_moment2 " + name, n);
      fill(Exec(), state.moment2, static_cast<R>(outer_options_.tau * outer_options_.tau));
      Exec().fence();
    }
    outer_.push_back(state);
  }
  pieces_ = links.pieces(sizes);
}

template <class T>
bool Federation<T>::due(std::int64_t step) const {
  return step % options_.every == 0 || step == steps_;
}

template <class T>
std::vector<double> Federation<T>::gather_tokens(const Exec& exec, const ShardedParameters<T>& parameters) const {
  double squares = 0;
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u)
    squares += sum_of_squares(exec, as_const(parameters.unit(u).master), partial_sums_);
  const double broken = communicators_.group.sum(std::isfinite(squares) ? 0.0 : 1.0);
  const auto all = communicators_.gather_over_groups({tokens_, broken});
  std::vector<double> tokens;
  for (std::size_t g = 0; g < all.size() / 2; ++g) {
    if (all[2 * g + 1] > 0)
      throw CollectiveError(
          fmt::format("the model of federation group {} is not finite at the end of round {} ({:.0f} of its {} "
                      "ranks hold NaN or infinity): lower optimizer.lr, or set optimizer.clip_norm",
                      g, round_ + 1, all[2 * g + 1], grid_.groups()[g].ranks()));
    tokens.push_back(all[2 * g]);
  }
  return tokens;
}

template <class T>
std::vector<double> Federation<T>::weights(const std::vector<double>& tokens) const {
  double total = 0;
  for (const double n : tokens) total += n;
  const bool uniform = options_.weights == FederationOptions::Weights::uniform || total == 0;
  std::vector<double> result;
  for (const double n : tokens) result.push_back(uniform ? 1.0 / static_cast<double>(tokens.size()) : n / total);
  return result;
}

template <class T>
View1<Accumulator<T>> Federation<T>::own_slice(const View1<R>& values) const {
  const Range mine = slice_of_shard(values.extent(0), replica_);
  return part(values, mine.begin, mine.size());
}

template <class T>
void Federation<T>::average(const Exec& exec, std::size_t index, const View1<R>& values, double weight) {
  const auto replicas = static_cast<std::size_t>(replica_.size());
  const std::size_t length = (values.extent(0) + replicas - 1) / replicas;  // of every slice, the last ones padded
  if (slice_.extent(0) < length) slice_ = allocate<R>("atoll::federation_slice", length);
  const View1<R> own = own_slice(values), mean = part(slice_, 0, own.extent(0));
  weigh(exec, static_cast<R>(weight), as_const(own), mean);
  std::vector<Ticket> tickets;
  for (const auto& piece : pieces_[index])
    tickets.push_back(
        piece.owners->all_reduce(mean.data() + piece.range.begin, piece.range.size(), element_of<R>(), exec));
  // All ranks wait in the order of the unit's elements: of the pieces that are not complete, the first one has all its
  // owners' attention.
  for (Ticket& ticket : tickets) ticket.wait();
}

/// The front of slice_ becomes this rank's slice of `values`, and all replicas get each other's.
template <class T>
void Federation<T>::publish(const Exec& exec, const View1<R>& values) {
  const View1<R> own = own_slice(values);
  Kokkos::deep_copy(exec, own, part(slice_, 0, own.extent(0)));
  const auto replicas = static_cast<std::size_t>(replica_.size());
  if (replicas == 1) return;
  const std::size_t shard = values.extent(0), length = (shard + replicas - 1) / replicas;
  if (slices_.extent(0) < length * replicas) slices_ = allocate<R>("atoll::federation_slices", length * replicas);
  replica_.all_gather(slice_.data(), slices_.data(), length, element_of<R>(), exec).wait();
  Kokkos::deep_copy(exec, values, part(slices_, 0, shard));
}

template <class T>
RoundReport Federation<T>::aggregate(const Exec& exec, ShardedParameters<T>& parameters) {
  const Stopwatch watch;
  const std::uint64_t sent = links_.stats().bytes_sent;
  RoundReport report;
  report.tokens = gather_tokens(exec, parameters);
  report.round = ++round_;
  tokens_ = 0;
  tokens_last_round_ = report.tokens;
  report.drift.assign(report.tokens.size(), 0.0);
  if (several_groups() || outer_options_.has_anchor()) {
    const double weight = weights(report.tokens)[static_cast<std::size_t>(grid_.group())];
    double drift = 0;
    for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
      auto& unit = parameters.unit(u);
      average(exec, u, unit.master, weight);
      const View1<R> own = own_slice(unit.master), mean = part(slice_, 0, own.extent(0));
      drift += sum_of_squared_differences(exec, as_const(own), as_const(mean), partial_sums_);
      const OuterState<T>& outer = outer_[u];
      outer_step(exec, outer_options_, part(slice_, 0, outer.owned.size()), outer.anchor, outer.moment1, outer.moment2);
      publish(exec, unit.master);
      if (options_.inner_state != FederationOptions::InnerState::average) continue;
      const std::array<View1<R>, 2> all_moments{unit.moment1, unit.moment2};  // nvcc takes no braced list in the loop
      for (const View1<R>& moments : all_moments) {
        if (moments.extent(0) == 0) continue;
        average(exec, u, moments, weight);
        publish(exec, moments);
      }
    }
    report.drift = communicators_.gather_over_groups({std::sqrt(communicators_.group.sum(drift))});
  }
  report.bytes = links_.stats().bytes_sent - sent;
  report.seconds = watch.seconds();
  return report;
}

template <class T>
std::vector<WorldMean> Federation<T>::mean_over_groups(const std::vector<double>& values,
                                                       const std::vector<double>& weights) const {
  ATOLL_REQUIRE(values.size() == weights.size());
  std::vector<double> mine(values);
  mine.insert(mine.end(), weights.begin(), weights.end());
  const auto all = communicators_.gather_over_groups(mine);
  const std::size_t steps = values.size(), groups = static_cast<std::size_t>(grid_.number_of_groups());
  std::vector<WorldMean> means(steps);
  for (std::size_t s = 0; s < steps; ++s) {
    double sum = 0;
    for (std::size_t g = 0; g < groups; ++g) {
      const double weight = all[2 * steps * g + steps + s];
      if (weight > 0) sum += weight * all[2 * steps * g + s];
      means[s].tokens += weight;
    }
    if (means[s].tokens > 0) means[s].mean = sum / means[s].tokens;
  }
  return means;
}

template <class T>
TemporaryAverage<T>::TemporaryAverage(const Exec& exec, Federation<T>& federation, ShardedParameters<T>& parameters)
    : parameters_(parameters) {
  if (!federation.several_groups()) return;
  const auto tokens = federation.gather_tokens(exec, parameters);
  const double weight = federation.weights(tokens)[static_cast<std::size_t>(federation.grid_.group())];
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    auto& unit = parameters.unit(u);
    saved_.push_back(allocate<Accumulator<T>>("atoll::saved_parameters", unit.layout.shard_size()));
    Kokkos::deep_copy(exec, saved_.back(), unit.master);
    federation.average(exec, u, unit.master, weight);
    federation.publish(exec, unit.master);
  }
}

template <class T>
TemporaryAverage<T>::~TemporaryAverage() {
  for (std::size_t u = 0; u < saved_.size(); ++u) Kokkos::deep_copy(parameters_.unit(u).master, saved_[u]);
}

template class Federation<float>;
template class Federation<double>;
template class Federation<bf16>;
template class TemporaryAverage<float>;
template class TemporaryAverage<double>;
template class TemporaryAverage<bf16>;

}  // namespace atl
