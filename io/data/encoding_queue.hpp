/// Documents encoded on threads, in order. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokenizer/tokenizer.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace atl {

/// Tokens before and after each document.
struct DocumentMarks {
  std::optional<std::int32_t> begin, end;
};

/// From "auto" (what the tokenizer's template says), "none", or a token. ConfigError for a token that is not there, and
/// where "auto" would leave documents without any mark.
DocumentMarks choose_marks(const Tokenizer& tokenizer, const std::string& begin, const std::string& end);

/// Puts the marks around tokens, unless they are there already.
void add_marks(const DocumentMarks& marks, std::vector<std::int32_t>& tokens);

/// Takes documents, encodes them on threads, and hands their tokens to `write` in order, on the thread that calls push
/// and finish. Some batches of documents per thread are held, 256 KiB each or a document. An exception of a thread is
/// thrown by push or finish.
class EncodingQueue {
 public:
  EncodingQueue(const Tokenizer& tokenizer, int threads, std::function<void(std::span<const std::int32_t>)> write);
  ~EncodingQueue();
  EncodingQueue(const EncodingQueue&) = delete;
  EncodingQueue& operator=(const EncodingQueue&) = delete;

  void push(std::string text);
  void finish();

 private:
  using Texts = std::vector<std::string>;
  struct Done {
    std::vector<std::vector<std::int32_t>> tokens;
    std::exception_ptr error;
  };
  void work();
  void send();
  void write_next();

  const Tokenizer& tokenizer_;
  std::function<void(std::span<const std::int32_t>)> write_;
  Texts batch_;
  std::size_t batch_bytes_ = 0, sent_ = 0, written_ = 0, window_;

  std::mutex mutex_;  // of what follows
  std::condition_variable wanted_, ready_;
  std::deque<std::pair<std::size_t, Texts>> waiting_;
  std::map<std::size_t, Done> done_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace atl
