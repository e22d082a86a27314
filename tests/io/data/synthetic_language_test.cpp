/// The synthetic language: its entropy by three independent ways. SPDX-License-Identifier: Apache-2.0
#include "io/data/synthetic_language.hpp"

#include "core/errors.hpp"
#include "io/data/token_source.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace atl {
namespace {

/// The chain over states (topic, latest token) as a dense matrix, and its stationary distribution by Gaussian
/// elimination: nothing of the library's own formulas, only its successor tables.
struct Chain {
  std::size_t states, vocabulary;
  std::vector<double> transition;  // (states, states)
  std::vector<double> stationary;  // (states)

  Chain(const SyntheticLanguage& language, const SyntheticOptions& options)
      : vocabulary(static_cast<std::size_t>(language.vocab_size())) {
    const auto K = static_cast<std::size_t>(options.topics);
    const double e = options.end_probability, ranks[4] = {0.5, 0.25, 0.125, 0.125};
    states = K * vocabulary;
    transition.assign(states * states, 0.0);
    for (std::size_t k = 0; k < K; ++k) {
      for (std::size_t t = 0; t < vocabulary; ++t) {
        double* row = &transition[(k * vocabulary + t) * states];
        const bool word = t >= K;
        const auto& next = language.successors(static_cast<std::int64_t>(k), static_cast<std::int64_t>(t));
        for (std::size_t i = 0; i < 4; ++i) row[k * vocabulary + next[i]] += (word ? 1 - e : 1.0) * ranks[i];
        for (std::size_t other = 0; word && other < K; ++other) row[other * vocabulary + other] += e / double(K);
      }
    }
    solve();
  }

  void solve() {  // pi (P - 1) = 0 with sum 1 in place of the first equation
    std::vector<double> a(states * (states + 1));
    const std::size_t width = states + 1;
    for (std::size_t i = 0; i < states; ++i) {
      for (std::size_t j = 0; j < states; ++j) a[i * width + j] = i == 0 ? 1.0 : transition[j * states + i] - (i == j);
    }
    a[states] = 1.0;
    for (std::size_t c = 0; c < states; ++c) {
      std::size_t pivot = c;
      for (std::size_t r = c; r < states; ++r) {
        if (std::abs(a[r * width + c]) > std::abs(a[pivot * width + c])) pivot = r;
      }
      for (std::size_t j = 0; j < width; ++j) std::swap(a[c * width + j], a[pivot * width + j]);
      for (std::size_t r = c + 1; r < states; ++r) {
        const double factor = a[r * width + c] / a[c * width + c];
        for (std::size_t j = c; factor != 0 && j < width; ++j) a[r * width + j] -= factor * a[c * width + j];
      }
    }
    stationary.assign(states, 0.0);
    for (std::size_t c = states; c-- > 0;) {
      double rest = a[c * width + states];
      for (std::size_t j = c + 1; j < states; ++j) rest -= a[c * width + j] * stationary[j];
      stationary[c] = rest / a[c * width + c];
    }
  }
};

const SyntheticOptions small{.topics = 3, .words = 11, .end_probability = 1. / 7, .sentences = 16, .seed = 5};

TEST(SyntheticLanguage, EntropyIsThatOfTheTransitionMatrix) {
  for (const SyntheticOptions& options : {small, SyntheticOptions{.topics = 1, .words = 4, .end_probability = 1}}) {
    const SyntheticLanguage language(options);
    const Chain chain(language, options);
    double entropy = 0;
    for (std::size_t i = 0; i < chain.states; ++i) {
      for (std::size_t j = 0; j < chain.states; ++j) {
        const double p = chain.transition[i * chain.states + j];
        if (p > 0) entropy -= chain.stationary[i] * p * std::log(p);
      }
    }
    EXPECT_NEAR(language.entropy_rate(), entropy, 1e-12);
  }
}

TEST(SyntheticLanguage, StationaryDistributionAndBigramsAreThoseOfTheMatrix) {
  const SyntheticLanguage language(small);
  const Chain chain(language, small);
  const std::size_t V = chain.vocabulary;
  for (std::size_t k = 0; k < 3; ++k) {
    for (std::size_t t = 0; t < V; ++t) {
      EXPECT_NEAR(language.stationary(std::int64_t(k), std::int64_t(t)), chain.stationary[k * V + t], 1e-14);
    }
  }
  std::vector<double> joint(V * V), alone(V);
  for (std::size_t i = 0; i < chain.states; ++i) {
    alone[i % V] += chain.stationary[i];
    for (std::size_t j = 0; j < chain.states; ++j) {
      joint[i % V * V + j % V] += chain.stationary[i] * chain.transition[i * chain.states + j];
    }
  }
  double entropy = 0;
  for (std::size_t i = 0; i < V * V; ++i) {
    if (joint[i] > 0) entropy -= joint[i] * std::log(joint[i] / alone[i / V]);
  }
  EXPECT_NEAR(language.bigram_entropy(), entropy, 1e-12);
}

TEST(SyntheticLanguage, SuccessorsAreFourDifferentWords) {
  const SyntheticLanguage language(SyntheticOptions{});
  for (std::int64_t k = 0; k < 8; ++k) {
    for (std::int64_t t = 0; t < language.vocab_size(); ++t) {
      double sum = 0;
      for (std::int64_t next = 8; next < language.vocab_size(); ++next)
        sum += language.successor_probability(k, t, next);
      EXPECT_EQ(sum, 1.0);
    }
  }
}

// Two million tokens. The per-token surprise has a standard deviation below 1.4 nats and hardly any correlation (given
// the state, surprises are independent), so the mean's standard error is below 1e-3: four of them.
TEST(SyntheticLanguage, TextHasTheEntropyAndNeedsContext) {
  const SyntheticLanguage language(SyntheticOptions{});
  const auto source = language.source(0, 2000000);
  const auto& text = source->data();
  ASSERT_EQ(text.size(), 2000000u);
  EXPECT_NEAR(language.text_nll(text), language.entropy_rate(), 4e-3);
  EXPECT_NEAR(std::exp(language.entropy_rate()), 3.95, 0.02);
  EXPECT_GT(std::exp(language.bigram_entropy()), 3 * std::exp(language.entropy_rate()));

  // A window of one token is the bigram predictor; longer windows see more.
  EXPECT_NEAR(language.windowed_floor(text, 1), language.bigram_entropy(), 4e-3);
  double previous = language.windowed_floor(text, 1);
  for (const std::int64_t T : {4, 16, 64, 256, 4096}) {
    const double floor = language.windowed_floor(text, T);
    EXPECT_LT(floor, previous) << T;
    EXPECT_GT(floor, language.text_nll(text)) << T;
    previous = floor;
  }
  EXPECT_NEAR(previous, language.text_nll(text), 2e-3);
  EXPECT_EQ(language.windowed_floor(text, 2000000), language.text_nll(text));
}

/// Bayes by brute force: the probability of a window is the sum over all starting states of the chain, so the
/// prediction is the ratio of two such sums.
TEST(SyntheticLanguage, WindowedFloorIsThatOfTheBestPredictor) {
  const SyntheticLanguage language(small);
  const Chain chain(language, small);
  const std::size_t V = chain.vocabulary;
  const auto text = language.generate(3, 4);
  const auto probability = [&](std::size_t begin, std::size_t end) {
    std::vector<double> forward(chain.states);
    for (std::size_t s = text[begin]; s < chain.states; s += V) forward[s] = chain.stationary[s];
    for (std::size_t i = begin + 1; i < end; ++i) {
      std::vector<double> next(chain.states);
      for (std::size_t s = 0; s < chain.states; ++s) {
        for (std::size_t n = text[i]; n < chain.states; n += V) {
          next[n] += forward[s] * chain.transition[s * chain.states + n];
        }
      }
      forward = next;
    }
    double sum = 0;
    for (const double p : forward) sum += p;
    return sum;
  };
  for (const std::size_t T : {1, 3, 10}) {
    double nll = 0;
    for (std::size_t target = 1; target < text.size(); ++target) {
      const std::size_t begin = (target - 1) / T * T;
      nll -= std::log(probability(begin, target + 1) / probability(begin, target));
    }
    EXPECT_NEAR(language.windowed_floor(text, std::int64_t(T)), nll / double(text.size() - 1), 1e-12) << T;
  }
}

TEST(SyntheticLanguage, DocumentsArePureFunctionsOfTheirNumber) {
  const SyntheticLanguage language(small), again(small);
  std::vector<std::uint16_t> joined;
  for (std::uint64_t i = 7; i < 10; ++i) {
    const auto document = again.generate(i, 1);
    EXPECT_LT(document[0], 3);  // starts with a topic
    joined.insert(joined.end(), document.begin(), document.end());
  }
  EXPECT_EQ(language.generate(7, 3), joined);
  joined.resize(100);
  EXPECT_EQ(language.source(7, 100)->data(), joined);
  EXPECT_NE(language.generate(7, 1), language.generate(8, 1));
  EXPECT_NE(language.generate(7, 1), language.generate(7 + SyntheticLanguage::first_evaluation_document, 1));
  SyntheticOptions other = small;
  other.seed = 6;
  EXPECT_NE(SyntheticLanguage(other).generate(7, 1), language.generate(7, 1));
}

TEST(SyntheticLanguage, RefusesWhatIsNoLanguageOrNotItsText) {
  EXPECT_NE(message_of<ConfigError>([] { SyntheticLanguage(SyntheticOptions{.words = 3}); }).find("3 words"),
            std::string::npos);
  EXPECT_NE(message_of<ConfigError>([] { SyntheticLanguage(SyntheticOptions{.end_probability = 0}); }), "");
  const SyntheticLanguage language(small);
  const std::vector<std::uint16_t> topics{0, 1};
  EXPECT_EQ(message_of<DataError>([&] { language.text_nll(topics); }),
            "token 1 cannot follow token 0 at position 1 in this synthetic language");
}

}  // namespace
}  // namespace atl
