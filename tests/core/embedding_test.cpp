/// SPDX-License-Identifier: Apache-2.0
#include "core/embedding.hpp"

#include "tests/core/host_values.hpp"

namespace atl::test {
namespace {

constexpr std::size_t vocabulary = 257, hidden = 33;

/// n tokens: repeats of a few, and the first and last of the vocabulary.
std::vector<std::int32_t> random_tokens(std::size_t n) {
  std::vector<std::int32_t> tokens(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bits = random_bits(3, i);
    tokens[i] = static_cast<std::int32_t>(i % 3 == 0 ? bits % 5 : bits % vocabulary);
  }
  if (n > 2) tokens[1] = vocabulary - 1, tokens[n - 1] = 0;
  return tokens;
}

template <class T>
std::vector<Accumulator<T>> backward(const TokenIndex& index, const std::vector<T>& dx,
                                     const std::vector<Accumulator<T>>& before) {
  const auto dtable = device(before, vocabulary, hidden);
  embedding_backward<T>(Exec(), index, device(dx, dx.size() / hidden, hidden), dtable);
  return host(dtable);
}

/// Positions in ascending order: the order, and so the bits, that backward promises.
template <class T>
std::vector<Accumulator<T>> naive_backward(const std::vector<std::int32_t>& tokens, const std::vector<T>& dx,
                                           std::vector<Accumulator<T>> dtable) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (std::size_t c = 0; c < hidden; ++c)
      dtable[static_cast<std::size_t>(tokens[i]) * hidden + c] += static_cast<Accumulator<T>>(dx[i * hidden + c]);
  return dtable;
}

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, Floats);

TYPED_TEST(Embedding, CopiesRows) {
  using T = TypeParam;
  const auto table = random_values<T>(1, vocabulary * hidden);
  for (const std::size_t n : {1u, 7u, 300u}) {
    const auto tokens = random_tokens(n);
    const auto x = device(std::vector<T>(n * hidden, nan<T>), n, hidden);
    embedding<T>(Exec(), device(table, vocabulary, hidden), device(tokens), x);
    std::vector<T> expected;
    for (const auto token : tokens)
      for (std::size_t c = 0; c < hidden; ++c) expected.push_back(table[static_cast<std::size_t>(token) * hidden + c]);
    EXPECT_EQ(host(x), expected);
  }
}

TYPED_TEST(Embedding, BackwardAddsRepeatedTokensInOrder) {
  using T = TypeParam;
  TokenIndex index(300);
  for (const std::size_t n : {300u, 1u, 7u, 0u}) {  // the same index again for shorter micro-batches
    const auto tokens = random_tokens(n);
    index.assign(tokens, vocabulary);
    const auto dx = random_values<T>(2, n * hidden), before = random_values<T>(4, vocabulary * hidden);
    const auto gradient = backward<T>(index, dx, before);
    EXPECT_EQ(gradient, naive_backward<T>(tokens, dx, before)) << n;
    EXPECT_EQ(gradient, backward<T>(index, dx, before)) << "again";
  }
}

TYPED_TEST(Embedding, BackwardOfOneTokenEverywhere) {
  using T = TypeParam;
  const std::vector<std::int32_t> tokens(130, 5);
  TokenIndex index(130);
  index.assign(tokens, vocabulary);
  EXPECT_EQ(index.distinct(), 1u);
  const auto dx = random_integers<T>(2, 130 * hidden);
  const std::vector<T> zero(vocabulary * hidden, T(0));
  EXPECT_EQ(backward<T>(index, dx, zero), naive_backward<T>(tokens, dx, zero));
}

TEST(EmbeddingBf16, CopiesBitsAndAddsInFp32) {
  const std::size_t n = 300;
  const auto tokens = random_tokens(n);
  const auto table = converted<bf16>(random_values<float>(1, vocabulary * hidden));
  const auto x = device(std::vector<bf16>(n * hidden), n, hidden);
  embedding<bf16>(Exec(), device(table, vocabulary, hidden), device(tokens), x);
  const auto out = host(x);
  for (std::size_t i = 0; i < out.size(); ++i)
    ASSERT_EQ(out[i].bits, table[static_cast<std::size_t>(tokens[i / hidden]) * hidden + i % hidden].bits);

  TokenIndex index(n);
  index.assign(tokens, vocabulary);
  const auto dx = converted<bf16>(random_values<float>(2, n * hidden));
  const auto before = random_values<float>(4, vocabulary * hidden);
  EXPECT_EQ(backward<bf16>(index, dx, before), naive_backward<bf16>(tokens, dx, before));
}

TEST(TokenIndex, SortsByTokenThenPosition) {
  TokenIndex index(8);
  index.assign({4, 0, 4, 2, 0, 4}, 5);
  EXPECT_EQ(index.distinct(), 3u);
  EXPECT_EQ(host(part(index.tokens, 0, 3)), (std::vector<std::int32_t>{0, 2, 4}));
  EXPECT_EQ(host(part(index.begins, 0, 4)), (std::vector<std::int32_t>{0, 2, 3, 6}));
  EXPECT_EQ(host(part(index.positions, 0, 6)), (std::vector<std::int32_t>{1, 4, 3, 0, 2, 5}));
}

TEST(TokenIndex, RefusesTokensOutsideTheVocabulary) {
  TokenIndex index(3);
  EXPECT_THROW(index.assign({0, 257}, vocabulary), Error);
  EXPECT_THROW(index.assign({0, -1}, vocabulary), Error);
  EXPECT_THROW(index.assign({0, 1, 2, 3}, vocabulary), Error) << "more than its capacity";
}

}  // namespace
}  // namespace atl::test
