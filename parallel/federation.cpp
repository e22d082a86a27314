/// SPDX-License-Identifier: Apache-2.0
#include "parallel/federation.hpp"

#include "core/launch.hpp"
#include "core/norm.hpp"
#include "core/timer.hpp"

#include <fmt/format.h>

#include <cmath>

namespace atl {

template <class T>
Federation<T>::Federation(const FederationOptions& options, std::int64_t steps, const ProcessGrid& grid,
                          const Communicators& communicators, Collectives& federation, Collectives& replica,
                          const ShardedParameters<T>& parameters)
    : options_(options),
      steps_(steps),
      grid_(grid),
      communicators_(communicators),
      federation_(federation),
      replica_(replica) {
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    const Range shard = parameters.unit(u).owned;
    const Range slice = equal_part(parameters.unit(u).layout.shard_size(), static_cast<std::size_t>(replica.size()),
                                   static_cast<std::size_t>(replica.rank()));
    outer_.push_back(
        {intersect(shard, {shard.begin + slice.begin, shard.begin + slice.end}), View1<R>(), View1<R>(), View1<R>()});
  }
}

template <class T>
bool Federation<T>::due(std::int64_t step) const {
  return step % options_.every == 0 || step == steps_;
}

template <class T>
std::vector<double> Federation<T>::gather_tokens(const Exec& exec, const ShardedParameters<T>& parameters) const {
  double squares = 0;
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u)
    squares += sum_of_squares(exec, as_const(parameters.unit(u).master));
  const double broken = communicators_.group.sum(std::isfinite(squares) ? 0.0 : 1.0);
  const auto all = communicators_.federation.all_gather({tokens_, broken});
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
double Federation<T>::average(const Exec& exec, ShardedUnit<T>& unit, double weight) {
  const std::size_t shard = unit.layout.shard_size(), replicas = static_cast<std::size_t>(replica_.size());
  const Range mine = equal_part(shard, replicas, static_cast<std::size_t>(replica_.rank()));
  const std::size_t length = (shard + replicas - 1) / replicas;  // of every slice, the last ones padded
  if (slice_.extent(0) < length) slice_ = allocate<R>("atoll::federation_slice", length);
  const View1<R> own = part(unit.master, mine.begin, mine.size());
  const View1<R> mean = part(slice_, 0, mine.size());
  const R factor = static_cast<R>(weight);
  for_each(
      "atoll::weigh_parameters", exec, mine.size(), KOKKOS_LAMBDA(const std::int64_t i) { mean(i) = factor * own(i); });
  federation_.all_reduce(mean.data(), mine.size(), element_of<R>(), exec).wait();
  const double drift = sum_of_squared_differences(exec, as_const(own), as_const(mean));
  Kokkos::deep_copy(exec, own, mean);
  if (replicas > 1) {
    if (slices_.extent(0) < length * replicas) slices_ = allocate<R>("atoll::federation_slices", length * replicas);
    replica_.all_gather(slice_.data(), slices_.data(), length, element_of<R>(), exec).wait();
    Kokkos::deep_copy(exec, unit.master, part(slices_, 0, shard));
  }
  return drift;
}

template <class T>
RoundReport Federation<T>::aggregate(const Exec& exec, ShardedParameters<T>& parameters) {
  const Stopwatch watch;
  const std::uint64_t sent = federation_.stats().bytes_sent;
  RoundReport report;
  report.tokens = gather_tokens(exec, parameters);
  report.round = ++round_;
  tokens_ = 0;
  report.drift.assign(report.tokens.size(), 0.0);
  if (active()) {
    const double weight = weights(report.tokens)[static_cast<std::size_t>(grid_.group())];
    double drift = 0;
    for (std::size_t u = 0; u < parameters.number_of_units(); ++u) drift += average(exec, parameters.unit(u), weight);
    report.drift = communicators_.federation.all_gather({std::sqrt(communicators_.group.sum(drift))});
  }
  report.bytes = federation_.stats().bytes_sent - sent;
  report.seconds = watch.seconds();
  return report;
}

template <class T>
std::vector<WorldMean> Federation<T>::mean_over_groups(const std::vector<double>& values,
                                                       const std::vector<double>& weights) const {
  ATOLL_REQUIRE(values.size() == weights.size());
  std::vector<double> mine(values);
  mine.insert(mine.end(), weights.begin(), weights.end());
  const auto all = communicators_.federation.all_gather(mine);
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
  if (!federation.active()) return;
  const auto tokens = federation.gather_tokens(exec, parameters);
  const double weight = federation.weights(tokens)[static_cast<std::size_t>(federation.grid_.group())];
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    auto& unit = parameters.unit(u);
    saved_.push_back(allocate<Accumulator<T>>("atoll::saved_parameters", unit.layout.shard_size()));
    Kokkos::deep_copy(exec, saved_.back(), unit.master);
    federation.average(exec, unit, weight);
  }
}

template <class T>
TemporaryAverage<T>::~TemporaryAverage() {
  for (std::size_t u = 0; u < saved_.size(); ++u) Kokkos::deep_copy(parameters_.unit(u).master, saved_[u]);
}

template class Federation<float>;
template class Federation<double>;
template class TemporaryAverage<float>;
template class TemporaryAverage<double>;

}  // namespace atl
