/// Documents to token files. SPDX-License-Identifier: Apache-2.0
#include "io/data/document_sinks.hpp"

#include "io/tokenizer/byte_tokenizer.hpp"

namespace atl {

void ByteSink::text(Side side, std::string_view piece) {
  if (!inside_) tokens_ = {ByteTokenizer::begin_of_document};
  inside_ = true;
  ByteTokenizer::append(piece, tokens_);
  files_.of(side).append(tokens_);
  tokens_.clear();
}

void ByteSink::end(Side side, std::int64_t bytes) {
  files_.of(side).append(std::vector<std::int32_t>{ByteTokenizer::end_of_document});
  files_.of(side).end_document(bytes, 0);
  inside_ = false;
}

TokenizerSink::TokenizerSink(const Tokenizer& tokenizer, const DocumentMarks& marks, int threads,
                             const TokenFiles& files)
    : tokenizer_(tokenizer),
      marks_(marks),
      files_(files),
      queue_(tokenizer, threads, [this](std::span<const std::int32_t> tokens) { write(tokens); }) {}

void TokenizerSink::end(Side side, std::int64_t bytes) {
  coming_.emplace_back(side, bytes);
  queue_.push(std::move(text_));
  text_.clear();
}

void TokenizerSink::write(std::span<const std::int32_t> tokens) {
  const auto [side, bytes] = coming_.front();
  coming_.pop_front();
  std::vector<std::int32_t> marked(tokens.begin(), tokens.end());
  add_marks(marks_, marked);
  const bool text_first = !marks_.begin && !tokens.empty();
  files_.of(side).append(marked);
  files_.of(side).end_document(bytes, text_first ? tokenizer_.bytes_at_start(tokens.front()) : 0);
}

}  // namespace atl
