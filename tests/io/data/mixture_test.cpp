/// Mixtures: proportions, each sequence once an epoch, restarts. SPDX-License-Identifier: Apache-2.0
#include "io/data/mixture.hpp"

#include "core/errors.hpp"
#include "core/random.hpp"
#include "io/data/batch_source.hpp"
#include "io/data/step_schedule.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace atl {
namespace {

using Weights = std::vector<double>;

const Weights mixtures[] = {
    {1}, {1, 1}, {0.7, 0.2, 0.1}, {1, 1e-3}, {5, 3, 2, 7, 1, 1, 11}, Weights(16, 1), {0.98, 0.01, 0.01}};

double depth(std::size_t sources) { return std::ceil(std::log2(static_cast<double>(sources))); }

TEST(MixtureOrder, ProportionsAreExactForEver) {
  for (const Weights& weights : mixtures) {
    const MixtureOrder order(weights, 5);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.);
    std::vector<std::int64_t> counts(weights.size());
    for (std::int64_t position = 0; position < 256 * 400; ++position) {
      ++counts[order(position).source];
      if ((position + 1) % 256 != 0) continue;
      for (std::size_t k = 0; k < weights.size(); ++k)
        ASSERT_LE(std::abs(static_cast<double>(counts[k]) - weights[k] / total * static_cast<double>(position + 1)),
                  depth(weights.size()) / 2 + 1e-6)
            << "source " << k << " of " << weights.size() << " after " << position + 1;
    }
  }
}

TEST(MixtureOrder, EachSourceCountsItsOwnWithoutGaps) {
  for (const Weights& weights : mixtures) {
    const MixtureOrder order(weights, 5);
    std::vector<std::set<std::int64_t>> seen(weights.size());
    for (std::int64_t position = 0; position < 256 * 100; ++position) {
      const auto place = order(position);
      EXPECT_TRUE(seen[place.source].insert(place.index).second);
    }
    for (const auto& indices : seen)
      EXPECT_EQ(indices.empty() ? 0u : static_cast<std::uint64_t>(*indices.rbegin()) + 1, indices.size());
  }
}

TEST(MixtureOrder, HoldsFarAway) {  // beyond 2^53, where doubles have no halves
  const MixtureOrder order({0.7, 0.3}, 1);
  const std::int64_t far = (std::int64_t{1} << 60);
  std::int64_t left = 0;
  std::set<std::int64_t> indices;
  for (std::int64_t position = far; position < far + 2560; ++position) {
    const auto place = order(position);
    left += place.source == 0;
    if (place.source == 0) indices.insert(place.index);
  }
  EXPECT_NEAR(static_cast<double>(left), 1792, 1);
  EXPECT_EQ(*indices.rbegin() - *indices.begin() + 1, left);
  EXPECT_NEAR(static_cast<double>(*indices.begin()), 0.7 * static_cast<double>(far),
              0.7 * static_cast<double>(far) * 1e-15);
}

// Two sources of equal weight, two slots of a batch: in plain alternation each slot would see one source alone.
TEST(MixtureOrder, SlotsOfABatchSeeAllSources) {
  const MixtureOrder order({1, 1}, 9);
  for (const std::int64_t stride : {2, 4, 8, 64, 256}) {
    std::int64_t first = 0;
    for (std::int64_t step = 0; step < 2000; ++step) first += order(step * stride).source == 0;
    EXPECT_NEAR(static_cast<double>(first), 1000, 5 * std::sqrt(500))
        << "every " << stride;  // five standard deviations
  }
}

TEST(MixtureOrder, SeedShufflesOnly) {
  std::int64_t different = 0;
  for (std::int64_t position = 0; position < 1000; ++position)
    different += MixtureOrder({1, 1}, 1)(position).source != MixtureOrder({1, 1}, 2)(position).source;
  EXPECT_GT(different, 400);
}

/// Token i is first + i.
std::shared_ptr<const TokenSource> counting(std::uint16_t first, std::size_t n) {
  std::vector<std::uint16_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return std::make_shared<const MemorySource>("from " + std::to_string(first), 65536, tokens);
}

TrainingData three() {
  return {{counting(1000, 41), counting(2000, 201), counting(3000, 401)},
          {0.5, 0.3, 0.2}};  // 10, 50, 100 sequences of 4
}

TEST(Mixture, EverySourceHasItsOwnEpochs) {
  const BatchSource source(three(), 4, 11);
  std::map<std::pair<std::size_t, std::int64_t>, std::multiset<std::int64_t>> epochs;
  for (std::int64_t position = 0; position < 256 * 4; ++position) {
    const auto place = source.place(position);
    epochs[{place.source, place.epoch}].insert(place.sequence);
  }
  const std::size_t counts[] = {10, 50, 100};
  std::vector<std::int64_t> whole(3);
  for (const auto& [key, sequences] : epochs) {
    EXPECT_EQ(std::set<std::int64_t>(sequences.begin(), sequences.end()).size(), sequences.size());
    whole[key.first] += sequences.size() == counts[key.first];
  }
  EXPECT_EQ(whole, (std::vector<std::int64_t>{51, 6, 2}));  // of 512, 307 and 205 sequences
}

TEST(Mixture, BatchesHoldTheTokensOfTheirPlaces) {
  const BatchSource source(three(), 4, 11);
  const Batch batch = source.batch(std::vector<std::int64_t>{5, -1, 700});
  for (const std::size_t slot : {0u, 2u}) {
    const auto place = source.place(slot == 0 ? 5 : 700);
    const auto first =
        static_cast<std::int32_t>(1000 * (place.source + 1)) + static_cast<std::int32_t>(4 * place.sequence);
    EXPECT_EQ(batch.tokens[4 * slot], first);
    EXPECT_EQ(batch.targets[4 * slot + 3], first + 4);
  }
  EXPECT_EQ(batch.targets[4], ignored_target);
}

// The sequences of a step are a function of the cursor alone, on any grid.
TEST(Mixture, GridsAgreeFromAnyCursor) {
  const BatchSource source(three(), 4, 11);
  std::set<std::multiset<std::vector<std::int32_t>>> steps;
  for (const int ranks : {1, 2, 3, 6}) {
    ParallelOptions parallel;
    TrainOptions train;
    train.batch = 12;
    std::multiset<std::vector<std::int32_t>> step;
    for (int rank = 0; rank < ranks; ++rank) {
      const StepSchedule schedule(ProcessGrid(parallel, ranks, rank), train);
      for (std::int64_t m = 0; m < schedule.micro_batches(); ++m) {
        const Batch batch = source.batch(schedule.positions(1234, m));
        for (std::int64_t b = 0; b < batch.sequences; ++b) {
          const std::vector<std::int32_t> tokens(batch.tokens.begin() + 4 * b, batch.tokens.begin() + 4 * b + 4);
          if (tokens[0] != 0) step.insert(tokens);
        }
      }
    }
    EXPECT_EQ(step.size(), 12u);
    steps.insert(step);
  }
  EXPECT_EQ(steps.size(), 1u);
}

TEST(Mixture, OneSourceIsAsWithoutMixture) {
  const BatchSource alone(counting(1, 101), 4, 77), weighted({{counting(1, 101)}, {0.3}}, 4, 77);
  for (std::int64_t position = 0; position < 60; ++position)
    EXPECT_EQ(alone.place(position).sequence, weighted.place(position).sequence);
}

TEST(Mixture, WithoutWeightsBySize) {
  const TrainingData data{{counting(1000, 41), counting(2000, 121)}, {}};  // 10 and 30 sequences
  const BatchSource source(data, 4, 3);
  std::int64_t first = 0;
  for (std::int64_t position = 0; position < 2560; ++position) first += source.place(position).source == 0;
  EXPECT_EQ(first, 640);
  EXPECT_EQ(source.describe(80), (std::vector<std::string>{"from 1000: 25 % of the sequences, 2 epochs",
                                                           "from 2000: 75 % of the sequences, 2 epochs"}));
}

TEST(Mixture, TooFewSequencesOfOneSource) {
  const BatchSource source(three(), 4, 11);
  source.require_sequences(20);
  EXPECT_EQ(
      message_of<DataError>([&] { source.require_sequences(22); }),
      "from 1000: has 10 sequences of 4 tokens, but one step of all groups takes 11 of it; use more data, a smaller "
      "train.batch, a smaller weight or a shorter data.sequence_length");
}

}  // namespace
}  // namespace atl
