/// Fuzz target: run configurations. What is accepted, is the same again when it is shown and read.
/// SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/config/run_config.hpp"

#include <cstddef>
#include <cstdlib>

namespace {

nlohmann::ordered_json read(const std::string& text, std::string& shown) {
  atl::RunConfig config;
  atl::ConfigTable table = atl::run_config_table(config);
  for (const auto& entry : atl::parse_toml(text, "run.toml")) table.apply(entry);
  shown = table.show([](const atl::ConfigKey&) { return nlohmann::json(); });
  return table.to_json();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    atl::parse_override(text);
  } catch (const atl::ConfigError&) {
  }
  nlohmann::ordered_json first;
  std::string shown, again;
  try {
    first = read(text, shown);
  } catch (const atl::ConfigError&) {
    return 0;
  }
  if (read(shown, again) != first || again != shown) std::abort();
  return 0;
}
