/// `atoll import`: a Hugging Face model to a model file. SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/import.hpp"

#include "apps/commands.hpp"
#include "core/errors.hpp"
#include "io/report/progress.hpp"
#include "parallel/launcher.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <memory>
#include <optional>

namespace atl {

namespace {

struct Arguments {
  std::string source, output;
  bool json = false;
};

int run(const Arguments& arguments) {
  // One process does it; what a launcher started besides has nothing to do.
  if (!first_of_launcher()) return static_cast<int>(ExitCode::done);
  std::optional<Progress> progress;
  const ImportResult result = import_model(arguments.source, arguments.output, [&](auto done, auto total) {
    if (!progress) progress.emplace(static_cast<std::int64_t>(total), "B");
    progress->update(static_cast<std::int64_t>(done));
  });
  if (progress) progress->clear();
  if (result.not_finite > 0) spdlog::warn("{} numbers of the model are infinite or NaN", result.not_finite);
  if (arguments.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"model", arguments.output},
                                              {"parameters", result.parameters},
                                              {"bytes_read", result.bytes_read},
                                              {"bytes_written", result.bytes_written},
                                              {"not_finite", result.not_finite},
                                              {"companions", result.companions}}
                           .dump(2));
  else
    fmt::print("{} parameters -> {}/model.h5; beside it config.json{}{}\n", result.parameters, arguments.output,
               result.companions.empty() ? "" : ", ", fmt::join(result.companions, ", "));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_import(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("import", "Turn a Hugging Face Llama (safetensors) into a model file");
  command->footer(
      "Example: atoll import ~/models/SmolLM-135M smollm, then: atoll train run.toml --init-from smollm\n"
      "Models whose mathematics is not Llama's are refused, with the key of config.json that says so. Needs little\n"
      "memory. `atoll eval` and model.init_from also read safetensors as they are.");
  command->add_option("source", arguments->source, "A folder that transformers saved, or a .safetensors file in one")
      ->required();
  command->add_option("output", arguments->output, "Folder to make: model.h5, config.json, tokenizer files")
      ->required();
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
