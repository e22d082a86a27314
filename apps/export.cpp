/// `atoll export`: a saved model to safetensors. SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/export.hpp"

#include "apps/commands.hpp"
#include "apps/shared_options.hpp"
#include "core/errors.hpp"
#include "io/huggingface/companion_files.hpp"
#include "io/report/progress.hpp"
#include "parallel/launcher.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <map>
#include <memory>
#include <optional>

namespace atl {

namespace {

struct Arguments {
  std::string source, output, format = "safetensors";
  ExportOptions options;
  bool json = false;
};

int run(const Arguments& arguments) {
  // One process does it; what a launcher started besides has nothing to do.
  if (!first_of_launcher()) return static_cast<int>(ExitCode::done);
  std::optional<Progress> progress;
  const ExportResult result =
      export_safetensors(arguments.source, arguments.output, arguments.options, [&](auto done, auto total) {
        if (!progress) progress.emplace(static_cast<std::int64_t>(total), "B");
        progress->update(static_cast<std::int64_t>(done));
      });
  if (progress) progress->clear();
  if (result.not_finite > 0) spdlog::warn("{} numbers of the model are infinite or NaN", result.not_finite);
  if (!has_tokenizer(result.companions))
    spdlog::warn("no tokenizer files beside the model; give their folder with --tokenizer, if it has some");
  if (arguments.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"output", arguments.output},
                                              {"parameters", result.parameters},
                                              {"bytes_written", result.bytes_written},
                                              {"not_finite", result.not_finite},
                                              {"files", result.files},
                                              {"companions", result.companions}}
                           .dump(2));
  else
    fmt::print("{} parameters in {} -> {}/{}; beside {} config.json{}{}\n", result.parameters,
               name_of(arguments.options.type), arguments.output,
               result.files.size() == 1 ? result.files.front() : "model.safetensors.index.json",
               result.files.size() == 1 ? "it" : fmt::format("it {} files,", result.files.size()),
               result.companions.empty() ? "" : ", ", fmt::join(result.companions, ", "));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_export(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("export", "Turn a saved model into safetensors for Hugging Face tools");
  command->footer(
      "Example: atoll export runs/text/checkpoints/latest out --dtype bf16 --tokenizer smollm\n"
      "then in Python: transformers.AutoModelForCausalLM.from_pretrained(\"out\"). Needs little memory.");
  command->add_option("source", arguments->source, "A run folder, a checkpoint, a model file, or safetensors")
      ->required();
  command->add_option("output", arguments->output, "Folder to make")->required();
  command->add_option("--format", arguments->format, "What to write")
      ->check(CLI::IsMember({"safetensors"}).description(""))
      ->type_name("safetensors")
      ->capture_default_str();
  command->add_option("--dtype", arguments->options.type, "Type of the numbers; rounded once, to nearest")
      ->transform(
          choices_of<WeightType>({{"fp32", WeightType::fp32}, {"bf16", WeightType::bf16}, {"fp16", WeightType::fp16}}))
      ->type_name("fp32|bf16|fp16")
      ->default_str("fp32");
  command
      ->add_option("--max-shard-size", arguments->options.max_shard_bytes,
                   "Bytes of a file, as 5GB or 500MB (or GiB, MiB); larger models get several and an index")
      ->transform(size_in_bytes())
      ->check(positive().description(""))
      ->type_name("SIZE")
      ->default_str("5GB");
  command->add_option("--tokenizer", arguments->options.tokenizer,
                      "Folder with the tokenizer's files; default: that of the model, or of the data it learnt");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
