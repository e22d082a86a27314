/// Clipping by the exact norm of the whole model, then AdamW or SGD on this rank's shards. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "model/options.hpp"
#include "parallel/communicator.hpp"
#include "parallel/sharded_parameters.hpp"

namespace atl {

/// The gradient of a group is not finite.
class GradientError : public Error {
 public:
  using Error::Error;
};

template <class T>
class Optimizer {
 public:
  /// Allocates the moments it needs. `shard` joins the ranks of the replica; both must outlive this.
  Optimizer(const OptimizerOptions& options, ShardedParameters<T>& parameters, const Communicator& shard);

  /// One update from the shards' gradients; returns the global L2 norm of the gradient before clipping: the shards'
  /// fp64 sums of squares are added in rank order, so every replica has the same bits. A gradient longer than clip_norm
  /// is scaled to that length exactly. The same pass writes the weights that bf16 computes with. Throws GradientError
  /// on all ranks of the group if the norm is not finite; parameters are untouched then. Collective over the replica.
  double step(const Exec& exec, double lr);

  std::int64_t steps() const { return steps_; }  ///< since the moments were zero

  bool was_reset() const { return reset_; }  ///< by reset(), or before restore()
  /// Goes on as after `steps` steps; the moments are the caller's to fill.
  void restore(std::int64_t steps, bool was_reset) {
    steps_ = steps;
    reset_ = was_reset;
  }

  /// Starts anew: zero moments, and the correction of their bias from the first step on.
  void reset(const Exec& exec);

 private:
  OptimizerOptions options_;
  ShardedParameters<T>& parameters_;
  const Communicator& shard_;
  View1<double> partial_sums_;
  std::int64_t steps_ = 0;
  bool reset_ = false;
};

}  // namespace atl
