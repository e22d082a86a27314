/// Any text as a config.json: refused, or a configuration that is written and read back the same.
/// SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "model/llama_config.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  try {
    const LlamaConfig config = parse_hugging_face_config({reinterpret_cast<const char*>(data), size}, "config.json");
    if (parse_hugging_face_config(to_hugging_face_json(config), "again") != config) std::abort();
    if (parameter_count(config) < 1) std::abort();
  } catch (const ConfigError& error) {
    // Of the input only short pieces are shown.
    if (std::string_view(error.what()).size() > 1000) std::abort();
  }
  return 0;
}
