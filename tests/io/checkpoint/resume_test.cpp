/// Training goes on from a checkpoint as if it had never stopped: to the bit on the same groups, and with the same
/// model on any grid. SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/training_state.hpp"
#include "tests/io/shared_folder.hpp"
#include "tests/model/tiny_run.hpp"

#include <map>

namespace atl {
namespace {

using Quantity = CheckpointArray::Quantity;
using Outer = FederationOptions::Outer;
using InnerState = FederationOptions::InnerState;
constexpr std::int64_t total_steps = 5, round_length = 2;
constexpr std::size_t world_batch = 16;

template <class T>
TrainingState<T> state_of(TinyRun<T>& run) {
  return {run.parameters, run.optimizer, run.federation};
}

/// As RunCheckpoints decides: one group without an outer optimizer has no rounds to speak of.
template <class T>
bool in_round(const TinyRun<T>& run, std::int64_t step) {
  const bool federated = run.federation.several_groups() || outer_options(run.options.federation).has_anchor() ||
                         run.options.federation.inner_state != InnerState::keep;
  return federated && !run.federation.due(step);
}

struct SaveOptions {
  bool async = true;
  int writers = 0;
  SavedMoments moments = SavedMoments::all;
};

/// Saves the state after `step`; returns the checkpoint's path.
template <class T>
std::string save(TinyRun<T>& run, const LlamaConfig& config, const std::string& folder, std::int64_t step,
                 const SaveOptions& options = {}) {
  const Communicator& world = run.communicators.world;
  CheckpointWriter writer({folder, options.writers, options.async, 0, 0}, run.grid, world);
  CheckpointManifest head;
  head.configuration = {{"run", {{"seed", 1}}}, {"data", nlohmann::ordered_json::object()}};
  head.model = to_hugging_face_json(config);
  head.position.step = step;
  head.position.cursor = step * static_cast<std::int64_t>(world_batch);
  const CheckpointContents contents =
      checkpoint_contents(run.options.federation, run.options.optimizer.kind, run.grid.number_of_groups(),
                          in_round(run, step), options.moments);
  EXPECT_FALSE(
      save_state(run.exec, writer, state_of(run), head, {config, step}, run.grid, run.communicators, contents));
  const auto report = writer.finish();
  EXPECT_TRUE(report && report->error.empty()) << (report ? report->error : "no report");
  // What `atoll inspect` says of the copy beforehand.
  std::uint64_t planned = largest_copy(contents, llama_units(config), run.grid) * sizeof(Accumulator<T>);
  EXPECT_EQ(world.max(static_cast<double>(writer.copy_bytes())),
            options.async ? world.max(static_cast<double>(planned)) : 0.0);
  return report ? report->path : "";
}

template <class T>
std::vector<std::string> restore(TinyRun<T>& run, const std::string& path) {
  CheckpointReader reader(path, run.communicators.world);
  return restore_state(run.exec, reader, state_of(run), run.grid, run.communicators);
}

/// A step and what follows it; loss and gradient norm.
template <class T>
std::vector<double> train(TinyRun<T>& run, std::int64_t step) {
  const StepResult result = run.step(step, world_batch);
  run.aggregate_if_due(step);
  return {result.loss, result.gradient_norm, static_cast<double>(result.tokens)};
}

/// All that training changes, as bytes: of this rank.
template <class T>
std::string bits(TinyRun<T>& run) {
  std::string bytes;
  const auto add = [&](const auto& view) {
    const auto values = to_host(view);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
  };
  for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
    const auto& unit = run.parameters.unit(u);
    add(unit.master), add(unit.moment1), add(unit.moment2);
    const auto& outer = run.federation.outer_state()[u];
    add(outer.anchor), add(outer.moment1), add(outer.moment2);
  }
  const auto& last = run.federation.tokens_last_round();
  bytes += std::to_string(run.optimizer.steps()) + std::to_string(run.optimizer.was_reset()) +
           std::to_string(run.federation.round()) + std::to_string(run.federation.tokens_in_round());
  for (const double tokens : last) bytes += std::to_string(tokens);
  return bytes;
}

std::vector<ParallelOptions> strategies() {
  const int n = world_ranks();
  std::vector<ParallelOptions> grids{grid_of(Strategy::fsdp), grid_of(Strategy::ddp)};
  if (n % 2 == 0) {
    grids.push_back(grid_of(Strategy::hsdp, n / 2));
    grids.push_back(grid_of(Strategy::fl_fsdp, 0, 2));
    grids.push_back(grid_of(Strategy::fl_fsdp, 1));
  }
  if (n % 4 == 0) grids.push_back(grid_of(Strategy::fl_hsdp, n / 4, 2));
  return grids;
}

struct Case {
  OptimizerOptions::Kind kind;
  Outer outer;
  InnerState inner;
};
/// Every optimizer, outer optimizer and inner-state policy.
std::vector<Case> cases() {
  using Kind = OptimizerOptions::Kind;
  std::vector<Case> all{{Kind::sgd, Outer::fedavg, InnerState::keep}, {Kind::sgd, Outer::yogi, InnerState::keep}};
  for (const InnerState inner : {InnerState::keep, InnerState::average, InnerState::reset})
    for (const Outer outer : {Outer::fedavg, Outer::sgd, Outer::adam, Outer::adagrad})
      all.push_back({Kind::adamw, outer, inner});
  return all;
}

TinyOptions options_of(const Case& which) {
  TinyOptions options;
  options.steps = total_steps;
  options.optimizer.kind = which.kind;
  options.federation.every = round_length;
  options.federation.outer = which.outer;
  options.federation.inner_state = which.inner;
  if (which.outer == Outer::adam || which.outer == Outer::adagrad || which.outer == Outer::yogi)
    options.federation.lr = 0.01;
  options.shape.sequence_length = 7;
  return options;
}

template <class T>
void expect_exact_resume(const ProcessGrid& grid, const LlamaConfig& config, const Case& which, bool async) {
  const TinyOptions options = options_of(which);
  TinyRun<T> whole(grid, config, options), plain(grid, config, options);
  SCOPED_TRACE(whole.grid.describe() + " case " + std::to_string(static_cast<int>(which.kind)) + " " +
               std::to_string(static_cast<int>(which.outer)) + " " + std::to_string(static_cast<int>(which.inner)));
  const SharedFolder folder(whole.communicators.world);
  std::map<std::int64_t, std::string> paths, states;
  std::map<std::int64_t, std::vector<double>> numbers;
  for (std::int64_t step = 1; step <= total_steps; ++step) {
    numbers[step] = train(whole, step);
    EXPECT_EQ(train(plain, step), numbers[step]);
    states[step] = bits(whole);
    if (step >= 2 && step < total_steps)
      paths[step] = save(whole, config, folder / "c", step,
                         {async, static_cast<int>(step % 2)});  // a file a rank, and one for all
    EXPECT_TRUE(bits(whole) == states[step]) << "saving changed the state";
  }
  EXPECT_TRUE(bits(whole) == bits(plain)) << "saving changed the training";
  for (const auto& [saved, path] : paths) {  // 2 and 4 end a round, 3 is inside one
    SCOPED_TRACE(saved);
    TinyOptions other = options;
    other.seed = 77;
    TinyRun<T> again(grid, config, other);
    EXPECT_EQ(restore(again, path), std::vector<std::string>());
    EXPECT_TRUE(bits(again) == states[saved]);
    for (std::int64_t step = saved + 1; step <= total_steps; ++step) EXPECT_EQ(train(again, step), numbers[step]);
    EXPECT_TRUE(bits(again) == states[total_steps]);
  }
}

ProcessGrid process_grid(const ParallelOptions& options) {
  const auto [size, rank] = GridCache::place_in(MPI_COMM_WORLD);
  return ProcessGrid(options, size, rank);
}

TEST(Checkpoint, EveryStrategyGoesOnToTheBit) {
  if (world_ranks() > 4) GTEST_SKIP() << "the same on fewer ranks";
  const Case with_everything{OptimizerOptions::Kind::adamw, Outer::sgd, InnerState::keep};
  for (const ParallelOptions& grid : strategies()) {
    const bool federated = grid.strategy == Strategy::fl_fsdp || grid.strategy == Strategy::fl_hsdp;
    const Case which =
        federated ? with_everything : Case{OptimizerOptions::Kind::adamw, Outer::fedavg, InnerState::keep};
    expect_exact_resume<double>(process_grid(grid), tiny_config(Head::own), which, true);
    expect_exact_resume<float>(process_grid(grid), tiny_config(Head::tied), which, false);
  }
}

TEST(Checkpoint, EveryOptimizerGoesOnToTheBit) {
  if (world_ranks() > 2) GTEST_SKIP() << "the same on fewer ranks";
  const int groups = world_ranks() % 2 == 0 ? 2 : 1;
  for (const Case& which : cases())
    expect_exact_resume<float>(process_grid(grid_of(Strategy::fl_fsdp, 0, groups)), tiny_config(Head::tied), which,
                               true);
}

TEST(Checkpoint, UnequalGroupsGoOnToTheBit) {
  const int n = world_ranks();
  if (n < 3) GTEST_SKIP() << "needs 3 ranks";
  const Case which{OptimizerOptions::Kind::adamw, Outer::adam, InnerState::average};
  expect_exact_resume<float>(grid_of({{1, n - 1}, {1, 1}}), tiny_config(Head::own), which, true);
  expect_exact_resume<float>(grid_of({{1, 1}, {n - 1, 1}}), tiny_config(Head::own), which, true);
}

/// The ranks of the world that take part: the first `ranks`.
class FirstRanks {
 public:
  FirstRanks(const Communicator& world, int ranks)
      : inside_(world.rank() < ranks), comm_(world, inside_ ? 0 : 1, world.rank()) {}
  bool inside() const { return inside_; }
  const Communicator& comm() const { return comm_; }

 private:
  bool inside_;
  Communicator comm_;
};

struct Place {
  std::string name;
  int ranks;
  std::vector<GroupShape> groups;
};

/// Grids of 1 to 8 ranks, as far as there are so many.
std::vector<Place> places() {
  std::vector<Place> all{{"one rank", 1, {{1, 1}}},
                         {"fsdp 2", 2, {{1, 2}}},
                         {"fl 2", 2, {{1, 1}, {1, 1}}},
                         {"fsdp 3", 3, {{1, 3}}},
                         {"unequal 3", 3, {{1, 2}, {1, 1}}},
                         {"hsdp 4", 4, {{2, 2}}},
                         {"fl 4", 4, {{1, 2}, {1, 2}}},
                         {"fl 4 of one", 4, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
                         {"fsdp 7", 7, {{1, 7}}},
                         {"fl+hsdp 8", 8, {{2, 2}, {2, 2}}},
                         {"unequal 8", 8, {{2, 2}, {1, 3}, {1, 1}}}};
  std::vector<Place> fit;
  for (const Place& place : all)
    if (place.ranks <= world_ranks()) fit.push_back(place);
  return fit;
}

/// What the checkpoint says of the whole model: all numbers of an array.
FullUnits<double> whole(CheckpointReader& reader, const CheckpointArray& array) {
  FullUnits<double> units;
  for (std::size_t u = 0; u < reader.manifest().units.size(); ++u) {
    units.emplace_back(reader.manifest().unit_sizes[u]);
    reader.read(array, u, {0, units[u].size()}, units[u].data());
  }
  return units;
}

FullUnits<double> mean(const std::vector<FullUnits<double>>& groups, const std::vector<double>& tokens) {
  double total = 0;
  for (const double n : tokens) total += n;
  FullUnits<double> result = groups[0];
  for (auto& unit : result) std::fill(unit.begin(), unit.end(), 0.0);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t u = 0; u < result.size(); ++u)
      for (std::size_t i = 0; i < result[u].size(); ++i) result[u][i] += tokens[g] / total * groups[g][u][i];
  return result;
}

TEST(Checkpoint, AnyGridReadsAnyOther) {
  const Communicator world(MPI_COMM_WORLD);
  const SharedFolder folder(world);
  const LlamaConfig config = tiny_config(Head::own);
  const TinyOptions options = options_of({OptimizerOptions::Kind::adamw, Outer::sgd, InnerState::keep});
  for (const std::int64_t saved : {std::int64_t{3}, std::int64_t{4}}) {  // inside a round, and at its end
    std::map<std::string, std::string> paths;
    for (const Place& place : places()) {
      const FirstRanks first(world, place.ranks);
      if (first.inside()) {
        TinyRun<double> run(GridCache::get(first.comm().get(), ProcessGrid(place.groups, world.rank())), config,
                            options, AfterForward::reshard, 1);
        for (std::int64_t step = 1; step <= saved; ++step) train(run, step);
        save(run, config, folder / (place.name + std::to_string(saved)), saved, {true, place.ranks > 2 ? 2 : 0});
      }
      paths[place.name] = folder / (place.name + std::to_string(saved) + "/step_00000" + std::to_string(saved));
    }
    world.barrier();
    for (const Place& from : places()) {
      CheckpointReader reader(paths[from.name]);
      const TrainingPosition& position = reader.manifest().position;
      const std::size_t groups = from.groups.size();
      const bool inside = groups > 1 && saved == 3;
      EXPECT_EQ(position.in_round, saved == 3);
      const auto& tokens = inside ? position.tokens_in_round : position.tokens_last_round;
      const auto of_groups = [&](Quantity quantity) {
        std::vector<FullUnits<double>> all;
        for (std::size_t g = 0; g < groups; ++g) all.push_back(whole(reader, {quantity, static_cast<int>(g)}));
        return all;
      };
      const FullUnits<double> model = whole(reader, {Quantity::model, -1});
      if (inside) expect_close(config, model, mean(of_groups(Quantity::model), tokens), 1e-12, "mean model");
      for (const Place& to : places()) {
        SCOPED_TRACE("step " + std::to_string(saved) + " from " + from.name + " to " + to.name);
        // Fewer ranks alone have had their turn in a smaller world.
        if (world.size() == 8 && std::max(from.ranks, to.ranks) < 7) continue;
        const FirstRanks first(world, to.ranks);
        if (!first.inside()) continue;
        TinyOptions other = options;
        other.seed = 5;
        TinyRun<double> run(GridCache::get(first.comm().get(), ProcessGrid(to.groups, world.rank())), config, other,
                            AfterForward::reshard, 1);
        const auto notes = restore(run, paths[from.name]);
        const bool same_groups = groups == to.groups.size();
        EXPECT_EQ(notes.size(), same_groups || groups == 1 ? 0u : inside ? 2u : 1u);
        const int group = run.grid.group();
        if (inside && same_groups)
          EXPECT_TRUE(same_bits(run.masters(), whole(reader, {Quantity::model, group})));
        else
          EXPECT_TRUE(same_bits(run.masters(), model));
        const FullUnits<double> moment = run.full(&ShardedUnit<double>::moment2);
        if (groups == 1)
          EXPECT_TRUE(same_bits(moment, whole(reader, {Quantity::moment2, -1})));
        else if (same_groups)
          EXPECT_TRUE(same_bits(moment, whole(reader, {Quantity::moment2, group})));
        else
          expect_close(config, moment, mean(of_groups(Quantity::moment2), tokens), 1e-12, "mean moments");
        for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
          const OuterState<double>& outer = run.federation.outer_state()[u];
          std::vector<double> anchor(outer.owned.size()), momentum(outer.owned.size());
          if (anchor.empty()) continue;
          reader.read({saved == 3 ? Quantity::outer_anchor : Quantity::model, -1}, u, outer.owned, anchor.data());
          reader.read({Quantity::outer_moment1, -1}, u, outer.owned, momentum.data());
          EXPECT_EQ(to_host(outer.anchor), anchor);
          EXPECT_EQ(to_host(outer.moment1), momentum);
        }
        EXPECT_EQ(run.optimizer.steps(), saved);
        EXPECT_EQ(run.federation.round(), saved / round_length);
        EXPECT_EQ(run.federation.tokens_in_round(),
                  same_groups ? position.tokens_in_round[static_cast<std::size_t>(group)] : 0.0);
        train(run, saved + 1);  // it goes on: all ranks in the same collectives
      }
      world.barrier();
    }
  }
}

TEST(Checkpoint, MomentsMayBeAveragedOrLeftOut) {
  if (world_ranks() % 2 != 0) GTEST_SKIP() << "needs two groups";
  const LlamaConfig config = tiny_config(Head::own);
  const TinyOptions options = options_of({OptimizerOptions::Kind::adamw, Outer::fedavg, InnerState::keep});
  const ParallelOptions grid = grid_of(Strategy::fl_fsdp, 0, 2);
  for (const std::int64_t saved : {std::int64_t{3}, std::int64_t{4}}) {
    TinyRun<double> run(MPI_COMM_WORLD, config, grid, options);
    const SharedFolder folder(run.communicators.world);
    for (std::int64_t step = 1; step <= saved; ++step) train(run, step);
    const std::string all = save(run, config, folder / "all", saved);
    const std::string average = save(run, config, folder / "average", saved, {true, 0, SavedMoments::average});
    const std::string none = save(run, config, folder / "none", saved, {true, 0, SavedMoments::none});
    CheckpointReader every(all), averaged(average);
    const TrainingPosition& position = every.manifest().position;
    for (const Quantity quantity : {Quantity::moment1, Quantity::moment2})
      expect_close(config, whole(averaged, {quantity, -1}),
                   mean({whole(every, {quantity, 0}), whole(every, {quantity, 1})},
                        saved == 3 ? position.tokens_in_round : position.tokens_last_round),
                   1e-12, "moments");
    TinyRun<double> again(MPI_COMM_WORLD, config, grid, options);
    EXPECT_EQ(restore(again, average).size(), 0u);
    EXPECT_TRUE(same_bits(again.full(&ShardedUnit<double>::moment1), whole(averaged, {Quantity::moment1, -1})));
    EXPECT_EQ(again.optimizer.steps(), saved);
    EXPECT_EQ(restore(again, none).size(), 1u);
    EXPECT_EQ(again.optimizer.steps(), 0);
    for (const auto& unit : again.full(&ShardedUnit<double>::moment1))
      for (const double value : unit) EXPECT_EQ(value, 0.0);
    EXPECT_TRUE(same_bits(again.masters(), run.masters()));
  }
}

/// Saved by as many ranks as are asked for, on files alone.
CheckpointManifest simulate(const std::string& folder, const std::vector<UnitSpec>& units,
                            const std::vector<GroupShape>& groups, int files) {
  CheckpointManifest manifest;
  manifest.element = Element::f64;
  manifest.model = "{}";
  manifest.groups = groups;
  manifest.position.tokens_in_round.assign(groups.size(), 0.0);
  for (const UnitSpec& unit : units) {
    manifest.units.push_back(unit.name);
    manifest.unit_sizes.push_back(ShardLayout(unit, 1).size());
  }
  std::vector<std::vector<CheckpointPart>> parts(static_cast<std::size_t>(files));
  int rank = 0, ranks = 0;
  for (const GroupShape& group : groups) ranks += group.ranks();
  for (int g = 0; g < static_cast<int>(groups.size()); ++g)
    for (int r = 0; r < groups[static_cast<std::size_t>(g)].ranks(); ++r, ++rank)
      for (const auto& part : parts_of_rank({CheckpointArray{}}, manifest.unit_sizes, groups, g, r))
        parts[static_cast<std::size_t>(rank * files / ranks)].push_back(part);
  std::filesystem::create_directories(folder + "/data");
  for (int f = 0; f < files; ++f) {
    const auto& here = parts[static_cast<std::size_t>(f)];
    const DataFile made = create_data_file(folder, data_file_name(f), here, units, Element::f64);
    manifest.files.push_back(made.file);
    PartFile file(folder + "/" + made.file.name);
    for (std::size_t i = 0; i < here.size(); ++i) {
      std::vector<double> values;
      for (std::size_t e = here[i].range.begin; e < here[i].range.end; ++e)
        values.push_back(static_cast<double>(here[i].unit) + 1e-6 * static_cast<double>(e));
      StoredPart stored;
      static_cast<CheckpointPart&>(stored) = here[i];
      stored.file = static_cast<std::size_t>(f);
      stored.offset = made.offsets[i];
      stored.hashes = file.write(stored.offset, values.size() * sizeof(double),
                                 [&](std::uint64_t begin, std::uint64_t) { return &values[begin / sizeof(double)]; });
      manifest.parts.push_back(stored);
    }
    file.flush();
  }
  const std::string text = to_text(manifest);
  std::ofstream(folder + "/MANIFEST.json", std::ios::binary) << text;
  std::ofstream(folder + "/COMMIT", std::ios::binary) << commit_text(text);
  return manifest;
}

TEST(Checkpoint, TwoRanksReadWhatSixtyFourWroteAndBack) {
  const Communicator world(MPI_COMM_WORLD);
  if (world.size() > 1) GTEST_SKIP() << "on files alone: one rank is enough";
  // More than one segment of 16 MiB, and sizes that nothing divides.
  const std::vector<UnitSpec> units{
      {"a", {{"x", {1009, 2003}}, {"y", {7}}}}, {"b", {{"z", {3}}}}, {"c", {{"w", {65}}}}};
  const std::vector<std::pair<std::vector<GroupShape>, int>> grids{
      {{{1, 2}}, 1}, {{{1, 64}}, 16}, {std::vector<GroupShape>(8, {2, 4}), 8}, {{{1, 40}, {3, 8}}, 5}};
  for (const auto& [from, files] : grids) {
    const ScratchFolder folder;
    simulate(folder / "c", units, from, files);
    CheckpointReader reader(folder / "c");
    reader.verify_all([](std::uint64_t) {});
    for (const auto& [to, ignored] : grids)
      for (int g = 0; g < static_cast<int>(to.size()); ++g)
        for (int r = 0; r < to[static_cast<std::size_t>(g)].ranks(); ++r)
          for (std::size_t u = 0; u < units.size(); ++u) {
            const GroupShape& shape = to[static_cast<std::size_t>(g)];
            const Range mine = ShardLayout(units[u], shape.shards).owned(r % shape.shards);
            std::vector<double> values(mine.size());
            reader.read(CheckpointArray{}, u, mine, values.data());
            for (std::size_t i = 0; i < values.size(); ++i)
              ASSERT_EQ(values[i], static_cast<double>(u) + 1e-6 * static_cast<double>(mine.begin + i));
          }
  }
}

}  // namespace
}  // namespace atl
