/// Models from transformers to atoll's model file. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace atl {

using BytesDone = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct ImportResult {
  std::int64_t parameters = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;
  std::uint64_t not_finite = 0;         ///< infinite numbers and NaNs, which are kept
  std::vector<std::string> companions;  ///< files that were copied beside the model: tokenizer, generation_config.json
};

/// Reads a safetensors file, an index or a folder (io/huggingface/safetensors_model.hpp) and makes the folder `output`
/// with model.h5 (io/model_file.hpp, fp32: exact), the source's config.json, and its tokenizer files where it has some.
/// All checks come before the first byte is written, and the folder appears when it is complete. Needs memory for a few
/// pieces of 16 MiB, whatever the size of the model. DataError; ConfigError of config.json.
ImportResult import_model(const std::string& source, const std::string& output, const BytesDone& told);

}  // namespace atl
