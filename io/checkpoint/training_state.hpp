/// The state of training, to a checkpoint and back, on any grid. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint/reader.hpp"
#include "io/checkpoint/writer.hpp"
#include "model/optimizer.hpp"
#include "parallel/federation.hpp"

#include <string>
#include <vector>

namespace atl {

/// Everything that training changes.
template <class T>
struct TrainingState {
  ShardedParameters<T>& parameters;
  Optimizer<T>& optimizer;
  Federation<T>& federation;
};

/// Which arrays a checkpoint of this state has, in a round or between two.
CheckpointContents checkpoint_contents(const FederationOptions& federation, OptimizerOptions::Kind optimizer,
                                       int groups, bool in_round, SavedMoments saved);

/// Begins to save the state after position.step steps (the caller knows step, cursor and tokens; the rest of `position`
/// is filled in here). Inside a round the groups' models are averaged on the side for the array `model`; training
/// itself is unchanged. Collective over the world; returns what CheckpointWriter::save does.
template <class T>
std::optional<SaveReport> save_state(const Exec& exec, CheckpointWriter& writer, TrainingState<T> state,
                                     CheckpointManifest head, const ModelInfo& model, const ProcessGrid& grid,
                                     const Communicators& communicators, const CheckpointContents& contents);

/// Restores the state, each rank by the ranges that it owns, whatever grid saved it: the model to the bit. With the
/// same number of groups every group gets its own; with another number inside a round all groups go on from the
/// weighted mean of the models, and new groups get the weighted mean of the moments wherever these differ. Moments that
/// were not saved start anew. Returns sentences that tell what is not exactly as it was; empty: everything is.
/// Collective over the world; throws CollectiveError.
template <class T>
std::vector<std::string> restore_state(const Exec& exec, CheckpointReader& reader, TrainingState<T> state,
                                       const ProcessGrid& grid, const Communicators& communicators);

/// The averaged model alone, to this rank's shards, from fp32 or fp64. DataError where a unit has another size. Not
/// collective.
template <class T>
void restore_model(CheckpointReader& reader, ShardedParameters<T>& parameters);

}  // namespace atl
