/// Compiling and matching patterns. SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer/pattern.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <new>
#include <pcre2.h>

namespace atl {

namespace {

constexpr std::size_t longest_pattern = 1 << 16;  // bytes
constexpr std::uint32_t most_steps = 20'000'000;  // of one match: a second or so
constexpr std::size_t machine_stack = std::size_t{8} << 20;

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

void PatternScratch::Free::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
void PatternScratch::Free::operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
void PatternScratch::Free::operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
void Pattern::Free::operator()(pcre2_code* code) const { pcre2_code_free(code); }

PatternScratch::PatternScratch()
    : stack_(pcre2_jit_stack_create(32 << 10, machine_stack, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      data_(pcre2_match_data_create(1, nullptr)) {  // only the whole match is asked for
  if (context_ == nullptr || data_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context_.get(), most_steps);
  pcre2_set_heap_limit(context_.get(), 1 << 16);  // KiB
  if (stack_ != nullptr) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

Pattern Pattern::literal(std::string_view text, const std::string& where) {
  if (text.empty()) throw DataError(where + ": is empty; it would match everywhere");
  Pattern pattern;
  pattern.where_ = where;
  pattern.literal_ = text;
  return pattern;
}

Pattern Pattern::regex(std::string_view oniguruma, const std::string& where) {
  if (oniguruma.size() > longest_pattern) {
    throw DataError(fmt::format("{}: a regular expression of {} bytes; at most {} are read", where, oniguruma.size(),
                                longest_pattern));
  }
  const std::string translated = translate_oniguruma(oniguruma, where);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Pattern pattern;
  pattern.where_ = where;
  pattern.code_.reset(
      pcre2_compile(bytes_of(translated), translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, context.get()));
  if (pattern.code_ == nullptr) {
    throw DataError(
        fmt::format("{}: the regular expression {} cannot be used: {}", where, oniguruma, message_of(error)));
  }
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(pattern.code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    throw DataError(
        fmt::format("{}: the regular expression {} matches the empty text, which is not supported", where, oniguruma));
  }
  // Without machine code (a system that forbids it) it is interpreted: slower, the same matches.
  pattern.compiled_to_machine_code_ = pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE) == 0;
  return pattern;
}

std::optional<TextRange> Pattern::find(PatternScratch& scratch, std::string_view text, std::size_t from) const {
  if (code_ == nullptr) {
    const std::size_t begin = text.find(literal_, from);
    if (begin == std::string_view::npos) return std::nullopt;
    return TextRange{begin, begin + literal_.size()};
  }
  const auto match = compiled_to_machine_code_ ? pcre2_jit_match : pcre2_match;
  const int result = match(code_.get(), bytes_of(text), text.size(), from, PCRE2_NO_UTF_CHECK, scratch.data_.get(),
                           scratch.context_.get());
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw DataError(
        fmt::format("{}: the regular expression failed at byte {} of a text: {}", where_, from, message_of(result)));
  }
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.data_.get());
  if (found[1] <= found[0]) throw DataError(where_ + ": the regular expression matched the empty text");
  return TextRange{found[0], found[1]};
}

}  // namespace atl
