/// A checkpoint that an older atoll wrote is read for ever. SPDX-License-Identifier: Apache-2.0
#include "tests/io/checkpoint/saved_run.hpp"

#include <numeric>

namespace atl {
namespace {

using R = float;

// tests/fixtures/make_checkpoint.sh made it; h5py and NumPy read the numbers below from its data file.
const std::string golden = ATOLL_SOURCE_DIR "/tests/fixtures/checkpoint_v1";

/// First and last element of all units together, and the sum of all.
struct Numbers {
  double first, last, sum;
};
void expect_numbers(const std::vector<std::vector<R>>& units, const Numbers& expected, const std::string& what) {
  double sum = 0;
  for (const auto& unit : units) sum = std::accumulate(unit.begin(), unit.end(), sum);
  EXPECT_EQ(units.front().front(), static_cast<R>(expected.first)) << what;
  EXPECT_EQ(units.back().back(), static_cast<R>(expected.last)) << what;
  EXPECT_NEAR(sum, expected.sum, 1e-12) << what;
}
/// The same of means, which are rounded.
void expect_means(const std::vector<std::vector<R>>& units, const Numbers& a, const Numbers& b,
                  const std::string& what) {
  double sum = 0;
  for (const auto& unit : units) sum = std::accumulate(unit.begin(), unit.end(), sum);
  EXPECT_NEAR(units.front().front(), (a.first + b.first) / 2, 1e-9) << what;
  EXPECT_NEAR(units.back().back(), (a.last + b.last) / 2, 1e-9) << what;
  EXPECT_NEAR(sum, (a.sum + b.sum) / 2, 1e-7) << what;
}

const Numbers mean_model{-0.038846195, 0.99002546, 23.691438813024433};
const Numbers models[]{{-0.045946386, 0.98947644, 23.511067294648456}, {-0.031746008, 0.9905745, 23.871809879171906}};
const Numbers moments1[]{{0.00744279, -4.4912387e-05, 0.17426781842420258},
                         {-0.0018335383, -6.555622e-05, 0.20544730136489164}};
const Numbers moments2[]{{0.00028677692, 1.3022719e-08, 0.1564363249299375},
                         {1.3875489e-05, 2.2469296e-08, 0.1541882812365844}};
const Numbers anchor{-0.03858547, 0.9853655, 23.70499479502905};
const Numbers outer_moment1{0.013119698, 0.011003375, 0.23483999850577675};

TEST(CheckpointGolden, Version1IsReadAndVerified) {
  CheckpointReader reader(golden);
  std::uint64_t bytes = 0;
  reader.verify_all([&](std::uint64_t done) { bytes = done; });
  EXPECT_EQ(bytes, reader.manifest().bytes());
  const CheckpointManifest& manifest = reader.manifest();
  EXPECT_EQ(manifest.run_id, "121fc673bb73bca6");
  EXPECT_EQ(manifest.atoll, "0.1.0");
  EXPECT_EQ(manifest.element, Element::f32);
  EXPECT_EQ(manifest.groups, (std::vector<GroupShape>{{1, 1}, {1, 1}}));
  EXPECT_EQ(manifest.units, (std::vector<std::string>{"embedding", "block 0"}));
  EXPECT_EQ(manifest.unit_sizes, (std::vector<std::size_t>{264, 496}));
  EXPECT_EQ(manifest.configuration.at("federation").at("outer"), "sgd");
  EXPECT_EQ(manifest.data.at("tokens"), 4000);
  const TrainingPosition& position = manifest.position;
  EXPECT_EQ(position.step, 6);
  EXPECT_EQ(position.round, 1);
  EXPECT_TRUE(position.in_round);
  EXPECT_EQ(position.cursor, 48);
  EXPECT_EQ(position.tokens, 384);
  EXPECT_EQ(position.optimizer_steps, 6);
  EXPECT_FALSE(position.optimizer_reset);
  EXPECT_EQ(position.tokens_in_round, (std::vector<double>{64, 64}));
  EXPECT_EQ(position.tokens_last_round, (std::vector<double>{128, 128}));
}

// Every rank is a group: one goes on from the means, two have their own.
TEST(CheckpointGolden, Version1IsRestored) {
  const int groups = world_ranks();
  const LlamaConfig config = read_model_info(golden).config;
  EXPECT_EQ(config.hidden_size, 8);
  TinyOptions options = SavedRun::options();
  options.federation.every = 4;
  options.federation.outer = FederationOptions::Outer::sgd;
  TinyRun<float> run(grid_of(std::vector<GroupShape>(static_cast<std::size_t>(groups))), config, options);
  CheckpointReader reader(golden, run.communicators.world);
  const auto told = restore_state<float>(run.exec, reader, {run.parameters, run.optimizer, run.federation}, run.grid,
                                         run.communicators);
  const auto model = run.masters(), moment1 = run.full(&ShardedUnit<float>::moment1),
             moment2 = run.full(&ShardedUnit<float>::moment2);
  const int own = run.grid.group();
  if (groups == 2) {
    EXPECT_EQ(told, std::vector<std::string>());
    expect_numbers(model, models[own], "model");
    expect_numbers(moment1, moments1[own], "moment1");
    expect_numbers(moment2, moments2[own], "moment2");
    EXPECT_EQ(run.federation.tokens_in_round(), 64);
  } else {
    EXPECT_EQ(told.size(), 2u);
    expect_numbers(model, mean_model, "model");
    expect_means(moment1, moments1[0], moments1[1], "moment1");
    expect_means(moment2, moments2[0], moments2[1], "moment2");
  }
  std::vector<std::vector<R>> anchors, outer_moments;
  for (const OuterState<float>& outer : run.federation.outer_state()) {
    anchors.push_back(to_host(outer.anchor));
    outer_moments.push_back(to_host(outer.moment1));
  }
  expect_numbers(anchors, anchor, "outer anchor");
  expect_numbers(outer_moments, outer_moment1, "outer moment1");
  EXPECT_EQ(run.optimizer.steps(), 6);
  EXPECT_EQ(run.federation.round(), 1);
}

}  // namespace
}  // namespace atl
