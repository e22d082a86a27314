/// The training and evaluation data that a run configuration names. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/config/run_config.hpp"
#include "io/data/mixture.hpp"
#include "io/data/token_source.hpp"
#include "parallel/communicator.hpp"

#include <memory>
#include <optional>

namespace atl {

/// What can be said of the built-in language before training; perplexities.
struct LanguageFacts {
  double floor = 0;   ///< of the best possible predictor on the evaluation set, windows as evaluated
  double bigram = 0;  ///< of the best predictor that sees one token only
};

struct DataSets {
  TrainingData train;
  std::shared_ptr<const TokenSource> eval;  ///< null: no evaluation
  std::optional<LanguageFacts> language;    ///< where the evaluation set is the built-in language
};

/// One source: "synthetic", or token data by path or pattern (io/data/token_formats.hpp), which rank 0 looks for. Every
/// id is checked against the vocabulary, and a file's checksums and index verified: each rank reads a part. Collective
/// over the world; throws CollectiveError.
std::shared_ptr<const TokenSource> open_source(const std::string& name, const RunConfig& config,
                                               std::int64_t vocab_size, bool for_training, const Communicator& world);

/// data.train and data.eval. Collective over the world.
DataSets open_data_sets(const RunConfig& config, std::int64_t vocab_size, const Communicator& world);

/// Floor of the built-in language on an evaluation set of it. Seconds of work for a large one; not collective.
LanguageFacts language_facts(const RunConfig& config, const TokenSource& eval);

}  // namespace atl
