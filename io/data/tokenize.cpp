/// Choosing documents, splitting them, writing the token files. SPDX-License-Identifier: Apache-2.0
#include "io/data/tokenize.hpp"

#include "core/errors.hpp"
#include "io/data/document_sinks.hpp"
#include "io/data/document_split.hpp"
#include "io/data/text_documents.hpp"
#include "io/data/text_files.hpp"
#include "io/data/token_file.hpp"
#include "io/pending_file.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

namespace atl {

namespace {

namespace fs = std::filesystem;

/// Reports bytes over all passes: checking all files, then reading those that are used.
class Meter {
 public:
  Meter(const std::vector<FoundFile>& files, int passes, const std::function<void(std::int64_t, std::int64_t)>& report)
      : report_(report) {
    for (const auto& file : files) total_ += passes * file.bytes;
  }
  void add(std::int64_t bytes) {
    done_ += bytes;
    if (report_) report_(std::min(done_, total_), total_);
  }

 private:
  const std::function<void(std::int64_t, std::int64_t)>& report_;
  std::int64_t done_ = 0, total_ = 0;
};

/// A file that is used, and how many documents it has.
struct UsedFile {
  FoundFile file;
  std::int64_t documents = 0;
};

TextLayout layout_of(const TokenizeOptions& options) {
  return {options.format, options.field, options.invalid == InvalidText::replace};
}

void note(LeftOut& kind, const std::string& path) {
  if (kind.count++ == 0) kind.example = path;
}

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
  for (const char* name : {"train.h5", "eval.h5", "tokenizer.json"}) {
    if (uses_bytes(options) && std::string_view(name) == "tokenizer.json") continue;
    const std::string path = output_path(options, name);
    if (!options.overwrite && fs::exists(path)) {
      throw ConfigError(path + " exists already; give another --output, or --overwrite to replace it");
    }
    const PendingFile writable(path);  // makes the folder, or throws now and not after an hour of reading
  }
}

/// First pass over a file: which of its documents are used. A document that is not text is one broken line of JSON
/// Lines, or the whole of another file.
class Survey : public DocumentVisitor {
 public:
  Survey(const FoundFile& file, const TokenizeOptions& options, TokenizeResult& result, Meter& meter)
      : file_(file),
        options_(options),
        result_(result),
        meter_(meter),
        lines_(is_json_lines(file.path, layout_of(options))) {}

  std::int64_t documents() const { return documents_; }
  std::int64_t bytes_of_last() const { return bytes_of_last_; }

  void text(std::string_view piece) override {
    bytes_ += static_cast<std::int64_t>(piece.size());
    ignored_.clear();
    if (!lines_) reader_.feed(piece, ignored_);  // lines are clean already
  }
  void end_document(const std::string& place) override {
    reader_.finish(ignored_);
    if (bytes_ == 0)
      note(result_.empty, place);
    else if (is_usable(place))
      ++documents_, bytes_of_last_ = bytes_;
    reader_ = {};
    bytes_ = 0;
  }
  void broken_line(const std::string& reason) override {
    if (options_.invalid != InvalidText::skip)
      throw DataError(reason + "; mend it, or give --invalid skip to leave out such lines");
    note(result_.invalid, reason);
  }
  void consumed(std::int64_t bytes) override { meter_.add(bytes); }

 private:
  bool is_usable(const std::string& place) {
    const auto invalid = reader_.first_invalid();
    if (!invalid) return true;
    if (options_.invalid == InvalidText::replace && (file_.named || !reader_.has_zero_byte())) return true;
    if (options_.invalid == InvalidText::error && file_.named) {
      throw DataError(
          fmt::format("{}: byte {} is not valid UTF-8 text{}; convert the file (iconv -t UTF-8), or give "
                      "--invalid replace or --invalid skip",
                      place, *invalid, reader_.has_zero_byte() ? " (it has zero bytes: a binary file?)" : ""));
    }
    note(result_.invalid, place);
    return false;
  }

  const FoundFile& file_;
  const TokenizeOptions& options_;
  TokenizeResult& result_;
  Meter& meter_;
  bool lines_;
  Utf8Reader reader_;
  std::string ignored_;
  std::int64_t documents_ = 0, bytes_ = 0, bytes_of_last_ = 0;
};

/// Another pass over all files: gives their documents to a sink.
class Reading : public DocumentVisitor {
 public:
  Reading(const TokenizeOptions& options, const DocumentSplit& split, DocumentSink& sink, Meter& meter)
      : options_(options), split_(split), sink_(sink), meter_(meter) {}

  std::int64_t documents() const { return document_; }

  void text(std::string_view piece) override {
    if (bytes_ == 0 && !piece.empty()) start(split_.cut() < 0 && split_.is_eval(document_) ? Side::eval : Side::train);
    if (split_.cut() >= 0 && side_ == Side::train) piece = up_to_cut(piece);
    bytes_ += static_cast<std::int64_t>(piece.size());
    for (; !piece.empty(); piece.remove_prefix(std::min<std::size_t>(piece.size(), 1u << 20))) {  // lines may be long
      reader_.feed(piece.substr(0, 1u << 20), clean_);
      flush();
    }
  }
  void end_document(const std::string& place) override {
    if (bytes_ == 0) return;
    reader_.finish(clean_);
    if (reader_.first_invalid() && options_.invalid != InvalidText::replace)
      throw DataError(place + ": changed while it was read");
    if (split_.cut() >= 0 && side_ == Side::train)
      throw DataError(place + ": is too short to split; give more text, or --eval-fraction 0");
    end();
    ++document_;
  }
  void broken_line(const std::string&) override {}
  void consumed(std::int64_t bytes) override { meter_.add(bytes); }

 private:
  void start(Side side) {
    side_ = side;
    reader_ = {};
  }
  void flush() {
    sink_.text(side_, clean_);
    clean_.clear();
  }
  void end() {
    flush();
    sink_.end(side_, bytes_);
    bytes_ = 0;
  }
  /// Gives away what lies before the cut, at the first character that starts there or later; the rest is returned.
  std::string_view up_to_cut(std::string_view piece) {
    std::size_t at = static_cast<std::size_t>(std::max<std::int64_t>(0, split_.cut() - bytes_));
    while (at < piece.size() && (static_cast<unsigned char>(piece[at]) & 0xc0) == 0x80) ++at;
    if (at >= piece.size()) return piece;
    if (bytes_ + static_cast<std::int64_t>(at) == 0) return piece;
    reader_.feed(piece.substr(0, at), clean_);
    bytes_ += static_cast<std::int64_t>(at);
    end();
    start(Side::eval);
    return piece.substr(at);
  }

  const TokenizeOptions& options_;
  const DocumentSplit& split_;
  DocumentSink& sink_;
  Meter& meter_;
  Side side_ = Side::train;
  Utf8Reader reader_;
  std::string clean_;
  std::int64_t document_ = 0, bytes_ = 0;
};

void read_all(const std::vector<UsedFile>& used, const TokenizeOptions& options, const DocumentSplit& split,
              DocumentSink& sink, Meter& meter) {
  Reading reading(options, split, sink, meter);
  for (const UsedFile& use : used) {
    const std::int64_t before = reading.documents();
    read_documents(use.file.path, layout_of(options), reading);
    if (reading.documents() - before != use.documents) throw DataError(use.file.path + ": changed while it was read");
  }
  sink.finish();
}

Survey survey_file(const FoundFile& file, const TokenizeOptions& options, TokenizeResult& result, Meter& meter) {
  Survey survey(file, options, result, meter);
  const auto command = decompression_command(file.path);
  if (command && (file.named && options.invalid == InvalidText::error))
    throw DataError(fmt::format("{}: is compressed; decompress it first ({})", file.path, *command));
  if (command) {
    meter.add(file.bytes);
    note(result.compressed, file.path);
  } else {
    read_documents(file.path, layout_of(options), survey);
  }
  return survey;
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
      note(result.other_extension, file.path);
    } else if (!seen.insert(fs::canonical(file.path).string()).second) {
      note(result.duplicate, file.path);
    } else {
      files.push_back(std::move(file));
    }
  }
  const int passes = options.train_vocab > 0 ? 3 : 2;
  Meter meter(files, passes, progress);
  std::vector<UsedFile> used;
  std::int64_t documents = 0, bytes = 0;
  for (const FoundFile& file : files) {
    const Survey survey = survey_file(file, options, result, meter);
    documents += survey.documents();
    if (survey.documents() > 0) bytes = survey.bytes_of_last();
    if (survey.documents() > 0)
      used.push_back({file, survey.documents()});
    else
      meter.add((passes - 1) * file.bytes);  // it will not be read again
  }
  if (documents == 0) {
    throw DataError(
        fmt::format("no text to tokenize: of {} files, {} are not UTF-8 text, {} are compressed, {} are empty",
                    files.size(), result.invalid.count, result.compressed.count, result.empty.count));
  }
  const DocumentSplit split(options.eval_fraction, options.seed, documents, bytes);
  result.split_inside_document = split.cut() >= 0;

  std::string json, name = ByteTokenizer::name;
  std::optional<Tokenizer> tokenizer;
  DocumentMarks marks;
  if (!uses_bytes(options)) {
    const bool trains = options.train_vocab > 0;
    if (trains) {
      BpeTrainer trainer;
      TrainerSink sink(trainer);
      read_all(used, options, split, sink, meter);
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
    read_all(used, options, split, sink, meter);
    write_text_file(output_path(options, "tokenizer.json"), json);
  } else {
    ByteSink sink(token_files);
    read_all(used, options, split, sink, meter);
    if (options.overwrite) fs::remove(output_path(options, "tokenizer.json"));  // of an earlier run
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
