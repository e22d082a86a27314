/// atoll tokenize: text files to token files. SPDX-License-Identifier: Apache-2.0
#include "io/data/tokenize.hpp"

#include "apps/commands.hpp"
#include "apps/shared_options.hpp"
#include "core/errors.hpp"
#include "io/report/progress.hpp"

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace atl {

namespace {

struct Arguments {
  TokenizeOptions options;
  bool json = false;
};

void warn(const char* what, const LeftOut& left, const char* reason) {
  if (left.count > 0) spdlog::warn("{} {} left out: {} (first: {})", left.count, what, reason, left.example);
}

void print(const char* side, const TokenizedFile& file) {
  fmt::print("{}: {} documents, {} tokens, {} bytes of text -> {}\n", side, file.documents, file.tokens, file.bytes,
             file.path);
}

void print_json(const TokenizeResult& result) {
  const auto file = [](const TokenizedFile& f) {
    return nlohmann::ordered_json{
        {"path", f.path}, {"documents", f.documents}, {"tokens", f.tokens}, {"bytes", f.bytes}};
  };
  nlohmann::ordered_json json{{"train", file(result.train)}};
  if (!result.eval.path.empty()) json["eval"] = file(result.eval);
  json["vocab_size"] = result.vocab_size;
  json["split_inside_document"] = result.split_inside_document;
  json["left_out"] = {{"invalid", result.invalid.count},
                      {"compressed", result.compressed.count},
                      {"empty", result.empty.count},
                      {"other_extension", result.other_extension.count},
                      {"duplicate", result.duplicate.count}};
  fmt::print("{}\n", json.dump(2));
}

void add_text_options(CLI::App& command, TokenizeOptions& options) {
  command
      .add_option("--input-format", options.format,
                  "auto (a name in .jsonl or .ndjson is JSON Lines), text (a file is a document) or jsonl")
      ->transform(choices_of<TextFormat>(
          {{"auto", TextFormat::by_name}, {"text", TextFormat::text}, {"jsonl", TextFormat::json_lines}}))
      ->type_name("auto|text|jsonl")
      ->default_str("auto");
  command.add_option("--field", options.field, "Of JSON Lines: the key whose string is the document")
      ->capture_default_str();
}

int run(const Arguments& arguments) {
  std::optional<Progress> progress;
  const TokenizeResult result = tokenize(arguments.options, [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace(total, "B");
    progress->update(done);
  });
  if (progress) progress->clear();

  warn("documents", result.invalid, "not UTF-8 text, or not the JSON asked for");
  warn("files", result.compressed, "compressed; decompress them first");
  warn("documents", result.empty, "empty");
  warn("files", result.duplicate, "reached twice");
  if (result.split_inside_document) {
    spdlog::warn("there is one document only: its end, {} bytes, is the evaluation text", result.eval.bytes);
  }
  if (result.vocab_size < arguments.options.train_vocab)
    spdlog::warn("the text has pairs that occur twice for {} tokens only, of --train-vocab {}", result.vocab_size,
                 arguments.options.train_vocab);
  if (arguments.json) {
    print_json(result);
  } else {
    print("train", result.train);
    if (!result.eval.path.empty()) print("eval", result.eval);
    fmt::print("model.vocab_size = {}\n", result.vocab_size);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_tokenize(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  TokenizeOptions& options = arguments->options;
  CLI::App* command = program.add_subcommand("tokenize", "Turn UTF-8 text files into token files");
  command->footer(
      "A file is a document, and so is a line of a .jsonl file; .gz and .zst are read as they are.\nWrites "
      "OUTPUT/train.h5 and OUTPUT/eval.h5, for data.train and data.eval of a run.\n"
      "A token is a byte, unless --tokenizer names a tokenizer.json or --train-vocab asks for a new one.\n"
      "Example: atoll tokenize ~/books --extensions .txt --output data/books");
  command->add_option("inputs", options.inputs, "Text files, and folders (searched in depth, sorted by name)")
      ->required();
  command->add_option("-o,--output", options.output, "Folder for train.h5 and eval.h5")->required();
  command->add_option("--eval-fraction", options.eval_fraction, "Share of the documents for evaluation; 0: none")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the split into training and evaluation")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--extensions", options.extensions, "Of a folder, only files that end so: .txt,.rst,.html")
      ->delimiter(',')
      ->allow_extra_args(false);  // or it would take the inputs that follow it
  add_text_options(*command, options);
  command
      ->add_option(
          "--invalid", options.invalid,
          "Text that is not UTF-8: error (of a folder's files: leave them out, with a count), skip (leave out named "
          "files and lines of JSON too), replace (their invalid bytes by U+FFFD)")
      ->transform(choices_of<InvalidText>(
          {{"error", InvalidText::error}, {"skip", InvalidText::skip}, {"replace", InvalidText::replace}}))
      ->type_name("error|skip|replace")
      ->default_str("error");
  command->add_option("--tokenizer", options.tokenizer, "tokenizer.json of a Hugging Face model (BPE)");
  command->add_option("--train-vocab", options.train_vocab,
                      "Train a byte-level BPE of so many tokens on the training text: OUTPUT/tokenizer.json");
  const std::string marks = "a token, none, or auto: what the tokenizer's template says";
  command->add_option("--begin-token", options.begin_token, "Before each document: " + marks)->capture_default_str();
  command->add_option("--end-token", options.end_token, "After each document: " + marks)->capture_default_str();
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  command->add_option("--threads", options.threads, "Threads that encode")->capture_default_str();
  command->add_flag("--overwrite", options.overwrite, "Replace token files that are there already");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
