/// The model's parameters as this rank holds them, and how full units come and go. SPDX-License-Identifier: Apache-2.0
///
/// A rank keeps one shard of every unit: fp32 (fp64) master weights, gradient, and moments; in bf16 also the weights
/// that the masters round to, which the optimizer writes and gathers send. A full unit exists only between gather and
/// release, its full gradient between gradient and the end of its reduction; both live in buffers that are reused.
///
/// Overlap: told which units come next (expect_gathers), gather() starts the gathers of the next `prefetch` ones, and
/// reduce() only starts the sum of a gradient; both go on while kernels run (core/progress). What is started, and in
/// which order, depends on the calls alone, never on timing, so it is the same on all ranks; and so are the results'
/// bits, with overlap or without.
#pragma once

#include "core/array.hpp"
#include "parallel/collectives.hpp"
#include "parallel/shard_layout.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace atl {

/// One rank's shard of a unit. All views have layout.shard_size() elements; what lies beyond layout.size() stays zero.
template <class T>
struct ShardedUnit {
  using R = Accumulator<T>;
  ShardLayout layout;
  Range owned;                   ///< unpadded flat range of the unit that this rank owns
  View1<R> master;               ///< parameters
  View1<T> weights;              ///< what gathers send: the masters themselves, or the bf16 that they round to
  View1<R> gradient;             ///< mean gradient of the group once reduced
  View1<R> moment1, moment2;     ///< of the optimizer; empty where it has none
  std::int64_t reductions = 0;   ///< into `gradient` in this step; the first one overwrites it
  bool weights_current = false;  ///< false: the next gather rounds the masters first. For who writes `weights` to set.

  /// The part of the unit's `index`-th tensor that this rank owns, as a flat range of the unit.
  Range owned_of(std::size_t index) const { return intersect(owned, layout.tensor(index)); }
  /// A flat range of the unit, inside `owned`, of one of the views above.
  View1<R> local(const View1<R>& view, Range range) const {
    return part(view, range.begin - owned.begin, range.size());
  }
};

/// What stays gathered after the forward pass: nothing (ZeRO-3), or every unit until backward is through (ZeRO-2).
enum class AfterForward { reshard, keep };

/// Full-size buffers for the units that name `buffer`: as many of them as there are among any `window` neighbours of
/// `units`, which are gathered in this order or in the opposite one.
std::size_t buffers_needed(const std::vector<UnitSpec>& units, int buffer, int window);
/// Neighbours whose full gradients exist at once: one that is computed and, with overlap, one that is reduced over the
/// `shards` ranks of a replica. None where all are the unit's own, as that is whole and nothing is added to it.
inline int gradient_window(int prefetch, int shards, std::int64_t micro_batches) {
  if (shards == 1) return micro_batches > 1 ? 1 : 0;
  return prefetch > 0 ? 2 : 1;
}

/// T: type of gathered weights and activations. All functions named collective run on every rank of the replica, in the
/// same order.
template <class T>
class ShardedParameters {
 public:
  using R = Accumulator<T>;

  /// `shard` joins the S ranks of the replica, `replica` the R ranks with the same shard; both must outlive this.
  /// `prefetch`: units gathered ahead of the one that computes. With 0 nothing overlaps: every gather and reduction is
  /// waited for where it is asked for. `wire`: how gradients travel.
  ShardedParameters(const std::vector<UnitSpec>& units, Collectives& shard, Collectives& replica, AfterForward after,
                    int prefetch = 1, Wire wire = Wire::exact);

  std::size_t number_of_units() const { return units_.size(); }
  /// Whoever may write the masters gets the unit here; so the next gather takes what they round to then.
  ShardedUnit<T>& unit(std::size_t index) {
    units_[index].weights_current = false;
    return units_[index];
  }
  const ShardedUnit<T>& unit(std::size_t index) const { return units_[index]; }
  std::int64_t parameter_count() const;  ///< of the whole model

  /// The units that the next calls of gather ask for, in their order; replaces what was expected before, but for
  /// gathers under way, with which the order must begin. A call of gather for another unit than the next expected one
  /// throws.
  void expect_gathers(const std::vector<std::size_t>& order);
  /// The full unit (padded_size elements), gathered from the replica. Collective. Valid until release. prefetch + 1
  /// neighbours may be full at a time.
  View1<const T> gather(const Exec& exec, std::size_t index);
  /// The full unit in master precision, in memory of its own: for saving. Collective.
  View1<const R> gather_master(const Exec& exec, std::size_t index);
  /// After the forward pass of a unit: frees it, unless it is to be kept for backward.
  void release_after_forward(std::size_t index);
  void release(std::size_t index);

  /// A step's gradients begin: the first of `reductions` reductions of every unit overwrites its gradient, the others
  /// add, and after the last one it is summed over the replicas of the group.
  void begin_gradients(std::int64_t reductions);
  /// Buffer for the full gradient of a unit; contents undefined but for zeros in the padding. Valid until reduce. The
  /// first one of a step is the unit's own gradient where it is whole on this rank: there is nothing to add it to.
  View1<R> gradient(const Exec& exec, std::size_t index);
  /// Starts the sum of the full gradient over the replica into the shards' gradients. Collective.
  void reduce(const Exec& exec, std::size_t index);
  /// Waits until all gradients are summed, over the replica and over the replicas. Collective over the group.
  void finish_gradients(const Exec& exec);
  /// Allocates zero moments (1 or 2 of them).
  void allocate_moments(int number);

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Buffer {
    View1<T> full;
    std::size_t unit = none;  ///< what it holds, or will hold when `arriving` is complete
    Ticket arriving;
  };
  struct GradientBuffer {
    View1<R> full;            ///< allocated when it is first used
    std::size_t unit = none;  ///< whose gradient is computed or reduced there
  };

  void make_current(const Exec& exec, ShardedUnit<T>& unit);
  std::vector<Buffer>& buffers_of(std::size_t index);
  Buffer* find(std::size_t index);
  bool start_gather(const Exec& exec, std::size_t index);  ///< false: no buffer is free
  void prefetch(const Exec& exec);
  void finish_reduction(const Exec& exec);
  /// Whether the gradient under way needs no reduction into the unit's.
  bool whole_and_first(const ShardedUnit<T>& unit) const { return shard_.size() == 1 && unit.reductions == 0; }

  Collectives& shard_;
  Collectives& replica_;
  AfterForward after_;
  std::size_t prefetch_;
  Wire wire_;
  std::vector<ShardedUnit<T>> units_;
  std::vector<std::vector<Buffer>> buffers_;  ///< by UnitSpec::buffer; with AfterForward::keep by unit, one for each
  std::deque<std::size_t> expected_;
  std::vector<std::vector<GradientBuffer>> gradient_buffers_;  ///< by UnitSpec::buffer
  std::vector<std::size_t> gradient_size_;                     ///< elements of each of them
  std::int64_t reductions_ = 1;
  // One reduction of each kind is under way at a time: the next one waits for it, so there is one workspace of each.
  Ticket reduction_, replica_sum_;
  std::size_t reducing_ = none;  ///< unit of reduction_
};

}  // namespace atl
