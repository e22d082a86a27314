/// SPDX-License-Identifier: Apache-2.0
#include "io/data/data_sets.hpp"

#include "io/data/synthetic_language.hpp"
#include "io/data/token_file.hpp"

#include <cmath>

namespace atl {

namespace {

SyntheticLanguage synthetic_language(const RunConfig& config) {
  SyntheticOptions options;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  return SyntheticLanguage(options);
}

/// Every rank reads its share. The result is that of the whole source, on all ranks.
Scan scan_together(const TokenSource& source, const Communicator& world) {
  Scan mine;
  collectively(world, [&] { mine = source.scan(world.rank(), world.size()); });
  // A double holds 32 bits exactly, and any position.
  const auto low = [](std::uint64_t bits) { return static_cast<double>(bits & 0xffffffffu); };
  const auto high = [](std::uint64_t bits) { return static_cast<double>(bits >> 32); };
  const auto join = [](double lower, double upper) {
    return static_cast<std::uint64_t>(lower) | static_cast<std::uint64_t>(upper) << 32;
  };
  const std::vector<double> fields{static_cast<double>(mine.largest.id),
                                   static_cast<double>(mine.largest.position),
                                   low(mine.tokens),
                                   high(mine.tokens),
                                   low(mine.documents),
                                   high(mine.documents)};
  const auto all = world.all_gather(fields);
  Scan whole;
  for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(fields.size()))
    whole.add(
        {{static_cast<std::int64_t>(at[0]), static_cast<std::int64_t>(at[1])}, join(at[2], at[3]), join(at[4], at[5])});
  return whole;
}

}  // namespace

std::shared_ptr<const TokenSource> open_source(const std::string& name, const RunConfig& config,
                                               std::int64_t vocab_size, bool for_training, const Communicator& world) {
  std::shared_ptr<const TokenSource> source;
  collectively(world, [&] {
    if (name == synthetic_data) {
      const std::uint64_t first = for_training ? 0 : SyntheticLanguage::first_evaluation_document;
      source = synthetic_language(config).source(
          first, for_training ? config.data.synthetic_tokens : config.data.synthetic_eval_tokens);
    } else {
      source = std::make_shared<TokenFile>(name);
    }
  });
  const Scan whole = scan_together(*source, world);
  collectively(world, [&] {
    source->check(whole);
    require_vocabulary(*source, whole.largest, vocab_size);
  });
  return source;
}

LanguageFacts language_facts(const RunConfig& config, const TokenSource& eval) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(eval.tokens()));
  eval.read(0, tokens);
  const std::vector<std::uint16_t> text(tokens.begin(), tokens.end());
  const SyntheticLanguage language = synthetic_language(config);
  return {std::exp(language.windowed_floor(text, config.data.sequence_length)), std::exp(language.bigram_entropy())};
}

DataSets open_data_sets(const RunConfig& config, std::int64_t vocab_size, const Communicator& world) {
  DataSets sets;
  sets.train = open_source(config.data.train, config, vocab_size, true, world);
  if (config.data.eval.empty()) return sets;
  sets.eval = open_source(config.data.eval, config, vocab_size, false, world);
  if (config.data.eval != synthetic_data) return sets;
  LanguageFacts facts;
  collectively(world, [&] {
    if (world.rank() == 0) facts = language_facts(config, *sets.eval);
  });
  const auto all = world.all_gather({facts.floor, facts.bigram});
  sets.language = LanguageFacts{all[0], all[1]};
  return sets;
}

}  // namespace atl
