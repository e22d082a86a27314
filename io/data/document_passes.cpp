/// SPDX-License-Identifier: Apache-2.0
#include "io/data/document_passes.hpp"

#include "core/errors.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace atl {

namespace {

TextLayout layout_of(const TokenizeOptions& options) {
  return {options.format, options.field, options.invalid == InvalidText::replace};
}

/// First pass over a file: which of its documents are used. A document that is not text is one broken line of JSON
/// Lines, or the whole of another file.
class FileSurvey : public DocumentVisitor {
 public:
  FileSurvey(const FoundFile& file, const TokenizeOptions& options, TokenizeResult& result, Meter& meter)
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
      result_.empty.add(place);
    else if (is_usable(place))
      ++documents_, bytes_of_last_ = bytes_;
    reader_ = {};
    bytes_ = 0;
  }
  void broken_line(const std::string& reason) override {
    if (options_.invalid != InvalidText::skip)
      throw DataError(reason + "; mend it, or give --invalid skip to leave out such lines");
    result_.invalid.add(reason);
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
    result_.invalid.add(place);
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

FileSurvey survey_file(const FoundFile& file, const TokenizeOptions& options, TokenizeResult& result, Meter& meter) {
  FileSurvey survey(file, options, result, meter);
  const auto command = decompression_command(file.path);
  if (command && (file.named && options.invalid == InvalidText::error))
    throw DataError(fmt::format("{}: is compressed; decompress it first ({})", file.path, *command));
  if (command) {
    meter.add(file.bytes);
    result.compressed.add(file.path);
  } else {
    read_documents(file.path, layout_of(options), survey);
  }
  return survey;
}

}  // namespace

Meter::Meter(const std::vector<FoundFile>& files, int passes, const Report& report) : report_(report) {
  for (const auto& file : files) total_ += passes * file.bytes;
}

void Meter::add(std::int64_t bytes) {
  done_ += bytes;
  if (report_) report_(std::min(done_, total_), total_);
}

Survey survey_files(const std::vector<FoundFile>& files, int passes, const TokenizeOptions& options,
                    TokenizeResult& result, Meter& meter) {
  Survey all;
  for (const FoundFile& file : files) {
    const FileSurvey survey = survey_file(file, options, result, meter);
    if (survey.documents() == 0) {
      meter.add((passes - 1) * file.bytes);  // it will not be read again
      continue;
    }
    all.files.push_back({file, survey.documents()});
    all.documents += survey.documents();
    all.bytes_of_last = survey.bytes_of_last();
  }
  return all;
}

void read_documents_of(const Survey& survey, const TokenizeOptions& options, const DocumentSplit& split,
                       DocumentSink& sink, Meter& meter) {
  Reading reading(options, split, sink, meter);
  for (const UsedFile& use : survey.files) {
    const std::int64_t before = reading.documents();
    read_documents(use.file.path, layout_of(options), reading);
    if (reading.documents() - before != use.documents) throw DataError(use.file.path + ": changed while it was read");
  }
  sink.finish();
}

}  // namespace atl
