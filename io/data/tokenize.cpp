/// Choosing documents, splitting them, writing the token files. SPDX-License-Identifier: Apache-2.0
#include "io/data/tokenize.hpp"

#include "core/errors.hpp"
#include "io/data/document_passes.hpp"
#include "io/data/document_sinks.hpp"
#include "io/data/document_split.hpp"
#include "io/data/text_files.hpp"
#include "io/data/token_file.hpp"
#include "io/pending_file.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

namespace atl {

namespace {

namespace fs = std::filesystem;

constexpr const char* tokenizer_files[] = {"tokenizer.json", "tokenizer_config.json"};

std::string output_path(const TokenizeOptions& options, const char* name) {
  return (fs::path(options.output) / name).string();
}

bool uses_bytes(const TokenizeOptions& options) { return options.tokenizer.empty() && options.train_vocab == 0; }

void check_options(const TokenizeOptions& options) {
  if (options.inputs.empty()) throw ConfigError("tokenize: name at least one file or folder");
  if (!(options.eval_fraction >= 0 && options.eval_fraction < 1)) {
    throw ConfigError(fmt::format("--eval-fraction {} is not in [0, 1)", options.eval_fraction));
  }
  for (const auto& extension : options.extensions) {
    if (extension.size() < 2 || extension[0] != '.') {
      throw ConfigError(fmt::format("--extensions: '{}' should start with a dot, as in .txt,.rst", extension));
    }
  }
  if (!options.tokenizer.empty() && options.train_vocab != 0)
    throw ConfigError("--tokenizer and --train-vocab exclude each other");
  if (options.train_vocab != 0) BpeTrainer::require_size(options.train_vocab);
  if (options.threads < 1) throw ConfigError(fmt::format("--threads {} is less than 1", options.threads));
  if (uses_bytes(options) && (options.begin_token != "auto" || options.end_token != "auto"))
    throw ConfigError("--begin-token and --end-token go with --tokenizer or --train-vocab");
  if (!options.tokenizer.empty())  // its faults, before all texts are read
    choose_marks(Tokenizer::read(options.tokenizer), options.begin_token, options.end_token);
  std::vector<const char*> names{"train.h5", "eval.h5"};
  if (!uses_bytes(options)) names.insert(names.end(), std::begin(tokenizer_files), std::end(tokenizer_files));
  for (const char* name : names) {
    const std::string path = output_path(options, name);
    if (!options.overwrite && fs::exists(path)) {
      throw ConfigError(path + " exists already; give another --output, or --overwrite to replace it");
    }
    const PendingFile writable(path);  // makes the folder, or throws now and not after an hour of reading
  }
}

/// What transformers' AutoTokenizer and `atoll export` need besides tokenizer.json: which tokens mark documents.
std::string tokenizer_config(const Tokenizer& tokenizer, const DocumentMarks& marks) {
  nlohmann::ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (marks.begin) config["bos_token"] = tokenizer.token(*marks.begin);
  if (marks.end) config["eos_token"] = tokenizer.token(*marks.end);
  config["clean_up_tokenization_spaces"] = false;
  return config.dump(2) + "\n";
}

TokenizedFile finish(TokenFileWriter& writer) {
  writer.finish();
  return {writer.path(), writer.documents(), writer.tokens(), writer.source_bytes()};
}

}  // namespace

TokenizeResult tokenize(const TokenizeOptions& options,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  check_options(options);
  TokenizeResult result;
  std::vector<FoundFile> files;
  std::set<std::string> seen;  // a file reached twice could be in both training and evaluation data
  for (FoundFile& file : find_files(options.inputs)) {
    if (!file.named && !has_extension(file.path, options.extensions)) {
      result.other_extension.add(file.path);
    } else if (!seen.insert(fs::canonical(file.path).string()).second) {
      result.duplicate.add(file.path);
    } else {
      files.push_back(std::move(file));
    }
  }
  const int passes = options.train_vocab > 0 ? 3 : 2;
  Meter meter(files, passes, progress);
  const Survey survey = survey_files(files, passes, options, result, meter);
  if (survey.documents == 0) {
    throw DataError(fmt::format(
        "no text to tokenize: in {} files are {} documents that are not UTF-8 text, {} compressed files that cannot be "
        "read as they are, and {} empty documents",
        files.size(), result.invalid.count, result.compressed.count, result.empty.count));
  }
  const DocumentSplit split(options.eval_fraction, options.seed, survey.documents, survey.bytes_of_last);
  result.split_inside_document = split.cut() >= 0;

  std::string json, name = ByteTokenizer::name;
  std::optional<Tokenizer> tokenizer;
  DocumentMarks marks;
  if (!uses_bytes(options)) {
    const bool trains = options.train_vocab > 0;
    if (trains) {
      BpeTrainer trainer;
      TrainerSink sink(trainer);
      read_documents_of(survey, options, split, sink, meter);
      json = trainer.train(options.train_vocab);
    } else {
      json = Tokenizer::read_file(options.tokenizer);
    }
    name = trains ? "tokenizer.json" : options.tokenizer;
    tokenizer = Tokenizer::parse(json, name);
    const bool own_end = trains && options.end_token == "auto";  // its template, for prompts, has none
    marks = choose_marks(*tokenizer, options.begin_token, own_end ? BpeTrainer::end_token : options.end_token);
    name = fmt::format("{} {}", fs::path(name).filename().string(), tokenizer->checksum());
  }
  const std::int64_t vocab_size = tokenizer ? tokenizer->vocab_size() : ByteTokenizer::vocab_size;
  result.vocab_size = vocab_size;
  TokenFileWriter train(output_path(options, "train.h5"), vocab_size, name);
  std::optional<TokenFileWriter> eval;
  if (options.eval_fraction > 0) eval.emplace(output_path(options, "eval.h5"), vocab_size, name);
  const TokenFiles token_files{&train, eval ? &*eval : nullptr};
  if (tokenizer) {
    TokenizerSink sink(*tokenizer, marks, options.threads, token_files);
    read_documents_of(survey, options, split, sink, meter);
    write_text_file(output_path(options, "tokenizer.json"), json);
    write_text_file(output_path(options, "tokenizer_config.json"), tokenizer_config(*tokenizer, marks));
  } else {
    ByteSink sink(token_files);
    read_documents_of(survey, options, split, sink, meter);
    if (options.overwrite)  // those of an earlier run
      for (const char* stale : tokenizer_files) fs::remove(output_path(options, stale));
  }
  result.train = finish(train);
  if (eval) {
    result.eval = finish(*eval);
  } else {
    fs::remove(output_path(options, "eval.h5"));  // of an earlier run: it would not belong to this training text
  }
  return result;
}

}  // namespace atl
