/// A window of batches that moves on as they are written. SPDX-License-Identifier: Apache-2.0
#include "io/data/encoding_queue.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace atl {

namespace {

constexpr std::size_t bytes_of_batch = 256 << 10;

std::optional<std::int32_t> choose(const Tokenizer& tokenizer, const char* option, const std::string& wanted,
                                   std::optional<std::int32_t> of_template) {
  if (wanted == "auto") return of_template;
  if (wanted == "none") return std::nullopt;
  if (const auto id = tokenizer.id_of(wanted)) return id;
  throw ConfigError(fmt::format("{} '{}': the tokenizer has no such token; its special tokens are: {}", option, wanted,
                                fmt::join(tokenizer.special_tokens(), " ")));
}

}  // namespace

DocumentMarks choose_marks(const Tokenizer& tokenizer, const std::string& begin, const std::string& end) {
  const DocumentMarks marks{choose(tokenizer, "--begin-token", begin, tokenizer.begin_of_document()),
                            choose(tokenizer, "--end-token", end, tokenizer.end_of_document())};
  if (!marks.begin && !marks.end && (begin == "auto" || end == "auto")) {
    throw ConfigError(
        fmt::format("the tokenizer does not say what marks a document; give --end-token (or --begin-token) one of its "
                    "special tokens: {}; or both of them none",
                    fmt::join(tokenizer.special_tokens(), " ")));
  }
  return marks;
}

void add_marks(const DocumentMarks& marks, std::vector<std::int32_t>& tokens) {
  if (marks.begin && (tokens.empty() || tokens.front() != *marks.begin)) tokens.insert(tokens.begin(), *marks.begin);
  if (marks.end && (tokens.empty() || tokens.back() != *marks.end)) tokens.push_back(*marks.end);
}

EncodingQueue::EncodingQueue(const Tokenizer& tokenizer, int threads,
                             std::function<void(std::span<const std::int32_t>)> write)
    : tokenizer_(tokenizer), write_(std::move(write)), window_(2 * static_cast<std::size_t>(threads)) {
  for (int t = 0; t < threads; ++t) threads_.emplace_back([this] { work(); });
}

EncodingQueue::~EncodingQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void EncodingQueue::work() {
  Encoder encoder(tokenizer_);
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const auto [number, texts] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Done result;
    try {
      for (const std::string& text : texts) result.tokens.push_back(encoder.encode(text));
    } catch (...) {
      result.error = std::current_exception();
    }
    lock.lock();
    done_.emplace(number, std::move(result));
    ready_.notify_one();
  }
}

void EncodingQueue::push(std::string text) {
  batch_bytes_ += text.size();
  batch_.push_back(std::move(text));
  if (batch_bytes_ >= bytes_of_batch) send();
}

void EncodingQueue::send() {
  if (batch_.empty()) return;
  while (sent_ - written_ >= window_) write_next();
  {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(sent_++, std::move(batch_));
  }
  wanted_.notify_one();
  batch_ = {};
  batch_bytes_ = 0;
}

void EncodingQueue::write_next() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return done_.count(written_) > 0; });
  const Done result = std::move(done_.at(written_));
  done_.erase(written_++);
  lock.unlock();
  if (result.error) std::rethrow_exception(result.error);
  for (const auto& tokens : result.tokens) write_(tokens);
}

void EncodingQueue::finish() {
  send();
  while (written_ < sent_) write_next();
}

}  // namespace atl
