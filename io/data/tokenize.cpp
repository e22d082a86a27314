/// Choosing documents, splitting them, writing the token files. SPDX-License-Identifier: Apache-2.0
#include "io/data/tokenize.hpp"

#include "core/errors.hpp"
#include "core/random.hpp"
#include "io/data/text_files.hpp"
#include "io/data/token_file.hpp"
#include "io/pending_file.hpp"
#include "io/tokenizer/tokenizer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

namespace atl {

namespace {

namespace fs = std::filesystem;

/// A document: the bytes [begin, end) of a file.
struct Document {
  std::string path;
  std::int64_t begin = 0, end = 0;
  bool eval = false;
};

/// Reports bytes over both passes: checking all files, then writing those that are used.
class Meter {
 public:
  Meter(const std::vector<FoundFile>& files, const std::function<void(std::int64_t, std::int64_t)>& report)
      : report_(report) {
    for (const auto& file : files) total_ += 2 * file.bytes;
  }
  void add(std::int64_t bytes) {
    done_ += bytes;
    if (report_) report_(std::min(done_, total_), total_);
  }

 private:
  const std::function<void(std::int64_t, std::int64_t)>& report_;
  std::int64_t done_ = 0, total_ = 0;
};

void note(LeftOut& kind, const std::string& path) {
  if (kind.count++ == 0) kind.example = path;
}

bool has_extension(const std::string& path, const std::vector<std::string>& extensions) {
  return extensions.empty() || std::any_of(extensions.begin(), extensions.end(), [&](const std::string& extension) {
           return path.size() >= extension.size() &&
                  path.compare(path.size() - extension.size(), std::string::npos, extension) == 0;
         });
}

std::string output_path(const TokenizeOptions& options, const char* name) {
  return (fs::path(options.output) / name).string();
}

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
  for (const char* name : {"train.h5", "eval.h5"}) {
    const std::string path = output_path(options, name);
    if (!options.overwrite && fs::exists(path)) {
      throw ConfigError(path + " exists already; give another --output, or --overwrite to replace it");
    }
    const PendingFile writable(path);  // makes the folder, or throws now and not after an hour of reading
  }
}

/// Reads a file to its end and decides whether it is used. A DataError for a named file that cannot be.
bool is_usable_text(const FoundFile& file, const TokenizeOptions& options, TokenizeResult& result, Meter& meter) {
  if (file.bytes == 0) {
    note(result.empty, file.path);
    return false;
  }
  if (const auto command = decompression_command(file.path)) {
    if (file.named && options.invalid == InvalidText::error) {
      throw DataError(fmt::format("{}: is compressed; decompress it first ({})", file.path, *command));
    }
    meter.add(file.bytes);
    note(result.compressed, file.path);
    return false;
  }
  Utf8Reader text;
  std::string ignored;
  read_file(file.path, 0, file.bytes, [&](std::string_view piece) {
    ignored.clear();
    text.feed(piece, ignored);
    meter.add(static_cast<std::int64_t>(piece.size()));
  });
  text.finish(ignored);
  const auto invalid = text.first_invalid();
  if (!invalid) return true;
  if (options.invalid == InvalidText::replace && (file.named || !text.has_zero_byte())) return true;
  if (options.invalid == InvalidText::error && file.named) {
    throw DataError(
        fmt::format("{}: byte {} is not valid UTF-8 text{}; convert the file (iconv -t UTF-8), or give "
                    "--invalid replace or --invalid skip",
                    file.path, *invalid, text.has_zero_byte() ? " (it has zero bytes: a binary file?)" : ""));
  }
  note(result.invalid, file.path);
  return false;
}

std::vector<Document> choose_documents(const std::vector<FoundFile>& files, const TokenizeOptions& options,
                                       TokenizeResult& result, Meter& meter) {
  std::vector<Document> documents;
  for (const FoundFile& file : files) {
    if (is_usable_text(file, options, result, meter)) {
      documents.push_back({file.path, 0, file.bytes});
    } else {
      meter.add(file.bytes);  // it will not be written
    }
  }
  if (documents.empty()) {
    throw DataError(
        fmt::format("no text to tokenize: of {} files, {} are not UTF-8 text, {} are compressed, {} are empty",
                    files.size(), result.invalid.count, result.compressed.count, result.empty.count));
  }
  return documents;
}

/// The first byte at or before `position` that starts a character.
std::int64_t character_start(const std::string& path, std::int64_t position) {
  std::string around;
  const std::int64_t begin = std::max<std::int64_t>(0, position - 3);
  read_file(path, begin, position + 1, [&](std::string_view piece) { around += piece; });
  while (around.size() > 1 && (static_cast<unsigned char>(around.back()) & 0xc0) == 0x80) around.pop_back();
  return begin + static_cast<std::int64_t>(around.size()) - 1;
}

void split_document(std::vector<Document>& documents, double eval_fraction) {
  Document& whole = documents[0];
  const std::int64_t wanted = std::max<std::int64_t>(1, static_cast<std::int64_t>(eval_fraction * double(whole.end)));
  const std::int64_t cut = character_start(whole.path, whole.end - wanted);
  if (cut == 0) throw DataError(whole.path + ": is too short to split; give more text, or --eval-fraction 0");
  documents.push_back({whole.path, cut, whole.end, true});
  documents[0].end = cut;
}

void split(std::vector<Document>& documents, const TokenizeOptions& options, TokenizeResult& result) {
  if (options.eval_fraction == 0) return;
  if (documents.size() == 1) {
    result.split_inside_document = true;
    return split_document(documents, options.eval_fraction);
  }
  const std::uint64_t key = random_key(options.seed, "tokenize/split");
  std::size_t lowest = 0, highest = 0, chosen = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const double draw = random_uniform(key, i);
    documents[i].eval = draw < options.eval_fraction;
    chosen += documents[i].eval;
    if (draw < random_uniform(key, lowest)) lowest = i;
    if (draw > random_uniform(key, highest)) highest = i;
  }
  if (chosen == 0) documents[lowest].eval = true;
  if (chosen == documents.size()) documents[highest].eval = false;
}

void write_document(const Document& document, const TokenizeOptions& options, TokenFileWriter& writer, Meter& meter) {
  Utf8Reader text;
  std::string clean;
  std::vector<std::int32_t> tokens{ByteTokenizer::begin_of_document};
  const auto flush = [&] {
    ByteTokenizer::append(clean, tokens);
    writer.append(tokens);
    tokens.clear();
    clean.clear();
  };
  read_file(document.path, document.begin, document.end, [&](std::string_view piece) {
    text.feed(piece, clean);
    flush();
    meter.add(static_cast<std::int64_t>(piece.size()));
  });
  text.finish(clean);
  if (text.first_invalid() && options.invalid != InvalidText::replace) {
    throw DataError(document.path + ": changed while it was read");
  }
  flush();
  tokens.push_back(ByteTokenizer::end_of_document);
  writer.append(tokens);
  writer.end_document(document.end - document.begin);
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
  Meter meter(files, progress);
  std::vector<Document> documents = choose_documents(files, options, result, meter);
  split(documents, options, result);

  TokenFileWriter train(output_path(options, "train.h5"), ByteTokenizer::vocab_size, ByteTokenizer::name);
  std::optional<TokenFileWriter> eval;
  if (options.eval_fraction > 0) {
    eval.emplace(output_path(options, "eval.h5"), ByteTokenizer::vocab_size, ByteTokenizer::name);
  }
  for (const Document& document : documents) write_document(document, options, document.eval ? *eval : train, meter);
  result.train = finish(train);
  if (eval) {
    result.eval = finish(*eval);
  } else {
    fs::remove(output_path(options, "eval.h5"));  // of an earlier run: it would not belong to this training text
  }
  return result;
}

}  // namespace atl
