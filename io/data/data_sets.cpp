/// SPDX-License-Identifier: Apache-2.0
#include "io/data/data_sets.hpp"

#include "io/data/synthetic_language.hpp"
#include "io/data/token_formats.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace atl {

namespace {

SyntheticLanguage synthetic_language(const RunConfig& config) {
  SyntheticOptions options;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  return SyntheticLanguage(options);
}

using Sources = std::vector<std::shared_ptr<const TokenSource>>;

/// Every rank reads its share of each. The results are those of the whole sources, on all ranks.
std::vector<Scan> scan_together(const Sources& sources, const Communicator& world) {
  // A double holds 32 bits exactly, and any position.
  const auto low = [](std::uint64_t bits) { return static_cast<double>(bits & 0xffffffffu); };
  const auto high = [](std::uint64_t bits) { return static_cast<double>(bits >> 32); };
  const auto join_bits = [](double lower, double upper) {
    return static_cast<std::uint64_t>(lower) | static_cast<std::uint64_t>(upper) << 32;
  };
  std::vector<double> fields;
  collectively(world, [&] {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      // Small files have few blocks: another rank begins with each.
      const auto share = (static_cast<std::size_t>(world.rank()) + i) % static_cast<std::size_t>(world.size());
      const Scan mine = sources[i]->scan(static_cast<std::int64_t>(share), world.size());
      for (const double field : {static_cast<double>(mine.largest.id), static_cast<double>(mine.largest.position),
                                 low(mine.tokens), high(mine.tokens), low(mine.documents), high(mine.documents)})
        fields.push_back(field);
    }
  });
  const auto all = world.all_gather(fields);
  std::vector<Scan> whole(sources.size());
  for (std::size_t at = 0; at < all.size(); at += 6)
    whole[at / 6 % sources.size()].add({{static_cast<std::int64_t>(all[at]), static_cast<std::int64_t>(all[at + 1])},
                                        join_bits(all[at + 2], all[at + 3]),
                                        join_bits(all[at + 4], all[at + 5])});
  return whole;
}

/// Some files of a pattern say where documents begin, and others need data.end_of_document: two rules in one source.
void require_one_kind_of_documents(const std::string& name, const Sources& parts) {
  const TokenSource *with = nullptr, *without = nullptr;
  for (const auto& part : parts) (part->documents() >= 0 ? with : without) = part.get();
  if (with == nullptr || without == nullptr) return;
  throw DataError(name + ": " + with->name() + " says where its documents begin, " + without->name() +
                  " does not; with data.packing = \"documents\" name them apart, as a mixture");
}

/// The files that rank 0 sees, so that all ranks mean the same ones, as they must have the same sizes.
Sources open_files(const std::string& name, RawType raw, const Communicator& world) {
  std::string found;
  collectively(world, [&] {
    if (world.rank() == 0) found = nlohmann::json(find_token_files(name)).dump();
  });
  const auto paths = nlohmann::json::parse(world.broadcast(found)).get<std::vector<std::string>>();
  Sources parts;
  std::string sizes;
  collectively(world, [&] {
    for (const auto& path : paths) {
      parts.push_back(open_tokens(path, raw));
      sizes += std::to_string(parts.back()->tokens()) + " ";
    }
  });
  require_equal(world, sizes, "the number of tokens of " + name);
  return parts;
}

}  // namespace

std::shared_ptr<const TokenSource> open_source(const std::string& name, const RunConfig& config,
                                               std::int64_t vocab_size, bool for_training, const Communicator& world) {
  Sources parts;
  if (name == synthetic_data) {
    collectively(world, [&] {
      const std::uint64_t first = for_training ? 0 : SyntheticLanguage::first_evaluation_document;
      parts.push_back(synthetic_language(config).source(
          first, for_training ? config.data.synthetic_tokens : config.data.synthetic_eval_tokens));
    });
  } else {
    parts = open_files(name, config.data.raw_type, world);
  }
  collectively(world, [&] {
    if (config.data.documents.packing == Packing::documents) require_one_kind_of_documents(name, parts);
  });
  const std::vector<Scan> whole = scan_together(parts, world);
  collectively(world, [&] {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i]->check(whole[i]);
      require_vocabulary(*parts[i], whole[i].largest, vocab_size);
    }
  });
  return join(name, std::move(parts));
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
  for (const auto& name : config.data.train)
    sets.train.sources.push_back(open_source(name, config, vocab_size, true, world));
  sets.train.weights = config.data.weights;
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
