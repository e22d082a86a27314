/// The work of `atoll tokenize`: text files to token files, split for training and evaluation.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/text_documents.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace atl {

/// What to do with a document that is not UTF-8 text (invalid bytes, or a zero byte).
enum class InvalidText {
  error,  ///< a file that was named, or a line of JSON, is an error; a file found in a folder is left out, and counted
  skip,   ///< named files, and lines, are left out too
  replace,  ///< each invalid sequence becomes U+FFFD; a file with zero bytes that was found in a folder is left out
};

struct TokenizeOptions {
  std::vector<std::string> inputs;      ///< files, and folders, which are searched in depth
  std::string output;                   ///< folder of train.h5, eval.h5 and, but for bytes, the tokenizer's files
  double eval_fraction = 0.01;          ///< share of the documents for evaluation, in [0, 1)
  std::uint64_t seed = 1;               ///< of the split
  std::vector<std::string> extensions;  ///< of files in folders: ".txt"; empty: all
  TextFormat format = TextFormat::by_name;
  std::string field = "text";  ///< of JSON Lines: the key whose string is the document
  InvalidText invalid = InvalidText::error;
  std::string tokenizer;             ///< path of a tokenizer.json; empty: a token per byte
  std::int64_t train_vocab = 0;      ///< train a BPE of so many tokens on the training documents; 0: do not
  std::string begin_token = "auto";  ///< before each document: as the tokenizer's template says, a token, or "none"
  std::string end_token = "auto";    ///< after it, likewise
  int threads = 1;                   ///< that encode; the files do not depend on it
  bool overwrite = false;            ///< otherwise files that are there already are an error
};

/// One token file that was written.
struct TokenizedFile {
  std::string path;
  std::int64_t documents = 0, tokens = 0, bytes = 0;
};

/// Files, or documents, that were not used, with the first of each kind as an example.
struct LeftOut {
  std::int64_t count = 0;
  std::string example;

  void add(const std::string& path) {
    if (count++ == 0) example = path;
  }
};

struct TokenizeResult {
  TokenizedFile train, eval;           ///< eval.path is empty when eval_fraction is 0
  std::int64_t vocab_size = 0;         ///< the run's model.vocab_size
  bool split_inside_document = false;  ///< there was one document only: its end is the evaluation text
  LeftOut invalid, compressed, empty, other_extension, duplicate;
};

/// A file is a document, or of JSON Lines each line; .gz and .zst are read as they are. Order: inputs as given, files
/// of a folder sorted by name; hidden files and folders and links to folders are passed over, a file reached twice
/// counts once. Whether a document is for evaluation is a pure function of (seed, its number); each side has at least
/// one document when there are two. Memory does not grow with the files' sizes or the number of documents for bytes; a
/// tokenizer.json needs some documents of each thread as a whole. A document that begins or ends with its mark in the
/// text does not get it twice. `progress` is told bytes done and bytes in all. ConfigError for wrong options, DataError
/// for wrong files.
TokenizeResult tokenize(const TokenizeOptions& options,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace atl
