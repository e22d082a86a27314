/// Where documents go: token files, or the training of a tokenizer. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/encoding_queue.hpp"
#include "io/data/token_file.hpp"
#include "io/tokenizer/bpe_trainer.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace atl {

enum class Side { train, eval };

/// Takes documents one after the other, each in pieces of valid UTF-8.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  virtual void text(Side side, std::string_view piece) = 0;
  /// Ends the document, which had `bytes` as it was read.
  virtual void end(Side side, std::int64_t bytes) = 0;
  virtual void finish() {}  ///< after the last one
};

/// The files of both sides; `eval` is null where nothing is for evaluation.
struct TokenFiles {
  TokenFileWriter* train = nullptr;
  TokenFileWriter* eval = nullptr;
  TokenFileWriter& of(Side side) const { return side == Side::train ? *train : *eval; }
};

/// A token per byte, between marks; memory does not grow with documents.
class ByteSink : public DocumentSink {
 public:
  explicit ByteSink(const TokenFiles& files) : files_(files) {}
  void text(Side side, std::string_view piece) override;
  void end(Side side, std::int64_t bytes) override;

 private:
  TokenFiles files_;
  bool inside_ = false;  // a document
  std::vector<std::int32_t> tokens_;
};

/// Tokens of a tokenizer.json, on threads. Holds documents as a whole.
class TokenizerSink : public DocumentSink {
 public:
  TokenizerSink(const Tokenizer& tokenizer, const DocumentMarks& marks, int threads, const TokenFiles& files);
  void text(Side, std::string_view piece) override { text_ += piece; }
  void end(Side side, std::int64_t bytes) override;
  void finish() override { queue_.finish(); }

 private:
  void write(std::span<const std::int32_t> tokens);

  const Tokenizer& tokenizer_;
  DocumentMarks marks_;
  TokenFiles files_;
  std::string text_;
  std::deque<std::pair<Side, std::int64_t>> coming_;  // documents on their way, with their bytes
  EncodingQueue queue_;
};

/// Counts words of the training documents.
class TrainerSink : public DocumentSink {
 public:
  explicit TrainerSink(BpeTrainer& trainer) : trainer_(trainer) {}
  void text(Side side, std::string_view piece) override {
    if (side == Side::train) text_ += piece;
  }
  void end(Side, std::int64_t) override {
    trainer_.add(text_);
    text_.clear();
  }

 private:
  BpeTrainer& trainer_;
  std::string text_;
};

}  // namespace atl
