/// A random language whose entropy is known exactly, and that cannot be predicted without context.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace atl {

class MemorySource;

struct SyntheticOptions {
  std::int64_t topics = 8;           ///< K: tokens [0, K) announce a topic
  std::int64_t words = 24;           ///< W: tokens [K, K + W); at least 4
  double end_probability = 1. / 32;  ///< e: a sentence ends after a word
  std::int64_t sentences = 128;      ///< of a document: about 128 / e + 128 tokens
  std::uint64_t seed = 1;
};

/// Sentences follow one another. Each is a topic token k, uniform in [0, K), then words: every word is one of four
/// successors of the token before it, with probabilities 1/2, 1/4, 1/8, 1/8, and which four depends on (k, that token),
/// drawn once from the seed. After each word the sentence ends with probability e. So the next word depends on the
/// topic token, about 1 / e tokens back: a model that only sees the last token cannot tell (bigram_entropy()).
///
/// Sentences are independent, so any number of documents in a row is the same stationary chain, without a seam.
class SyntheticLanguage {
 public:
  /// ConfigError for options that make no language.
  explicit SyntheticLanguage(const SyntheticOptions& options);

  /// Documents below this number are for training, those from it on for evaluation.
  static constexpr std::uint64_t first_evaluation_document = 1ull << 40;

  std::int64_t vocab_size() const { return options_.topics + options_.words; }

  /// Documents [first, first + count), one after the other. A document is a pure function of (options, its number).
  std::vector<std::uint16_t> generate(std::uint64_t first_document, std::uint64_t count) const;
  /// As many documents as make `tokens` tokens, the last one cut; as a source named "synthetic".
  std::shared_ptr<const MemorySource> source(std::uint64_t first_document, std::int64_t tokens) const;

  /// Nats per token of the language: no model with any context can do better. exp of it is the floor perplexity.
  /// With p = e / (1 + e) the share of topic tokens, in bits: 1.75 p + (1 - p) (h2(e) + (1 - e) 1.75 + e log2 K).
  double entropy_rate() const;
  /// Nats per token of the best predictor that sees one token only.
  double bigram_entropy() const;

  /// Mean NLL in nats of the tokens after the first, for the best predictor that sees all tokens before; and for the
  /// best one that sees only the window of T tokens they are in, cut as Sequences cuts it (target i is in window (i -
  /// 1) / T). The latter is the exact floor of an evaluation with sequence length T. It weighs the topics by what the
  /// window shows so far (Bayes' rule from the stationary distribution). DataError for text that is not of this
  /// language.
  double text_nll(std::span<const std::uint16_t> text) const;
  double windowed_floor(std::span<const std::uint16_t> text, std::int64_t T) const;

  /// The successors of `previous` under `topic`, most likely first.
  const std::array<std::uint16_t, 4>& successors(std::int64_t topic, std::int64_t previous) const {
    return successors_[static_cast<std::size_t>(topic * vocab_size() + previous)];
  }
  /// Stationary probability of (topic, latest token).
  double stationary(std::int64_t topic, std::int64_t token) const {
    return stationary_[static_cast<std::size_t>(topic * vocab_size() + token)];
  }
  /// Probability that `next`, a word, follows `previous` in a sentence on `topic` that goes on.
  double successor_probability(std::int64_t topic, std::int64_t previous, std::int64_t next) const;

 private:
  bool is_topic(std::int64_t token) const { return token < options_.topics; }
  void append_document(std::uint64_t document, std::vector<std::uint16_t>& text) const;
  std::uint16_t draw_word(std::int64_t topic, std::int64_t previous, std::uint64_t bits) const;
  void draw_successors();
  void find_stationary();

  SyntheticOptions options_;
  std::vector<std::array<std::uint16_t, 4>> successors_;  // (K, K + W)
  std::vector<double> stationary_;                        // (K, K + W)
};

}  // namespace atl
