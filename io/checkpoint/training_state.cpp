/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/training_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <type_traits>

namespace atl {

namespace {

using Quantity = CheckpointArray::Quantity;
constexpr std::array moment_quantities{Quantity::moment1, Quantity::moment2};

template <class R>
View1<const char> bytes_of(const View1<R>& view) {
  return View1<const char>(reinterpret_cast<const char*>(view.data()), view.size() * sizeof(R));
}

/// What each group counts for in a mean: its tokens, or one where no group has any.
std::vector<double> weights_of(const std::vector<double>& tokens, std::size_t groups) {
  const double total = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  std::vector<double> weights(groups, 1.0 / static_cast<double>(groups));
  if (total > 0 && tokens.size() == groups)
    for (std::size_t g = 0; g < groups; ++g) weights[g] = tokens[g] / total;
  return weights;
}

const std::vector<double>& tokens_that_count(const TrainingPosition& position) {
  return position.in_round ? position.tokens_in_round : position.tokens_last_round;
}

/// Reads a flat range of a unit into memory of the execution space.
template <class R>
void read_to(CheckpointReader& reader, const CheckpointArray& array, std::size_t unit, Range range,
             const View1<R>& to) {
  if (range.empty()) return;
  if constexpr (std::is_same_v<Memory, Kokkos::HostSpace>) {
    reader.read(array, unit, range, to.data());
  } else {
    std::vector<R> values(range.size());
    reader.read(array, unit, range, values.data());
    copy_to_device(values, to);
  }
}

/// The mean over the groups that saved, in group order.
template <class R>
void read_mean(CheckpointReader& reader, Quantity quantity, std::size_t unit, Range range, const View1<R>& to) {
  if (range.empty()) return;
  const CheckpointManifest& manifest = reader.manifest();
  const auto weights = weights_of(tokens_that_count(manifest.position), manifest.groups.size());
  std::vector<R> mean(range.size(), R(0)), values(range.size());
  for (std::size_t g = 0; g < weights.size(); ++g) {
    reader.read({quantity, static_cast<int>(g)}, unit, range, values.data());
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<R>(weights[g]) * values[i];
  }
  copy_to_device(mean, to);
}

template <class T>
View1<Accumulator<T>> owned_part(const ShardedUnit<T>& unit, const View1<Accumulator<T>>& view) {
  return unit.local(view, unit.owned);
}

template <class T>
void require_units(const CheckpointReader& reader, const ShardedParameters<T>& parameters) {
  const CheckpointManifest& manifest = reader.manifest();
  bool equal = manifest.units.size() == parameters.number_of_units();
  for (std::size_t u = 0; equal && u < manifest.units.size(); ++u)
    equal = manifest.unit_sizes[u] == parameters.unit(u).layout.size() &&
            manifest.units[u] == parameters.unit(u).layout.unit().name;
  if (!equal)
    throw DataError(fmt::format("{}: its model has other units or sizes than the model of this run", reader.folder()));
}

/// True if the ranks that restore read this array.
template <class T>
bool is_read(const CheckpointArray& array, const TrainingState<T>& state, bool models_of_groups) {
  const auto any = [&](const auto view) {
    const auto& units = state.federation.outer_state();
    return std::any_of(units.begin(), units.end(), [&](const auto& unit) { return (unit.*view).extent(0) > 0; });
  };
  switch (array.quantity) {
    case Quantity::model:
      return (array.group >= 0) == models_of_groups;
    case Quantity::moment1:
      return state.parameters.unit(0).moment1.extent(0) > 0;
    case Quantity::moment2:
      return state.parameters.unit(0).moment2.extent(0) > 0;
    case Quantity::outer_anchor:
      return any(&OuterState<T>::anchor);
    case Quantity::outer_moment1:
      return any(&OuterState<T>::moment1);
    case Quantity::outer_moment2:
      return any(&OuterState<T>::moment2);
  }
  return false;
}

}  // namespace

CheckpointContents checkpoint_contents(const FederationOptions& federation, OptimizerOptions::Kind optimizer,
                                       int groups, bool in_round, SavedMoments saved) {
  CheckpointContents contents;
  contents.groups = groups;
  contents.in_round = in_round;
  contents.saved = saved;
  contents.outer = outer_options(federation);
  using InnerState = FederationOptions::InnerState;
  const bool averaged = federation.inner_state == InnerState::average,
             reset = federation.inner_state == InnerState::reset;
  contents.moments = optimizer == OptimizerOptions::Kind::adamw ? 2 : 0;
  if (saved == SavedMoments::none || (reset && !in_round)) contents.moments = 0;
  contents.moments_differ = groups > 1 && (in_round || !averaged);
  return contents;
}

template <class T>
std::optional<SaveReport> save_state(const Exec& exec, CheckpointWriter& writer, TrainingState<T> state,
                                     CheckpointManifest head, const ModelInfo& model, const ProcessGrid& grid,
                                     const Communicators& communicators, const CheckpointContents& contents) {
  using R = Accumulator<T>;
  ShardedParameters<T>& parameters = state.parameters;
  TrainingPosition& position = head.position;
  position.round = state.federation.round();
  position.in_round = contents.in_round;
  position.optimizer_steps = state.optimizer.steps();
  position.optimizer_reset = state.optimizer.was_reset();
  // nvcc takes no braced list here.
  const std::vector<double> tokens_of_group(1, state.federation.tokens_in_round());
  position.tokens_in_round = communicators.gather_over_groups(tokens_of_group);
  position.tokens_last_round = state.federation.tokens_last_round();
  head.element = element_of<R>();
  head.groups = grid.groups();
  std::vector<UnitSpec> units;
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    units.push_back(parameters.unit(u).layout.unit());
    head.units.push_back(units.back().name);
    head.unit_sizes.push_back(parameters.unit(u).layout.size());
  }
  const double weight =
      weights_of(tokens_that_count(position), head.groups.size())[static_cast<std::size_t>(grid.group())];

  const std::vector<CheckpointArray> arrays = contents.arrays();
  const bool model_differs = contents.in_round && contents.groups > 1;
  std::map<std::pair<Quantity, std::size_t>, View1<R>> mean;  // computed for the checkpoint alone
  for (const CheckpointArray& array : arrays) {
    const bool moment = array.quantity == Quantity::moment1 || array.quantity == Quantity::moment2;
    const bool differs = array.quantity == Quantity::model ? model_differs : moment && contents.moments_differ;
    if (array.group >= 0 || !differs) continue;
    for (std::size_t u = 0; u < units.size(); ++u) {
      const auto& unit = parameters.unit(u);
      const View1<R>& values = array.quantity == Quantity::model     ? unit.master
                               : array.quantity == Quantity::moment1 ? unit.moment1
                                                                     : unit.moment2;
      const View1<const R> average = state.federation.mean_of_own_slice(exec, u, values, weight);
      View1<R> copy = allocate<R>("atoll::checkpoint_average", average.extent(0));
      Kokkos::deep_copy(exec, copy, average);
      mean[{array.quantity, u}] = copy;
    }
  }

  std::vector<PartSource> mine;
  for (const CheckpointPart& part :
       parts_of_rank(arrays, head.unit_sizes, head.groups, grid.group(), grid.rank_in_group())) {
    const auto& unit = parameters.unit(part.unit);
    const OuterState<T>& outer = state.federation.outer_state()[part.unit];
    ATOLL_REQUIRE(outer.owned == part.range);
    const auto averaged = mean.find({part.array.quantity, part.unit});
    View1<R> values;
    if (part.array.group < 0 && averaged != mean.end())
      values = averaged->second;
    else if (part.array.quantity == Quantity::model)
      values = unit.local(unit.master, part.range);
    else if (part.array.quantity == Quantity::moment1)
      values = unit.local(unit.moment1, part.range);
    else if (part.array.quantity == Quantity::moment2)
      values = unit.local(unit.moment2, part.range);
    else
      values = part.array.quantity == Quantity::outer_anchor    ? outer.anchor
               : part.array.quantity == Quantity::outer_moment1 ? outer.moment1
                                                                : outer.moment2;
    mine.push_back({part, bytes_of(values)});
  }
  return writer.save(exec, head, model, units, arrays, mine);
}

template <class T>
void restore_model(CheckpointReader& reader, ShardedParameters<T>& parameters) {
  using R = Accumulator<T>;
  using Other = std::conditional_t<std::is_same_v<R, float>, double, float>;
  require_units(reader, parameters);
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    const auto& unit = parameters.unit(u);
    const View1<R> to = owned_part(unit, unit.master);
    if (reader.manifest().element == element_of<R>()) {
      read_to(reader, CheckpointArray{}, u, unit.owned, to);
    } else {
      std::vector<Other> values(unit.owned.size());
      if (!values.empty()) reader.read(CheckpointArray{}, u, unit.owned, values.data());
      copy_to_device(std::vector<R>(values.begin(), values.end()), to);
    }
  }
}

template <class T>
std::vector<std::string> restore_state(const Exec& exec, CheckpointReader& reader, TrainingState<T> state,
                                       const ProcessGrid& grid, const Communicators& communicators) {
  using R = Accumulator<T>;
  const CheckpointManifest& manifest = reader.manifest();
  const TrainingPosition& position = manifest.position;
  const int saved = static_cast<int>(manifest.groups.size()), groups = grid.number_of_groups();
  const bool same_groups = saved == groups;
  const bool several_saved = position.in_round && saved > 1;
  std::vector<std::string> told;
  bool moments = true;

  collectively(communicators.world, [&] {
    require_units(reader, state.parameters);
    const CheckpointArray model{Quantity::model, several_saved && same_groups ? grid.group() : -1};
    if (several_saved && !same_groups)
      told.push_back(fmt::format(
          "it was saved inside a round of {} groups: all {} groups of this run go on from their weighted mean", saved,
          groups));
    for (std::size_t u = 0; u < state.parameters.number_of_units(); ++u) {
      auto& unit = state.parameters.unit(u);
      OuterState<T>& outer = state.federation.outer_state()[u];
      read_to(reader, model, u, unit.owned, owned_part(unit, unit.master));
      for (const Quantity quantity : moment_quantities) {
        const View1<R>& moment = quantity == Quantity::moment1 ? unit.moment1 : unit.moment2;
        if (moment.extent(0) == 0) continue;
        const View1<R> to = owned_part(unit, moment);
        if (reader.has({quantity, -1}))
          read_to(reader, {quantity, -1}, u, unit.owned, to);
        else if (!reader.has({quantity, 0}))
          moments = false;
        else if (same_groups)
          read_to(reader, {quantity, grid.group()}, u, unit.owned, to);
        else
          read_mean(reader, quantity, u, unit.owned, to);
      }
      const auto read_outer = [&](Quantity quantity, const View1<R>& to) {
        if (to.extent(0) > 0) read_to(reader, {quantity, -1}, u, outer.owned, to);
      };
      if (outer.anchor.extent(0) > 0)
        read_to(reader, {reader.has({Quantity::outer_anchor, -1}) ? Quantity::outer_anchor : Quantity::model, -1}, u,
                outer.owned, outer.anchor);
      read_outer(Quantity::outer_moment1, outer.moment1);
      read_outer(Quantity::outer_moment2, outer.moment2);
    }
    // HDF5's own bytes and some arrays are of no use here, but a checkpoint with a wrong byte is not to be trusted.
    const auto mine = [&](std::size_t i) {
      return i % static_cast<std::size_t>(communicators.world.size()) ==
             static_cast<std::size_t>(communicators.world.rank());
    };
    for (std::size_t file = 0; file < manifest.files.size(); ++file)
      if (mine(file)) reader.verify_rest(file);
    for (std::size_t part = 0; part < manifest.parts.size(); ++part)
      if (mine(part) && !is_read(manifest.parts[part].array, state, several_saved && same_groups))
        reader.verify_part(part);
  });
  const bool differed = reader.has({Quantity::moment1, 0});
  if (moments && differed && !same_groups)
    told.push_back(fmt::format("the optimizer's moments are the weighted mean of those of {} groups", saved));
  if (!moments) {
    state.optimizer.reset(exec);
    if (position.optimizer_steps > 0) told.push_back("the optimizer's moments were not saved: they start from zero");
  } else {
    state.optimizer.restore(position.optimizer_steps, position.optimizer_reset);
  }
  const auto own = static_cast<std::size_t>(grid.group());
  state.federation.restore(position.round, same_groups ? position.tokens_in_round.at(own) : 0.0,
                           same_groups ? position.tokens_last_round : std::vector<double>());
  return told;
}

#define ATOLL_INSTANTIATE(T)                                                                                 \
  template std::optional<SaveReport> save_state<T>(const Exec&, CheckpointWriter&, TrainingState<T>,         \
                                                   CheckpointManifest, const ModelInfo&, const ProcessGrid&, \
                                                   const Communicators&, const CheckpointContents&);         \
  template std::vector<std::string> restore_state<T>(const Exec&, CheckpointReader&, TrainingState<T>,       \
                                                     const ProcessGrid&, const Communicators&);              \
  template void restore_model<T>(CheckpointReader&, ShardedParameters<T>&);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
