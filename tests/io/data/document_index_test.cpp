/// Where documents begin, and batches of packed documents. SPDX-License-Identifier: Apache-2.0
#include "io/data/document_index.hpp"

#include "core/random.hpp"
#include "io/data/batch_source.hpp"
#include "io/data/token_file.hpp"
#include "io/data/token_formats.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <map>

namespace atl {
namespace {

using Ids = std::vector<std::int32_t>;
using Positions = std::vector<std::int64_t>;
constexpr std::int32_t end_token = 257;
constexpr DocumentOptions by_index{Packing::documents, {}};
constexpr DocumentOptions by_token{Packing::documents, end_token};

/// Tokens with an index of documents, in memory; counts what is read of the index.
class IndexedSource : public MemorySource {
 public:
  IndexedSource(std::vector<std::uint16_t> tokens, std::vector<std::uint64_t> offsets)
      : MemorySource("indexed", 0, std::move(tokens)), offsets_(std::move(offsets)) {}
  std::int64_t documents() const override { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  void read_offsets(std::int64_t first, std::span<std::uint64_t> out) const override {
    ++reads;
    ASSERT_LE(static_cast<std::size_t>(first) + out.size(), offsets_.size());
    std::copy_n(offsets_.begin() + first, out.size(), out.begin());
  }
  mutable int reads = 0;

 private:
  std::vector<std::uint64_t> offsets_;
};

/// Documents of the lengths given, each of which ends with end_token; token i is else i + 1.
struct Text {
  std::vector<std::uint16_t> tokens;
  std::vector<std::uint64_t> offsets{0};
  explicit Text(const std::vector<std::size_t>& lengths) {
    for (const std::size_t n : lengths) {
      for (std::size_t i = 0; i < n; ++i)
        tokens.push_back(i + 1 == n ? end_token : static_cast<std::uint16_t>(tokens.size() % 250 + 1));
      offsets.push_back(tokens.size());
    }
  }
  auto indexed() const { return std::make_shared<const IndexedSource>(tokens, offsets); }
  auto plain() const { return std::make_shared<const MemorySource>("plain", 0, tokens); }
};

std::vector<std::size_t> random_lengths(std::size_t n, std::uint64_t most, std::uint64_t seed) {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < n; ++i) lengths.push_back(1 + random_bits(random_key(seed, "lengths"), i) % most);
  return lengths;
}

TEST(PackedSequences, StartsAndTargetsByHand) {
  // Documents [1 2 257] [4 257] [257] [7 8 9 10 257], in sequences of 4; the second token of 257 is a document alone.
  const Text text({3, 2, 1, 5});
  for (const auto& [source, options] :
       {std::pair<TrainingData, DocumentOptions>{text.indexed(), by_index}, {text.plain(), by_token}}) {
    const BatchSource batches(source, 4, 1, options);
    const Sequences sequences(source.sources[0], 4, 0, options);
    ASSERT_EQ(sequences.count(), 3);
    Batch batch;
    sequences.fill(Positions{0, 1, 2, -1}, batch);
    EXPECT_EQ(batch.tokens, (Ids{1, 2, 257, 4, 257, 257, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(batch.targets, (Ids{2, 257, -1, 257, -1, -1, 8, 9, 10, 257, -1, -1, -1, -1, -1, -1}));
    EXPECT_EQ(batch.document_starts, (Ids{0, 0, 0, 3, 0, 1, 2, 2, 0, 0, 2, 2, 0, 0, 0, 0}));
    EXPECT_EQ(batch.target_count(), 11 - 4) << "tokens less documents";
  }
  Batch plain;
  Sequences(text.plain(), 4).fill(Positions{0, 1, 2, -1}, plain);
  EXPECT_TRUE(plain.document_starts.empty());
  EXPECT_EQ(plain.target_count(), 10);
}

// Another way to the same: every token's document by a table of all tokens.
TEST(PackedSequences, AreThoseOfATable) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Text text(random_lengths(1 + seed * 7, 1 + seed % 9 * 5, seed));
    const auto n = static_cast<std::int64_t>(text.tokens.size());
    if (n < 2) continue;
    std::vector<std::int64_t> begin_of;
    for (std::size_t d = 0; d + 1 < text.offsets.size(); ++d)
      begin_of.resize(text.offsets[d + 1], static_cast<std::int64_t>(text.offsets[d]));
    for (const std::int64_t T : {1, 3, 16, 50})
      for (const std::int64_t stride : {T, std::int64_t{1}, (T + 1) / 2}) {
        const Sequences index(text.indexed(), T, stride, by_index), token(text.plain(), T, stride, by_token);
        std::map<std::int64_t, int> counted;
        for (std::int64_t i = 0; i < index.count(); ++i) {
          Batch a, b;
          index.fill(Positions{i}, a);
          token.fill(Positions{i}, b);
          ASSERT_EQ(a.tokens, b.tokens);
          ASSERT_EQ(a.targets, b.targets);
          ASSERT_EQ(a.document_starts, b.document_starts);
          const std::int64_t begin = i * stride;
          for (std::int64_t t = 0; t < T; ++t) {
            const auto at = static_cast<std::size_t>(t);
            const bool inside = begin + t + 1 < n;
            const std::int64_t first = inside ? begin_of[static_cast<std::size_t>(begin + t)] - begin : n - 1 - begin;
            EXPECT_EQ(a.document_starts[at], std::max<std::int64_t>(0, first)) << i << ", " << t;
            if (a.targets[at] != ignored_target) ++counted[begin + t + 1];
          }
        }
        for (std::int64_t p = 1; p < n; ++p)
          EXPECT_EQ(counted[p], begin_of[static_cast<std::size_t>(p)] == p ? 0 : 1) << "token " << p;
      }
  }
}

// What is kept of a large index spares reading, and documents without tokens are passed over.
TEST(DocumentIndex, SearchesALargeIndex) {
  Text text(random_lengths(60000, 5, 3));
  std::vector<std::uint64_t> offsets;
  for (std::size_t d = 0; d < text.offsets.size(); ++d) offsets.resize(offsets.size() + 1 + d % 3, text.offsets[d]);
  offsets.erase(offsets.begin());  // the first is 0 all the same
  const auto source = std::make_shared<const IndexedSource>(text.tokens, offsets);
  const DocumentIndex index(source, {});
  const DocumentIndex plain(text.plain(), end_token);
  Ids window(300);
  const auto last = static_cast<std::uint64_t>(text.tokens.size() - window.size());
  const auto compare = [&](std::int64_t begin) {
    source->read(begin, window);
    ASSERT_EQ(index.begins(begin, window), plain.begins(begin, window)) << begin;
  };
  for (std::uint64_t i = 0; i < 2000; ++i) compare(static_cast<std::int64_t>(random_bits(7, i) % (last + 1)));
  compare(0);
  compare(static_cast<std::int64_t>(last));
  source->reads = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) compare(static_cast<std::int64_t>(random_bits(8, i) % (last + 1)));
  EXPECT_LE(source->reads, 2100) << "one or two reads a window, once the search is known";
}

TEST(DocumentIndex, FilesWithAnIndexAndPatternsOfThem) {
  const ScratchFolder folder;
  const Text text(random_lengths(200, 20, 5));
  TokenFileWriter writer(folder / "x.h5", 300, "test");
  for (std::size_t d = 0; d + 1 < text.offsets.size(); ++d) {
    writer.append(Ids(text.tokens.begin() + static_cast<std::ptrdiff_t>(text.offsets[d]),
                      text.tokens.begin() + static_cast<std::ptrdiff_t>(text.offsets[d + 1])));
    writer.end_document(1, 0);
  }
  writer.finish();
  const std::shared_ptr<const TokenSource> file = std::make_shared<const TokenFile>(folder / "x.h5");
  const auto megatron = open_tokens(ATOLL_SOURCE_DIR "/tests/fixtures/tokens/megatron_uint16", {});
  ASSERT_GT(megatron->documents(), 1);
  const auto joined = join("both", {file, megatron, file});
  const Sequences sequences(joined, 64, 0, by_index);
  Batch batch;
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < sequences.count(); ++i) {
    sequences.fill(Positions{i}, batch);
    counted += batch.target_count();
  }
  std::vector<std::uint64_t> offsets(static_cast<std::size_t>(megatron->documents()) + 1);
  megatron->read_offsets(0, offsets);
  std::int64_t empty = 0;
  for (std::size_t d = 1; d < offsets.size(); ++d) empty += offsets[d] == offsets[d - 1];
  EXPECT_EQ(counted, joined->tokens() - joined->documents() + empty);

  // The index counts, also where a token that ends documents is given for other sources.
  Batch given;
  Sequences(joined, 64, 0, {Packing::documents, 1}).fill(Positions{0, 1, 2}, given);
  sequences.fill(Positions{0, 1, 2}, batch);
  EXPECT_EQ(given.document_starts, batch.document_starts);
}

TEST(DocumentIndex, SourcesThatDoNotSay) {
  const Text text({3, 2});
  EXPECT_EQ(message_of<DataError>([&] { Sequences(text.plain(), 4, 0, by_index); }),
            "plain: does not say where its documents begin, as data.packing = \"documents\" needs; give "
            "data.end_of_document (--end-of-document), the id of the token that ends each, or use data.packing = "
            "\"concatenate\"");
  EXPECT_EQ(message_of<DataError>([&] {
              Sequences(text.plain(), 4, 0, {Packing::documents, 299});
            }),
            "plain: has no token 299 (data.end_of_document) among its first 5 tokens; give the id of the token that "
            "ends each document: atoll data inspect --end-of-document ID counts them");
}

// A sequence is the same wherever it is dealt to: packing depends on the place in its source alone.
TEST(BatchSource, PackedSequencesOfMixturesDependOnThePositionAlone) {
  const Text a(random_lengths(300, 20, 1)), b(random_lengths(300, 9, 2));
  const TrainingData data({a.indexed(), b.plain()}, {3, 1});
  const BatchSource source(data, 16, 7, by_token);
  Positions all(64);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Batch whole = source.batch(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Batch one = source.batch(Positions{all[i]});
    const auto at = static_cast<std::ptrdiff_t>(16 * i);
    EXPECT_EQ(one.document_starts, Ids(whole.document_starts.begin() + at, whole.document_starts.begin() + at + 16));
    EXPECT_EQ(one.targets, Ids(whole.targets.begin() + at, whole.targets.begin() + at + 16));
    const BatchSource::Place place = source.place(all[i]);
    Batch expected;
    Sequences(data.sources[place.source], 16, 0, by_token).fill(Positions{place.sequence}, expected);
    EXPECT_EQ(one.document_starts, expected.document_starts);
  }
}

}  // namespace
}  // namespace atl
