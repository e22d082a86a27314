/// The passes of `atoll tokenize` over its files: which documents are used, then their text. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "io/data/document_sinks.hpp"
#include "io/data/document_split.hpp"
#include "io/data/text_files.hpp"
#include "io/data/tokenize.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace atl {

/// Reports bytes over all passes: checking all files, then reading those that are used.
class Meter {
 public:
  using Report = std::function<void(std::int64_t done, std::int64_t total)>;
  Meter(const std::vector<FoundFile>& files, int passes, const Report& report);
  void add(std::int64_t bytes);

 private:
  const Report& report_;
  std::int64_t done_ = 0, total_ = 0;
};

/// A file that is used, and how many documents it has.
struct UsedFile {
  FoundFile file;
  std::int64_t documents = 0;
};

/// What the first pass finds.
struct Survey {
  std::vector<UsedFile> files;
  std::int64_t documents = 0;
  std::int64_t bytes_of_last = 0;  ///< of the last document
};

/// Reads all files and decides which documents are text and used; those that are not are counted in `result`. A
/// document that is not text is one broken line of JSON Lines, or the whole of another file. DataError where the
/// options say so.
Survey survey_files(const std::vector<FoundFile>& files, int passes, const TokenizeOptions& options,
                    TokenizeResult& result, Meter& meter);

/// Another pass: gives the documents to a sink, each as a whole to the side that `split` says. DataError where a file
/// has changed since the survey.
void read_documents_of(const Survey& survey, const TokenizeOptions& options, const DocumentSplit& split,
                       DocumentSink& sink, Meter& meter);

}  // namespace atl
