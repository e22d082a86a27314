/// SPDX-License-Identifier: Apache-2.0
#include "core/attention.hpp"

#include "tests/core/attention_cases.hpp"
#include "tests/core/finite_differences.hpp"

namespace atl::test {
namespace {

// Lengths around the edges of blocks of 4 to 64 positions, head sizes that are no multiple of a vector.
constexpr Shape shapes[] = {{1, 1, 1, 1, 8},    {2, 7, 2, 1, 12},   {3, 23, 4, 2, 8},
                            {1, 64, 2, 2, 64},  {2, 65, 4, 1, 8},   {1, 65, 2, 1, 64},
                            {1, 130, 2, 2, 80}, {2, 130, 4, 2, 12}, {1, 9, 2, 1, 128}};

// fp32: scores are sums of D products, outputs averages over T values; a few ulp (6e-8) of the largest one each.
// bf16: a probability that is rounded before it is multiplied is off by half of 2^-8, and their weighted mean of values
// by that much of the largest value; the output is rounded once more.
constexpr double bf16_forward_tolerance = bf16_tolerance;

template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-12 : 3e-6;

template <class T>
Attended<double> naive(const Shape& n, const std::vector<T>& qkv) {
  Attended<double> y{std::vector<double>(rows(n) * out_width(n)), std::vector<double>(rows(n) * n.query_heads)};
  const auto at = [&](std::size_t row, std::size_t head, std::size_t d) {
    return static_cast<double>(qkv[row * n.width() + head * n.head_size + d]);
  };
  for (std::size_t b = 0; b < n.sequences; ++b)
    for (std::size_t h = 0; h < n.query_heads; ++h)
      for (std::size_t t = 0; t < n.length; ++t) {
        const std::size_t key = n.query_heads + h / (n.query_heads / n.key_value_heads),
                          value = key + n.key_value_heads;
        const std::size_t row = b * n.length + t;
        std::vector<double> score(t + 1, 0.0);
        for (std::size_t j = 0; j <= t; ++j)
          for (std::size_t d = 0; d < n.head_size; ++d)
            score[j] += at(row, h, d) * at(b * n.length + j, key, d) / std::sqrt(static_cast<double>(n.head_size));
        const double largest = *std::max_element(score.begin(), score.end());
        double sum = 0;
        for (const double s : score) sum += std::exp(s - largest);
        y.lse[(b * n.query_heads + h) * n.length + t] = largest + std::log(sum);
        for (std::size_t j = 0; j <= t; ++j)
          for (std::size_t d = 0; d < n.head_size; ++d)
            y.out[row * out_width(n) + h * n.head_size + d] +=
                std::exp(score[j] - largest) / sum * at(b * n.length + j, value, d);
      }
  return y;
}

template <class T>
std::vector<T> slice(const std::vector<T>& all, std::size_t begin, std::size_t size) {
  return std::vector<T>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                        all.begin() + static_cast<std::ptrdiff_t>(begin + size));
}

template <class T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, Floats);

TYPED_TEST(Attention, ForwardMatchesNaive) {
  for (const Shape& n : shapes) {
    const auto qkv = random_qkv<TypeParam>(n);
    const auto expected = naive(n, qkv);
    const auto y = forward(n, qkv);
    EXPECT_LT(relative_error(y.out, expected.out), tolerance<TypeParam>) << text(n);
    EXPECT_LT(relative_error(y.lse, expected.lse), tolerance<TypeParam>) << text(n);
  }
}

TYPED_TEST(Attention, LargeScoresStayFinite) {
  // Scores of several thousand: the softmax picks single keys, and the largest one moves from block to block.
  const Shape n{1, 130, 2, 1, 12};
  const auto qkv = random_qkv<TypeParam>(n, 60);
  const auto expected = naive(n, qkv);
  const auto y = forward(n, qkv);
  // A score of 1e4 is off by 1e4 ulp(1) in fp32, and so is a probability, relatively.
  const double allowed = std::is_same_v<TypeParam, double> ? 1e-10 : 5e-3;
  EXPECT_LT(relative_error(y.out, expected.out), allowed);
  EXPECT_LT(relative_error(y.lse, expected.lse), tolerance<TypeParam>);
  const auto gradient = backward(n, qkv, random_dout<TypeParam>(n));
  EXPECT_TRUE(std::isfinite(relative_error(gradient, gradient)));
}

TYPED_TEST(Attention, LaterTokensChangeNothingBefore) {
  using T = TypeParam;
  const Shape n{2, 130, 4, 2, 12};
  const auto qkv = random_qkv<T>(n), dout = random_dout<T>(n);
  const auto y = forward(n, qkv);
  for (const std::size_t from : {1u, 63u, 64u, 65u, 129u}) {
    auto changed = qkv, early_dout = dout;
    for (std::size_t row = 0; row < rows(n); ++row) {
      if (row % n.length < from) continue;
      for (std::size_t c = 0; c < n.width(); ++c) changed[row * n.width() + c] = T(c % 2 == 0 ? 1e4 : -1e4);
      for (std::size_t c = 0; c < out_width(n); ++c) early_dout[row * out_width(n) + c] = 0;
    }
    const auto other = forward(n, changed);
    const auto gradient = backward(n, qkv, early_dout);
    for (std::size_t b = 0; b < n.sequences; ++b) {
      const std::size_t begin = b * n.length * out_width(n), size = from * out_width(n);
      EXPECT_EQ(slice(other.out, begin, size), slice(y.out, begin, size)) << from;
      for (std::size_t h = 0; h < n.query_heads; ++h) {
        const std::size_t row = (b * n.query_heads + h) * n.length;
        EXPECT_EQ(slice(other.lse, row, from), slice(y.lse, row, from)) << from;
      }
      // And a loss of the early outputs has no gradient for later tokens.
      const std::size_t late = (b * n.length + from) * n.width(), rest = (n.length - from) * n.width();
      EXPECT_EQ(slice(gradient, late, rest), std::vector<T>(rest, T(0))) << from;
    }
  }
}

TYPED_TEST(Attention, SequencesOfABatchAreIndependent) {
  using T = TypeParam;
  for (const Shape& n : {Shape{3, 23, 4, 2, 8}, Shape{3, 130, 2, 1, 12}}) {
    const auto qkv = random_qkv<T>(n), dout = random_dout<T>(n);
    const auto y = forward(n, qkv);
    const auto gradient = backward(n, qkv, dout);
    Shape one = n;
    one.sequences = 1;
    for (std::size_t b = 0; b < n.sequences; ++b) {
      const auto alone = slice(qkv, b * qkv.size() / 3, qkv.size() / 3),
                 alone_dout = slice(dout, b * dout.size() / 3, dout.size() / 3);
      const auto y_alone = forward(one, alone);
      EXPECT_EQ(y_alone.out, slice(y.out, b * y.out.size() / 3, y.out.size() / 3));
      EXPECT_EQ(y_alone.lse, slice(y.lse, b * y.lse.size() / 3, y.lse.size() / 3));
      EXPECT_EQ(backward(one, alone, alone_dout), slice(gradient, b * gradient.size() / 3, gradient.size() / 3));
    }
  }
}

TYPED_TEST(Attention, RepeatsBitForBit) {
  const Shape n{2, 130, 4, 2, 12};
  const auto qkv = random_qkv<TypeParam>(n), dout = random_dout<TypeParam>(n);
  EXPECT_EQ(forward(n, qkv).out, forward(n, qkv).out);
  EXPECT_EQ(backward(n, qkv, dout), backward(n, qkv, dout));
}

TEST(AttentionGradient, MatchesFiniteDifferences) {
  for (const Shape& n : shapes) {
    SCOPED_TRACE(text(n));
    const auto qkv = random_qkv<double>(n), dout = random_dout<double>(n);
    const auto gradient = backward(n, qkv, dout);
    expect_gradient([&](const std::vector<double>& moved) { return dot(forward(n, moved).out, dout); }, qkv, gradient);
  }
}

// Queries, keys and values apart: their gradients differ in size, and a sum of all could hide the smallest.
TEST(AttentionGradient, MatchesFiniteDifferencesOfEachPart) {
  const Shape n{2, 67, 4, 2, 12};
  const auto qkv = random_qkv<double>(n), dout = random_dout<double>(n);
  const auto gradient = backward(n, qkv, dout);
  const std::size_t ends[] = {0, n.query_heads * n.head_size, (n.query_heads + n.key_value_heads) * n.head_size,
                              n.width()};
  for (int part = 0; part < 3; ++part) {
    SCOPED_TRACE(part);
    std::vector<std::size_t> elements;
    for (std::size_t i = 0; i < qkv.size(); ++i)
      if (i % n.width() >= ends[part] && i % n.width() < ends[part + 1]) elements.push_back(i);
    std::vector<double> x, exact;
    for (const std::size_t i : elements) x.push_back(qkv[i]), exact.push_back(gradient[i]);
    const auto f = [&](const std::vector<double>& moved) {
      auto all = qkv;
      for (std::size_t i = 0; i < elements.size(); ++i) all[elements[i]] = moved[i];
      return dot(forward(n, all).out, dout);
    };
    expect_gradient(f, x, exact);
  }
}

// Documents packed into sequences, as lengths that fill a sequence: of one token, ends on and around the edges of
// blocks, documents that hide whole blocks of keys, and the same in no two sequences of a batch.
const Packed packed[] = {{{2, 23, 4, 2, 8}, {{5, 1, 11, 6}, {23}}},
                         {{2, 130, 4, 2, 12}, {{64, 66}, {1, 62, 2, 65}}},
                         {{1, 200, 2, 1, 64}, {{100, 1, 99}}},
                         {{2, 330, 2, 1, 20}, {{10, 130, 190}, {129, 3, 3, 57, 138}}},
                         {{1, 70, 1, 1, 8}, {std::vector<std::size_t>(70, 1)}}};

/// f(document's shape, rows of it in the batch, its first row) for all documents.
template <class F>
void for_each_document(const Packed& p, const F& f) {
  std::size_t row = 0;
  for (const auto& lengths : p.documents)
    for (const std::size_t length : lengths) {
      Shape one = p.shape;
      one.sequences = 1;
      one.length = length;
      f(one, row);
      row += length;
    }
}

TYPED_TEST(Attention, DocumentsOfASequenceAreIndependent) {
  using T = TypeParam;
  for (const Packed& p : packed) {
    SCOPED_TRACE(text(p.shape));
    const auto qkv = random_qkv<T>(p.shape), dout = random_dout<T>(p.shape);
    const auto y = forward(p.shape, qkv, p.first_keys());
    const auto gradient = backward(p.shape, qkv, dout, p.first_keys());
    Attended<T> expected{{}, std::vector<Accumulator<T>>(y.lse.size())};
    std::vector<T> expected_gradient;
    for_each_document(p, [&](const Shape& one, std::size_t row) {
      const auto alone = slice(qkv, row * one.width(), one.length * one.width()),
                 alone_dout = slice(dout, row * out_width(one), one.length * out_width(one));
      const auto y_alone = forward(one, alone);
      expected.out.insert(expected.out.end(), y_alone.out.begin(), y_alone.out.end());
      const auto d = backward(one, alone, alone_dout);
      expected_gradient.insert(expected_gradient.end(), d.begin(), d.end());
      const std::size_t sequence = row / p.shape.length, first = row % p.shape.length;
      for (std::size_t h = 0; h < one.query_heads; ++h)
        for (std::size_t t = 0; t < one.length; ++t)
          expected.lse[(sequence * one.query_heads + h) * p.shape.length + first + t] = y_alone.lse[h * one.length + t];
    });
    EXPECT_LT(relative_error(y.out, expected.out), tolerance<T>);
    EXPECT_LT(relative_error(y.lse, expected.lse), tolerance<T>);
    EXPECT_LT(relative_error(gradient, expected_gradient), tolerance<T>);
  }
}

// Not to a rounding, but to the bit, and whatever is there.
TYPED_TEST(Attention, OtherDocumentsChangeNoBit) {
  using T = TypeParam;
  for (const Packed& p : packed) {
    SCOPED_TRACE(text(p.shape));
    const auto qkv = random_qkv<T>(p.shape), dout = random_dout<T>(p.shape);
    const auto y = forward(p.shape, qkv, p.first_keys());
    const auto gradient = backward(p.shape, qkv, dout, p.first_keys());
    for_each_document(p, [&](const Shape& one, std::size_t row) {
      auto changed = qkv, other_dout = dout;
      for (std::size_t i = 0; i < rows(p.shape); ++i) {
        if (i >= row && i < row + one.length) continue;
        for (std::size_t c = 0; c < one.width(); ++c) changed[i * one.width() + c] = T(c % 2 == 0 ? 1e4 : -1e4);
        for (std::size_t c = 0; c < out_width(one); ++c) other_dout[i * out_width(one) + c] = T(c % 2 == 0 ? 9 : -9);
      }
      const std::size_t out = row * out_width(one), in = row * one.width();
      EXPECT_EQ(slice(forward(p.shape, changed, p.first_keys()).out, out, one.length * out_width(one)),
                slice(y.out, out, one.length * out_width(one)));
      EXPECT_EQ(slice(backward(p.shape, changed, other_dout, p.first_keys()), in, one.length * one.width()),
                slice(gradient, in, one.length * one.width()));
    });
  }
}

TYPED_TEST(Attention, OneDocumentASequenceIsTheDefaultToTheBit) {
  const Shape n{2, 130, 4, 2, 12};
  const auto qkv = random_qkv<TypeParam>(n), dout = random_dout<TypeParam>(n);
  const FirstKeys zero(rows(n), 0);
  EXPECT_EQ(forward(n, qkv, zero).out, forward(n, qkv).out);
  EXPECT_EQ(forward(n, qkv, zero).lse, forward(n, qkv).lse);
  EXPECT_EQ(backward(n, qkv, dout, zero), backward(n, qkv, dout));
}

TEST(AttentionGradient, OfDocumentsMatchesFiniteDifferences) {
  for (const Packed& p : packed) {
    SCOPED_TRACE(text(p.shape));
    const auto qkv = random_qkv<double>(p.shape), dout = random_dout<double>(p.shape);
    const auto gradient = backward(p.shape, qkv, dout, p.first_keys());
    expect_gradient([&](const std::vector<double>& m) { return dot(forward(p.shape, m, p.first_keys()).out, dout); },
                    qkv, gradient);
  }
}

TEST(AttentionBf16, DocumentsMatchOnRoundedInputs) {
  for (const Packed& p : packed) {
    const auto qkv = converted<bf16>(random_qkv<float>(p.shape)), dout = converted<bf16>(random_dout<float>(p.shape));
    const auto exact = forward(p.shape, converted<float>(qkv), p.first_keys());
    const auto y = forward(p.shape, qkv, p.first_keys());
    EXPECT_LT(relative_error(y.out, exact.out), bf16_forward_tolerance) << text(p.shape);
    EXPECT_LT(relative_error(y.lse, exact.lse), tolerance<float>) << "computed and kept in fp32";
    const auto gradient = backward(p.shape, converted<double>(qkv), converted<double>(dout), p.first_keys());
    EXPECT_LT(relative_error(backward(p.shape, qkv, dout, p.first_keys()), gradient), 2 * bf16_tolerance)
        << text(p.shape);
  }
}

TEST(AttentionFp32, BackwardMatchesFp64) {
  for (const Shape& n : shapes) {
    const auto qkv = random_qkv<float>(n), dout = random_dout<float>(n);
    const auto exact = backward(n, converted<double>(qkv), converted<double>(dout));
    EXPECT_LT(relative_error(backward(n, qkv, dout), exact), tolerance<float>) << text(n);
  }
}

TEST(AttentionBf16, MatchesFp32OnRoundedInputs) {
  for (const Shape& n : shapes) {
    const auto qkv = rounded_to_bf16(random_qkv<float>(n));
    const auto exact = forward(n, qkv);
    const auto y = forward(n, converted<bf16>(qkv));
    EXPECT_LT(relative_error(y.out, exact.out), bf16_forward_tolerance) << text(n);
    EXPECT_LT(relative_error(y.lse, exact.lse), tolerance<float>) << "computed and kept in fp32";
  }
}

// The output that backward reads is rounded to bf16, by half of 2^-7, and with it delta, which every gradient of a
// score has subtracted: those of queries and keys are off by that, relative to the largest, and by their own rounding.
// Gradients of queries summed in bf16 would be off by another rounding a block of keys.
TEST(AttentionBf16, BackwardMatchesFp64OnRoundedInputs) {
  for (const Shape& n : shapes) {
    const auto qkv = converted<bf16>(random_qkv<float>(n)), dout = converted<bf16>(random_dout<float>(n));
    const auto exact = backward(n, converted<double>(qkv), converted<double>(dout));
    EXPECT_LT(relative_error(backward(n, qkv, dout), exact), 2 * bf16_tolerance) << text(n);
  }
}

TEST(AttentionErrors, ShapesThatDoNotFit) {
  const auto call = [](const Shape& n, std::size_t width) {
    attention<float>(Exec(), n, allocate<float>("atoll::test", 8, width),
                     allocate<float>("atoll::test", 8, out_width(n)),
                     allocate<float>("atoll::test", 8 * n.query_heads));
  };
  EXPECT_NO_THROW(call({2, 4, 4, 2, 8}, 64));
  EXPECT_THROW(call({2, 4, 4, 3, 8}, 80), Error) << "3 key-value heads do not divide 4 query heads";
  EXPECT_THROW(call({2, 4, 4, 2, 8}, 65), Error);
  EXPECT_THROW(call({2, 5, 4, 2, 8}, 64), Error);
  const Shape n{2, 4, 4, 2, 8};
  EXPECT_THROW(forward(n, random_qkv<float>(n), FirstKeys(7)), Error) << "7 first keys for 8 rows";
}

// A device has little scratch memory; host threads take what they need.
TEST(AttentionErrors, HeadsThatNoBlockFits) {
  const Shape n{1, 2, 1, 1, 4096};
  const auto call = [&] { backward(n, random_qkv<double>(n), random_dout<double>(n)); };
  if (vector_kernels) {
    EXPECT_NO_THROW(call());
  } else {
    EXPECT_THROW(call(), ConfigError);
  }
}

}  // namespace
}  // namespace atl::test
