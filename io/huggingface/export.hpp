/// Saved models to a folder that transformers loads. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/huggingface/import.hpp"
#include "io/huggingface/safetensors.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace atl {

struct ExportOptions {
  WeightType type = WeightType::fp32;
  std::uint64_t max_shard_bytes = 5'000'000'000;  ///< of tensors in a file; a larger tensor has a file of its own
  std::string tokenizer;                          ///< folder with tokenizer files; empty: the model's, or its data's
};

struct ExportResult {
  std::int64_t parameters = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t not_finite = 0;         ///< infinite numbers and NaNs, which are kept
  std::vector<std::string> files;       ///< safetensors files
  std::vector<std::string> companions;  ///< files that were copied: tokenizer, generation_config.json
};

/// Makes the folder `output` from what open_saved_model takes: model.safetensors, or model-00001-of-0000N.safetensors
/// with model.safetensors.index.json; config.json (model_type "llama"); generation_config.json; and the tokenizer files
/// of options.tokenizer, or else of the model's folder, or else of the data that its run was evaluated on. The ids of
/// special tokens come from the files there (special_token_ids). Numbers are rounded once, to nearest; from a
/// checkpoint every byte is checked against its hash. The folder appears when it is complete. Needs memory for a few
/// pieces of 16 MiB, whatever the size of the model. DataError, also where a number is too large for the type.
ExportResult export_safetensors(const std::string& source, const std::string& output, const ExportOptions& options,
                                const BytesDone& told);

}  // namespace atl
