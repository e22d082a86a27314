/// The model's parameters as this rank holds them, and how full units come and go. SPDX-License-Identifier: Apache-2.0
///
/// A rank keeps one shard of every unit: fp32 (fp64) master weights, gradient, and moments. A full unit exists only
/// between gather and release, its full gradient between gradient and reduce; both live in buffers that are reused.
#pragma once

#include "core/array.hpp"
#include "parallel/collectives.hpp"
#include "parallel/shard_layout.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace atl {

/// One rank's shard of a unit. All views have layout.shard_size() elements; what lies beyond layout.size() stays zero.
template <class T>
struct ShardedUnit {
  using R = Accumulator<T>;
  ShardLayout layout;
  Range owned;                ///< unpadded flat range of the unit that this rank owns
  View1<R> master;            ///< parameters
  View1<R> gradient;          ///< mean gradient of the group once reduced
  View1<R> moment1, moment2;  ///< of the optimizer; empty where it has none
  bool has_gradient = false;  ///< false: the next reduction overwrites `gradient`

  /// The part of the unit's `index`-th tensor that this rank owns, as a flat range of the unit.
  Range owned_of(std::size_t index) const { return intersect(owned, layout.tensor(index)); }
  /// A flat range of the unit, inside `owned`, of one of the views above.
  View1<R> local(const View1<R>& view, Range range) const {
    return part(view, range.begin - owned.begin, range.size());
  }
};

/// What stays gathered after the forward pass: nothing (ZeRO-3), or every unit until backward is through (ZeRO-2).
enum class AfterForward { reshard, keep };

/// T: type of gathered weights and activations. All functions named collective run on every rank of the replica, in the
/// same order.
template <class T>
class ShardedParameters {
 public:
  using R = Accumulator<T>;

  /// `shard` joins the S ranks of the replica, `replica` the R ranks with the same shard; both must outlive this.
  ShardedParameters(const std::vector<UnitSpec>& units, Collectives& shard, Collectives& replica, AfterForward after);

  std::size_t number_of_units() const { return units_.size(); }
  ShardedUnit<T>& unit(std::size_t index) { return units_[index]; }
  const ShardedUnit<T>& unit(std::size_t index) const { return units_[index]; }
  std::int64_t parameter_count() const;  ///< of the whole model

  /// The full unit (padded_size elements), gathered from the replica. Collective. Valid until release.
  View1<const T> gather(const Exec& exec, std::size_t index);
  /// The full unit in master precision, in memory of its own: for saving. Collective.
  View1<const R> gather_master(const Exec& exec, std::size_t index);
  /// After the forward pass of a unit: frees it, unless it is to be kept for backward.
  void release_after_forward(std::size_t index);
  void release(std::size_t index);

  /// Buffer for the full gradient of a unit; contents undefined but for zeros in the padding. Valid until reduce.
  View1<R> gradient(const Exec& exec, std::size_t index);
  /// Sums the full gradient over the replica into the shards' gradients. Collective.
  void reduce(const Exec& exec, std::size_t index);
  /// Sums the shards' gradients over the replicas of the group. Collective over the group.
  void reduce_over_replicas(const Exec& exec);
  /// The next reductions overwrite the gradients.
  void clear_gradients();
  /// Allocates zero moments (1 or 2 of them).
  void allocate_moments(int number);

 private:
  struct Buffer {
    View1<T> full;
    std::size_t unit = none;  ///< what it holds
  };
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  View1<T> buffer_for(std::size_t index);
  std::size_t slot(std::size_t index) const;

  Collectives& shard_;
  Collectives& replica_;
  AfterForward after_;
  std::vector<ShardedUnit<T>> units_;
  std::vector<Buffer> buffers_;             ///< by UnitSpec::buffer; with AfterForward::keep one for each unit
  std::vector<View1<R>> gradient_buffers_;  ///< by UnitSpec::buffer
};

}  // namespace atl
