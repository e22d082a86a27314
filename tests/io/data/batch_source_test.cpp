/// Sequences, their order, and what is done with too few. SPDX-License-Identifier: Apache-2.0
#include "io/data/batch_source.hpp"

#include "core/errors.hpp"
#include "io/data/token_file.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace atl {
namespace {

/// Token i is i + 1, so that padding (0) shows.
std::shared_ptr<const MemorySource> counting(std::size_t n) {
  std::vector<std::uint16_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{1});
  return std::make_shared<const MemorySource>("counting", 65536, tokens);
}

using Ids = std::vector<std::int32_t>;
using Positions = std::vector<std::int64_t>;

TEST(Sequences, ShiftsTargetsAndPadsTheLast) {
  const Sequences sequences(counting(9), 3);  // 8 targets: 3 + 3 + 2
  ASSERT_EQ(sequences.count(), 3);
  Batch batch;
  sequences.fill(Positions{2, -1, 0}, batch);
  EXPECT_EQ(batch.sequences, 3);
  EXPECT_EQ(batch.length, 3);
  EXPECT_EQ(batch.tokens, (Ids{7, 8, 0, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(batch.targets, (Ids{8, 9, -1, -1, -1, -1, 2, 3, 4}));
}

TEST(Sequences, EveryTokenButTheFirstIsATargetOnce) {
  for (std::size_t n = 2; n < 40; ++n) {
    for (std::int64_t T = 1; T < 12; ++T) {
      const Sequences sequences(counting(n), T);
      EXPECT_EQ(sequences.count(), (static_cast<std::int64_t>(n) - 1 + T - 1) / T);
      std::vector<int> seen(n + 1);
      Batch batch;
      for (std::int64_t i = 0; i < sequences.count(); ++i) {
        sequences.fill(Positions{i}, batch);
        EXPECT_GE(batch.target_count(), 1);
        for (std::size_t j = 0; j < batch.targets.size(); ++j) {
          if (batch.targets[j] == ignored_target) continue;
          EXPECT_EQ(batch.targets[j], batch.tokens[j] + 1);
          ++seen[static_cast<std::size_t>(batch.targets[j])];
        }
      }
      for (std::size_t id = 2; id <= n; ++id) ASSERT_EQ(seen[id], 1) << n << " tokens, T = " << T << ", token " << id;
    }
  }
}

TEST(Sequences, OfAFileAreThoseOfMemory) {
  const ScratchFolder folder;
  TokenFileWriter writer(folder / "x.h5", 300, "test");
  Ids ids(100);
  std::iota(ids.begin(), ids.end(), 1);
  writer.append(ids);
  writer.end_document(100, 0);
  writer.finish();
  const Sequences file(std::make_shared<const TokenFile>(folder / "x.h5"), 7), memory(counting(100), 7);
  Positions all(static_cast<std::size_t>(memory.count()));
  std::iota(all.begin(), all.end(), 0);
  Batch a, b;
  file.fill(all, a);
  memory.fill(all, b);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.targets, b.targets);
}

TEST(BatchSource, EpochsAreDifferentPermutations) {
  const BatchSource source(counting(101), 4, 77);  // 25 sequences
  std::vector<Positions> epochs(2);
  for (std::int64_t position = 0; position < 50; ++position) {
    epochs[static_cast<std::size_t>(position / 25)].push_back(source.place(position).sequence);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 25u);
  EXPECT_NE(
      BatchSource(counting(101), 4, 78).place(0).sequence * 25 + BatchSource(counting(101), 4, 78).place(1).sequence,
      epochs[0][0] * 25 + epochs[0][1]);

  const Batch batch = source.batch(Positions{26, -1});
  EXPECT_EQ(batch.tokens[0], source.place(26).sequence * 4 + 1);
  EXPECT_EQ(batch.targets[4], ignored_target);
}

TEST(BatchSource, TooFewSequencesForAStep) {
  const BatchSource source(counting(101), 4, 77);
  source.require_sequences(25);
  EXPECT_EQ(message_of<DataError>([&] { source.require_sequences(26); }),
            "counting: has 25 sequences of 4 tokens, but one step of all groups takes 26; use more data, a smaller "
            "train.batch or a shorter data.sequence_length");
  EXPECT_EQ(message_of<DataError>([] { Sequences(counting(1), 4); }),
            "counting: has 1 tokens; at least 2 are needed to predict one");
}

TEST(EvaluationSource, EveryRankCountSeesEverySequenceOnce) {
  for (const int ranks : {1, 2, 3, 4, 7, 40}) {
    for (const std::int64_t micro : {1, 2, 5}) {
      std::multiset<std::int32_t> targets;
      for (int rank = 0; rank < ranks; ++rank) {
        const EvaluationSource source(counting(101), 4, ranks, rank, micro);
        const std::int64_t rounds = EvaluationSource(counting(101), 4, ranks, 0, micro).micro_batches();
        EXPECT_EQ(source.micro_batches(), rounds);
        for (std::int64_t a = 0; a < source.micro_batches(); ++a) {
          const Batch batch = source.batch(a);
          EXPECT_LE(batch.sequences, micro);
          for (const auto target : batch.targets) {
            if (target != ignored_target) targets.insert(target);
          }
        }
      }
      EXPECT_EQ(targets.size(), 100u);
      EXPECT_EQ(std::set<std::int32_t>(targets.begin(), targets.end()).size(), 100u);
    }
  }
}

TEST(EvaluationSource, LimitTakesTheFirstSequences) {
  std::int64_t count = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const EvaluationSource source(counting(101), 4, 3, rank, 2, 5);
    for (std::int64_t a = 0; a < source.micro_batches(); ++a) {
      for (const auto target : source.batch(a).targets) {
        EXPECT_LE(target, 21);
        count += target != ignored_target;
      }
    }
  }
  EXPECT_EQ(count, 20);
}

}  // namespace
}  // namespace atl
