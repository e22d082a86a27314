/// A tiny Llama with all that a run of it holds, on any grid, and data that no grid changes: for tests.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/random.hpp"
#include "model/initialise.hpp"
#include "model/training_step.hpp"
#include "parallel/federation.hpp"
#include "tests/parallel/grid_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace atl {

enum class Head { tied, own };
enum class Targets { all, some };

/// Sizes that shards do not divide: blocks and the untied embedding end in padding on every even number of ranks, and
/// on 7; the tied embedding on 4, 7 and 8.
inline LlamaConfig tiny_config(Head head) {
  LlamaConfig config;
  config.hidden_size = 17;
  config.intermediate_size = 21;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.num_key_value_heads = head == Head::tied ? 1 : 3;
  config.head_dim = 4;
  config.vocab_size = 257;
  config.initializer_range = 0.1;
  config.tie_word_embeddings = head == Head::tied;
  complete_and_check(config);
  return config;
}

/// Sequence `index` of an endless data set. With Targets::some, their numbers of counted targets differ.
inline void append_sequence(std::size_t index, std::int64_t length, Targets targets, Batch& batch) {
  const std::uint64_t key = random_key(index, "sequence"), n = static_cast<std::uint64_t>(length);
  const auto token = [&](std::uint64_t t) { return static_cast<std::int32_t>(random_bits(key, t) % 257); };
  for (std::uint64_t t = 0; t < n; ++t) {
    const bool padding = t + index % 5 >= n || (index % 3 == 1 && t < 4);
    batch.tokens.push_back(token(t));
    batch.targets.push_back(targets == Targets::some && padding ? ignored_target : token(t + 1));
  }
  batch.length = length;
  ++batch.sequences;
}

/// Sequences [begin, end) as one batch; one sequence without targets where there are none.
inline Batch sequences(Range which, std::int64_t length, Targets targets) {
  Batch batch;
  for (std::size_t i = which.begin; i < which.end; ++i) append_sequence(i, length, targets, batch);
  if (which.empty()) {
    append_sequence(0, length, targets, batch);
    std::fill(batch.targets.begin(), batch.targets.end(), ignored_target);
  }
  return batch;
}

inline Range share(Range whole, int parts, int index) {
  const Range part = equal_part(whole.size(), static_cast<std::size_t>(parts), static_cast<std::size_t>(index));
  return {whole.begin + part.begin, whole.begin + part.end};
}

struct TinyOptions {
  OptimizerOptions optimizer;
  FederationOptions federation;
  LlamaShape shape{16, 11, Recompute::none, 1024};
  std::int64_t steps = 5;  ///< of the whole run
  std::uint64_t seed = 1;
  Targets targets = Targets::some;
  Wire wire = Wire::exact;  ///< of gradients
};

/// Plain SGD: no decay, no clipping, so that an update is linear in the gradient.
inline TinyOptions with_sgd(double clip_norm = 0) {
  TinyOptions options;
  options.optimizer.kind = OptimizerOptions::Kind::sgd;
  options.optimizer.weight_decay = 0;
  options.optimizer.clip_norm = clip_norm;
  return options;
}

template <class T>
using FullUnits = std::vector<std::vector<Accumulator<T>>>;  ///< all units, whole, without padding

template <class T>
struct TinyRun {
  using R = Accumulator<T>;
  using Views = View1<R> ShardedUnit<T>::*;  ///< &ShardedUnit<T>::master, and so on

  TinyRun(MPI_Comm comm, const LlamaConfig& config, const ParallelOptions& parallel, const TinyOptions& settings = {})
      : TinyRun(GridCache::get(comm, parallel), config, settings,
                parallel.reshard_after_forward ? AfterForward::reshard : AfterForward::keep, parallel.prefetch) {}
  /// On a grid of the world, groups of any shapes.
  TinyRun(const ProcessGrid& where, const LlamaConfig& config, const TinyOptions& settings = {})
      : TinyRun(GridCache::get(MPI_COMM_WORLD, where), config, settings, AfterForward::reshard, 1) {}

  TinyRun(GridWithCommunicators& where, const LlamaConfig& config, const TinyOptions& settings, AfterForward after,
          int prefetch)
      : options(settings),
        place(where),
        grid(place.grid),
        communicators(place.communicators),
        parameters(llama_units(config), *place.shard, *place.replica, after, prefetch, settings.wire),
        model(config, settings.shape, parameters),
        optimizer(settings.optimizer, parameters, communicators.shard),
        federation(settings.federation, settings.steps, grid, communicators, place.links, *place.replica,
                   (initialise(exec, config, settings.seed, parameters), parameters)) {}

  /// Which sequences this rank has of the `step`-th (1-based) batch of the whole world.
  Range my_sequences(std::int64_t step, std::size_t world_batch) const {
    const std::size_t end = static_cast<std::size_t>(step) * world_batch;
    const Range group = share({end - world_batch, end}, grid.number_of_groups(), grid.group());
    return share(group, grid.shape().ranks(), grid.rank_in_group());
  }
  Batch batch(Range which) const { return sequences(which, options.shape.sequence_length, options.targets); }

  /// Optimizer step `number` (1-based) of all groups, on their shares of one batch.
  StepResult step(std::int64_t number, std::size_t world_batch, double lr = 0.01) {
    const StepResult result =
        training_step<T>(exec, model, optimizer, communicators.group, {batch(my_sequences(number, world_batch))}, lr);
    federation.count_tokens(result.tokens);
    return result;
  }

  /// Element i of unit u becomes value(u, i) in what this rank holds; padding becomes zero.
  template <class F>
  void set(Views which, const F& value) {
    for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
      auto& unit = parameters.unit(u);
      std::vector<R> mine(unit.layout.shard_size(), R(0));
      for (std::size_t i = unit.owned.begin; i < unit.owned.end; ++i)
        mine[i - unit.owned.begin] = static_cast<R>(value(u, i));
      copy_to_device(mine, unit.*which);
    }
  }

  /// The end of a round where one is due.
  void aggregate_if_due(std::int64_t number) {
    if (!federation.due(number)) return;
    federation.aggregate(exec, parameters);
    if (options.federation.inner_state == FederationOptions::InnerState::reset) optimizer.reset(exec);
  }

  /// What the replica holds, put together on each of its ranks. Collective.
  FullUnits<T> full(Views which) const {
    FullUnits<T> units;
    for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
      const auto& unit = parameters.unit(u);
      const View1<R> whole = allocate<R>("atoll::test_full", unit.layout.padded_size());
      place.shard->all_gather((unit.*which).data(), whole.data(), unit.layout.shard_size(), element_of<R>(), exec)
          .wait();
      units.push_back(to_host(whole));
      units.back().resize(unit.layout.size());
    }
    return units;
  }
  FullUnits<T> masters() const { return full(&ShardedUnit<T>::master); }
  FullUnits<T> gradients() const { return full(&ShardedUnit<T>::gradient); }

  Exec exec;
  TinyOptions options;
  GridWithCommunicators& place;
  const ProcessGrid& grid;
  const Communicators& communicators;
  ShardedParameters<T> parameters;
  Llama<T> model;
  Optimizer<T> optimizer;
  Federation<T> federation;
};

/// Largest difference of any tensor, relative to that tensor's largest element, and the tensor's name.
struct Difference {
  double value = 0;
  std::string tensor;
};

template <class R>
Difference difference(const LlamaConfig& config, const std::vector<std::vector<R>>& actual,
                      const std::vector<std::vector<R>>& expected) {
  Difference largest;
  const std::vector<UnitSpec> units = llama_units(config);
  EXPECT_EQ(actual.size(), units.size());
  EXPECT_EQ(expected.size(), units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    const ShardLayout layout(units[u], 1);
    EXPECT_EQ(actual[u].size(), layout.size());
    EXPECT_EQ(expected[u].size(), layout.size());
    for (std::size_t i = 0; i < units[u].tensors.size(); ++i) {
      double scale = 0, worst = 0;
      for (std::size_t j = layout.tensor(i).begin; j < layout.tensor(i).end; ++j) {
        const double a = static_cast<double>(actual[u][j]), e = static_cast<double>(expected[u][j]);
        scale = std::max(scale, std::abs(e));
        // Written so that a NaN counts as infinite.
        if (!(std::abs(a - e) <= worst)) worst = std::isnan(a - e) ? INFINITY : std::abs(a - e);
      }
      const double relative = worst == 0 ? 0 : worst / scale;
      if (relative > largest.value) largest = {relative, units[u].tensors[i].name};
    }
  }
  return largest;
}

template <class R>
void expect_close(const LlamaConfig& config, const std::vector<std::vector<R>>& actual,
                  const std::vector<std::vector<R>>& expected, double tolerance, const std::string& what) {
  const Difference found = difference(config, actual, expected);
  EXPECT_LE(found.value, tolerance) << what << ", " << found.tensor;
}

template <class R>
std::string bytes_of(const std::vector<std::vector<R>>& units) {
  std::string bytes;
  for (const auto& unit : units) bytes.append(reinterpret_cast<const char*>(unit.data()), unit.size() * sizeof(R));
  return bytes;
}

template <class R>
bool same_bits(const std::vector<std::vector<R>>& a, const std::vector<std::vector<R>>& b) {
  return bytes_of(a) == bytes_of(b);
}

/// True on every rank if `units` are the same bits on all ranks of `comm`. Collective.
template <class R>
bool same_on_all_ranks(const Communicator& comm, const std::vector<std::vector<R>>& units) {
  const std::string mine = bytes_of(units);
  return comm.max(comm.broadcast(mine) == mine ? 0.0 : 1.0) == 0.0;
}

inline double relative_difference(double actual, double expected) {
  return std::abs(actual - expected) / std::abs(expected);
}

}  // namespace atl
