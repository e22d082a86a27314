/// The averaged model in one HDF5 file, with Hugging Face names and full shapes. SPDX-License-Identifier: Apache-2.0
///
/// Data sets "model.embed_tokens.weight" (V, C) and so on, in the precision of the master weights (fp32, or fp64).
/// Attributes: format = "atoll-model", version = 1, config (a Hugging Face config.json as text), step, tokens (of all
/// groups); where atoll trained it also what it was evaluated on: eval, sequence_length, seed, synthetic_eval_tokens,
/// and with data.packing = "documents" packing and end_of_document.
#pragma once

#include "io/data/document_index.hpp"
#include "model/llama_config.hpp"
#include "parallel/communicator.hpp"
#include "parallel/sharded_parameters.hpp"

#include <cstdint>
#include <string>

namespace atl {

/// What a model file says of itself.
struct ModelInfo {
  LlamaConfig config;
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  std::string eval{};                ///< data.eval of the run; empty: it had none, or is not known
  std::int64_t sequence_length = 0;  ///< 0: not known
  std::int64_t seed = 0;             ///< run.seed: the synthetic language follows from it
  std::int64_t synthetic_eval_tokens = 0;
  DocumentOptions documents{};
};

/// Marks the model.h5 of a checkpoint.
inline constexpr const char* view_attribute = "view_of_checkpoint";

class Hdf5File;
/// The attributes of a model file.
void write_model_info(Hdf5File& file, const ModelInfo& info);

/// The same, back. DataError unless it is of a version that this program knows.
ModelInfo read_model_info(const Hdf5File& file);

/// Writes the parameters of group 0 (all groups are equal after an aggregation); the file appears when it is complete.
/// Unit by unit: no rank holds more than one full unit. Collective over the world; throws CollectiveError.
template <class T>
void save_model(const Exec& exec, const std::string& path, const ModelInfo& info, ShardedParameters<T>& parameters,
                const ProcessGrid& grid, const Communicators& communicators);

}  // namespace atl
