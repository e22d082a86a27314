/// Averaging of the groups' models every H optimizer steps. SPDX-License-Identifier: Apache-2.0
///
/// arXiv:2609.20359; federated averaging after arXiv:1602.05629, with the groups' target tokens as weights, and an
/// outer optimizer after it. Every rank owns a slice of its shard (one of R, where the group has R replicas), averages
/// it with the ranks that own the same elements in the other groups, takes the outer step on it, and the replicas then
/// gather the slices: each rank sends P / (S R) parameters across groups. Groups may differ in shape
/// (parallel/federation_slices.hpp).
#pragma once

#include "parallel/communicator.hpp"
#include "parallel/federation_links.hpp"
#include "parallel/federation_options.hpp"
#include "parallel/outer_optimizer.hpp"
#include "parallel/sharded_parameters.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace atl {

template <class T>
class TemporaryAverage;

/// A value of all groups: the mean weighted by tokens (0 without any), and the tokens of all groups.
struct WorldMean {
  double mean = 0;
  double tokens = 0;
};

/// What one aggregation did; the same on all ranks.
struct RoundReport {
  std::int64_t round = 0;      ///< 1 for the first
  std::vector<double> tokens;  ///< target tokens of each group in the round
  std::vector<double> drift;   ///< L2 distance of each group's model from the average
  std::uint64_t bytes = 0;     ///< sent by this rank
  double seconds = 0;
};

/// What the outer optimizer keeps of a unit on this rank: saved with a checkpoint, and set again with
/// Federation::restore. The ranges of all ranks of a group together are the unit, each element once; they depend on the
/// group's shape, the values do not: all groups hold the same.
template <class T>
struct OuterState {
  Range owned;  ///< flat unpadded range of the unit whose slice this rank averages and owns; may be empty
  // Each has owned.size() elements, or none where the outer optimizer does not need it (fedavg: none of them).
  View1<Accumulator<T>> anchor;            ///< x_0: the model at the start of the round
  View1<Accumulator<T>> moment1, moment2;  ///< of the outer optimizer
};

template <class T>
class Federation {
 public:
  using R = Accumulator<T>;

  /// `parameters` hold the model that the first round starts from. `replica` are the collectives on the communicator of
  /// that name. Everything must outlive this. Collective over the world.
  Federation(const FederationOptions& options, std::int64_t steps, const ProcessGrid& grid,
             const Communicators& communicators, FederationLinks& links, Collectives& replica,
             const ShardedParameters<T>& parameters);

  bool several_groups() const { return grid_.number_of_groups() > 1; }
  /// True after optimizer step `step` (1-based) if a round ends there: every H steps, and after the last one.
  bool due(std::int64_t step) const;
  std::int64_t round() const { return round_; }  ///< rounds completed

  /// Target tokens that the group trained on in a step.
  void count_tokens(std::int64_t tokens) { tokens_ += static_cast<double>(tokens); }
  double tokens_in_round() const { return tokens_; }  ///< those of this group in the round under way

  /// One a unit, in their order.
  std::vector<OuterState<T>>& outer_state() { return outer_; }
  /// Target tokens of each group in the last complete round; empty before the first.
  const std::vector<double>& tokens_last_round() const { return tokens_last_round_; }
  /// Goes on after `round` completed rounds, in one in which this group has had `tokens_in_round` target tokens. The
  /// outer state's views, and the parameters, are the caller's to fill.
  void restore(std::int64_t round, double tokens_in_round, std::vector<double> tokens_last_round = {}) {
    round_ = round;
    tokens_ = tokens_in_round;
    tokens_last_round_ = std::move(tokens_last_round);
  }

  /// The sum over groups of weight * values of this rank's slice (OuterState::owned) of unit `index`; `values` is a
  /// shard of that unit, such as its master parameters or a moment. Valid until the next call of this object.
  /// Collective over the world.
  View1<const R> mean_of_own_slice(const Exec& exec, std::size_t index, const View1<R>& values, double weight) {
    average(exec, index, values, weight);
    return part(slice_, 0, outer_[index].owned.size());
  }

  /// Replaces every group's master parameters by the outer step from their weighted mean, and starts the next round.
  /// Moments of the groups' optimizers are averaged with InnerState::average, and left alone otherwise: for
  /// InnerState::reset call Optimizer::reset. Collective over the world. Throws CollectiveError if a group's model is
  /// not finite. One group alone takes the outer step too; with fedavg there is nothing to do then, and no bit changes.
  RoundReport aggregate(const Exec& exec, ShardedParameters<T>& parameters);

  /// Values of every step since the last aggregation, exchanged with it, so that groups do not talk between rounds.
  /// values[i] belongs to a step in which this group had weights[i] tokens. Collective over the world.
  std::vector<WorldMean> mean_over_groups(const std::vector<double>& values, const std::vector<double>& weights) const;

 private:
  friend class TemporaryAverage<T>;
  std::vector<double> gather_tokens(const Exec& exec, const ShardedParameters<T>& parameters) const;
  std::vector<double> weights(const std::vector<double>& tokens) const;
  /// The mean of the groups' `values` (a shard of unit `index`), of this rank's slice, to the front of slice_.
  void average(const Exec& exec, std::size_t index, const View1<R>& values, double weight);
  void publish(const Exec& exec, const View1<R>& values);
  View1<R> own_slice(const View1<R>& values) const;

  FederationOptions options_;
  OuterOptions outer_options_;
  std::int64_t steps_, round_ = 0;
  const ProcessGrid& grid_;
  const Communicators& communicators_;
  FederationLinks& links_;
  Collectives& replica_;
  double tokens_ = 0;
  std::vector<double> tokens_last_round_;
  std::vector<OuterState<T>> outer_;
  std::vector<std::vector<FederationLinks::Piece>> pieces_;  ///< of this rank's slice of each unit
  View1<R> slice_;                                           ///< workspace: the largest slice
  View1<R> slices_;             ///< workspace: the slices of all replicas, where there are several
  View1<double> partial_sums_;  ///< workspace of norms
};

/// While it lives the parameters are the weighted mean of the groups' models, for an evaluation inside a round; the
/// destructor puts every group's own parameters back, bit for bit. Collective over the world.
template <class T>
class TemporaryAverage {
 public:
  TemporaryAverage(const Exec& exec, Federation<T>& federation, ShardedParameters<T>& parameters);
  ~TemporaryAverage();
  TemporaryAverage(const TemporaryAverage&) = delete;
  TemporaryAverage& operator=(const TemporaryAverage&) = delete;

 private:
  ShardedParameters<T>& parameters_;
  std::vector<View1<Accumulator<T>>> saved_;
};

}  // namespace atl
