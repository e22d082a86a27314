/// Drawing text, and what is known of its entropy. SPDX-License-Identifier: Apache-2.0
#include "io/data/synthetic_language.hpp"

#include "core/errors.hpp"
#include "core/random.hpp"
#include "io/data/token_source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace atl {

namespace {

constexpr double rank_probability[4] = {0.5, 0.25, 0.125, 0.125};
const double successor_entropy = 1.75 * std::log(2.0);  // nats

double minus_p_log_p(double p) { return p > 0 ? -p * std::log(p) : 0.0; }

}  // namespace

SyntheticLanguage::SyntheticLanguage(const SyntheticOptions& options) : options_(options) {
  const auto [topics, words, e, sentences, seed] = options;
  if (topics < 1 || words < 4 || topics + words > 65536 || sentences < 1 || !(e > 0 && e <= 1)) {
    throw ConfigError(
        fmt::format("synthetic language of {} topics, {} words, end probability {} and {} sentences: needs "
                    "at least 1 topic, 4 words, 1 sentence, 0 < e <= 1 and at most 65536 tokens in all",
                    topics, words, e, sentences));
  }
  draw_successors();
  find_stationary();
}

void SyntheticLanguage::draw_successors() {
  const std::int64_t rows = options_.topics * vocab_size();
  const auto words = static_cast<std::uint64_t>(options_.words);
  successors_.resize(static_cast<std::size_t>(rows));
  const std::uint64_t key = random_key(options_.seed, "synthetic/successors");
  for (std::int64_t row = 0; row < rows; ++row) {
    auto& chosen = successors_[static_cast<std::size_t>(row)];
    const std::uint64_t row_key = random_bits(key, static_cast<std::uint64_t>(row));
    std::uint64_t counter = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      do {  // four different words
        chosen[i] = static_cast<std::uint16_t>(static_cast<std::uint64_t>(options_.topics) +
                                               random_bits(row_key, counter++) % words);
      } while (std::find(chosen.begin(), chosen.begin() + i, chosen[i]) != chosen.begin() + i);
    }
  }
}

/// Within a topic k, the expected number of times a sentence visits token t solves v = v_0 + (1 - e) v P_k, without the
/// factor 1 - e from the topic token, after which a word always follows. The series converges as (1 - e)^n.
void SyntheticLanguage::find_stationary() {
  const std::int64_t vocabulary = vocab_size();
  const double e = options_.end_probability;
  const double topic_share = e / (1 + e);
  stationary_.assign(static_cast<std::size_t>(options_.topics * vocabulary), 0.0);
  std::vector<double> now(static_cast<std::size_t>(vocabulary)), next(now);
  for (std::int64_t k = 0; k < options_.topics; ++k) {
    double* total = stationary_.data() + k * vocabulary;
    std::fill(now.begin(), now.end(), 0.0);
    now[static_cast<std::size_t>(k)] = topic_share / static_cast<double>(options_.topics);
    double mass = now[static_cast<std::size_t>(k)];
    for (bool first = true; mass > 1e-20; first = false) {
      std::fill(next.begin(), next.end(), 0.0);
      mass = 0;
      for (std::int64_t t = 0; t < vocabulary; ++t) {
        const double here = now[static_cast<std::size_t>(t)];
        total[t] += here;
        if (here == 0) continue;
        const double goes_on = first ? here : (1 - e) * here;
        for (std::size_t i = 0; i < 4; ++i) next[successors(k, t)[i]] += goes_on * rank_probability[i];
        mass += goes_on;
      }
      now.swap(next);
    }
  }
}

std::uint16_t SyntheticLanguage::draw_word(std::int64_t topic, std::int64_t previous, std::uint64_t bits) const {
  const std::uint64_t eighth = bits >> 61;  // 0..3: first, 4, 5: second, 6: third, 7: fourth
  const std::size_t rank = eighth < 4 ? 0 : eighth < 6 ? 1 : eighth - 4;
  return successors(topic, previous)[rank];
}

void SyntheticLanguage::append_document(std::uint64_t document, std::vector<std::uint16_t>& text) const {
  const std::uint64_t key = random_bits(random_key(options_.seed, "synthetic/text"), document);
  std::uint64_t counter = 0;
  for (std::int64_t sentence = 0; sentence < options_.sentences; ++sentence) {
    const auto topic = static_cast<std::int64_t>(random_uniform(key, counter++) * static_cast<double>(options_.topics));
    text.push_back(static_cast<std::uint16_t>(topic));
    do {
      text.push_back(draw_word(topic, text.back(), random_bits(key, counter++)));
    } while (random_uniform(key, counter++) >= options_.end_probability);
  }
}

std::vector<std::uint16_t> SyntheticLanguage::generate(std::uint64_t first_document, std::uint64_t count) const {
  std::vector<std::uint16_t> text;
  for (std::uint64_t i = 0; i < count; ++i) append_document(first_document + i, text);
  return text;
}

std::shared_ptr<const MemorySource> SyntheticLanguage::source(std::uint64_t first_document, std::int64_t tokens) const {
  std::vector<std::uint16_t> text;
  const auto wanted = static_cast<std::size_t>(tokens);
  while (text.size() < wanted) append_document(first_document++, text);
  text.resize(wanted);
  return std::make_shared<const MemorySource>("synthetic", vocab_size(), std::move(text));
}

double SyntheticLanguage::entropy_rate() const {
  const double e = options_.end_probability;
  const double topic_share = e / (1 + e);
  const double after_word = minus_p_log_p(e) + minus_p_log_p(1 - e) + (1 - e) * successor_entropy +
                            e * std::log(static_cast<double>(options_.topics));
  return topic_share * successor_entropy + (1 - topic_share) * after_word;
}

double SyntheticLanguage::successor_probability(std::int64_t topic, std::int64_t previous, std::int64_t next) const {
  const auto& options = successors(topic, previous);
  const auto found = std::find(options.begin(), options.end(), next);
  return found == options.end() ? 0.0 : rank_probability[found - options.begin()];
}

double SyntheticLanguage::bigram_entropy() const {
  const double e = options_.end_probability;
  const std::int64_t vocabulary = vocab_size();
  double entropy = 0;
  std::vector<double> joint(static_cast<std::size_t>(vocabulary));
  for (std::int64_t t = 0; t < vocabulary; ++t) {
    std::fill(joint.begin(), joint.end(), 0.0);
    double seen = 0;
    for (std::int64_t k = 0; k < options_.topics; ++k) {
      const double here = stationary(k, t);
      seen += here;
      for (std::size_t i = 0; i < 4; ++i) {
        joint[successors(k, t)[i]] += here * rank_probability[i] * (is_topic(t) ? 1.0 : 1 - e);
      }
    }
    if (seen == 0) continue;
    for (std::int64_t k = 0; k < options_.topics && !is_topic(t); ++k) {
      joint[static_cast<std::size_t>(k)] = seen * e / static_cast<double>(options_.topics);
    }
    // H(next | t) = -sum over next of p(t, next) log (p(t, next) / p(t))
    for (const double p : joint) entropy += minus_p_log_p(p);
    entropy -= minus_p_log_p(seen);
  }
  return entropy;
}

double SyntheticLanguage::text_nll(std::span<const std::uint16_t> text) const {
  return windowed_floor(text, std::max<std::int64_t>(1, static_cast<std::int64_t>(text.size())));
}

double SyntheticLanguage::windowed_floor(std::span<const std::uint16_t> text, std::int64_t T) const {
  ATOLL_REQUIRE(T >= 1 && text.size() >= 2);
  const double e = options_.end_probability;
  const auto topics = static_cast<std::size_t>(options_.topics);
  std::vector<double> weight(topics);  // of each topic, given the window up to `now`
  double nll = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const std::int64_t now = text[i], next = text[i + 1];
    if (now >= vocab_size() || next >= vocab_size()) {
      throw DataError(fmt::format("token {} is not of the synthetic language", std::max(now, next)));
    }
    if (i % static_cast<std::size_t>(T) == 0) {  // a window begins: all that is known is its first token
      double sum = 0;
      for (std::size_t k = 0; k < topics; ++k) sum += weight[k] = stationary(static_cast<std::int64_t>(k), now);
      for (double& w : weight) w /= sum;
    }
    double probability = 0;
    if (is_topic(next)) {
      probability = is_topic(now) ? 0.0 : e / static_cast<double>(topics);
      std::fill(weight.begin(), weight.end(), 0.0);
      weight[static_cast<std::size_t>(next)] = 1.0;
    } else {
      double sum = 0;
      for (std::size_t k = 0; k < topics; ++k) {
        sum += weight[k] *= successor_probability(static_cast<std::int64_t>(k), now, next);
      }
      probability = (is_topic(now) ? 1.0 : 1 - e) * sum;
      for (double& w : weight) w /= sum;
    }
    if (!(probability > 0)) {
      throw DataError(
          fmt::format("token {} cannot follow token {} at position {} in this synthetic language", next, now, i + 1));
    }
    nll -= std::log(probability);
  }
  return nll / static_cast<double>(text.size() - 1);
}

}  // namespace atl
