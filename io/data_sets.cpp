/// SPDX-License-Identifier: Apache-2.0
#include "io/data_sets.hpp"

#include "io/synthetic_language.hpp"
#include "io/token_file.hpp"

#include <cmath>

namespace atl {

namespace {

SyntheticLanguage synthetic_language(const RunConfig& config) {
  SyntheticOptions options;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  return SyntheticLanguage(options);
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
    if (world.rank() == 0) require_vocabulary(*source, source->scan(), vocab_size);
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
  if (config.data.eval == synthetic_data) sets.language = language_facts(config, *sets.eval);
  return sets;
}

}  // namespace atl
