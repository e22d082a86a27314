/// SPDX-License-Identifier: Apache-2.0
#include "io/data/text_documents.hpp"

#include "core/errors.hpp"
#include "io/data/byte_stream.hpp"
#include "io/data/text_files.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace atl {

namespace {

/// Takes the string of one key of the outermost object, without building the rest. The last one counts where a key
/// comes twice, as for other readers of JSON.
class FieldReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldReader(const std::string& field) : field_(field) {}

  std::optional<std::string> value;
  std::string fault;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& text) override {
    if (depth_ == 0) return other("a string");
    if (!wanted()) return true;
    value = std::move(text);
    return true;
  }
  bool start_object(std::size_t) override { return start("an object"); }
  bool end_object() override { return end(); }
  bool start_array(std::size_t) override { return depth_ == 0 ? other("an array") : start("an array"); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    wanted_ = name == field_;
    if (keys_.size() < 8) keys_.push_back(name.substr(0, 40));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fault = fmt::format("is not JSON: wrong at byte {} of the line", position);
    return false;
  }
  std::string missing() const {
    return fmt::format("has no key '{}'; it has {} (--field names the key)", field_,
                       keys_.empty() ? "none" : fmt::format("{}", fmt::join(keys_, ", ")));
  }

 private:
  bool wanted() { return depth_ == 1 && std::exchange(wanted_, false); }
  bool start(const char* what) {
    if (wanted() && !other(what, true)) return false;
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  bool other(const char* what, bool field = false) {
    if (depth_ == 0)
      fault = fmt::format("is {}, not an object", what);
    else if (field || wanted())
      fault = fmt::format("has '{}', but it is {}, not a string", field_, what);
    return fault.empty();
  }

  const std::string& field_;
  std::vector<std::string> keys_;
  std::size_t depth_ = 0;
  bool wanted_ = false;
};

/// Four hexadecimal digits at `at`, or -1.
int code_unit(std::string_view text, std::size_t at) {
  int unit = 0;
  if (at + 4 > text.size()) return -1;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, unit, 16);
  return error == std::errc() && end == text.data() + at + 4 && unit >= 0 ? unit : -1;
}

/// The line with every escaped half of a surrogate pair that lacks the other half made \\ufffd; empty if there is none.
/// Programs that escape text cut between the halves write them.
std::string with_pairs_only(std::string_view line) {
  std::string mended;
  for (std::size_t i = line.find('\\'); i != std::string_view::npos; i = line.find('\\', i)) {
    const int unit = line.substr(i, 2) == "\\u" ? code_unit(line, i + 2) : -1;
    if (unit < 0xd800 || unit > 0xdfff) {
      i += 2;
      continue;
    }
    const int low =
        unit < 0xdc00 && line.substr(std::min(i + 6, line.size()), 2) == "\\u" ? code_unit(line, i + 8) : -1;
    const bool pair = low >= 0xdc00 && low <= 0xdfff;
    if (!pair && mended.empty()) mended = line;
    if (!pair) mended.replace(i, 6, "\\ufffd");
    i += pair ? 12 : 6;
  }
  return mended;
}

}  // namespace

bool is_json_lines(const std::string& path, const TextLayout& layout) {
  if (layout.format != TextFormat::by_name) return layout.format == TextFormat::json_lines;
  return has_extension(path, {".jsonl", ".ndjson"});
}

void JsonLines::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (waiting_.size() + piece.size() > longest_line)
      throw DataError(fmt::format("{}:{}: the line is longer than 256 MiB; is it JSON Lines?", name_, number_ + 1));
    if (end == std::string_view::npos) {
      waiting_ += piece;
      return;
    }
    if (waiting_.empty()) {
      line(piece);
    } else {
      waiting_ += piece;
      line(waiting_);
      waiting_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void JsonLines::finish() {
  if (!waiting_.empty()) line(waiting_);
  waiting_.clear();
}

void JsonLines::line(std::string_view text) {
  ++number_;
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  std::string clean;
  const auto make_clean = [&clean](std::string_view bytes) {
    std::string out;
    Utf8Reader reader;
    reader.feed(bytes, out);
    reader.finish(out);
    clean = std::move(out);
    return std::string_view(clean);
  };
  if (layout_.replace_invalid) text = make_clean(text);
  const std::string pairs_only = with_pairs_only(text);
  if (layout_.replace_invalid && !pairs_only.empty()) text = pairs_only;
  FieldReader reader(layout_.field);
  nlohmann::json::sax_parse(text, &reader);
  const std::string place = fmt::format("{}:{}", name_, number_);
  constexpr const char* advice = "(--invalid replace makes it U+FFFD)";
  if (!reader.fault.empty() && !layout_.replace_invalid && !pairs_only.empty())
    reader.fault = fmt::format("has half of a surrogate pair, which is no character {}", advice);
  if (reader.fault.empty() && !reader.value) reader.fault = reader.missing();
  if (reader.fault.empty() && reader.value->find('\0') != std::string::npos) {  // written as \u0000
    if (layout_.replace_invalid)
      reader.value = std::string(make_clean(*reader.value));
    else
      reader.fault = fmt::format("has U+0000, a zero byte, in its '{}' {}", layout_.field, advice);
  }
  if (!reader.fault.empty()) return visitor_.broken_line(place + ": " + reader.fault);
  visitor_.text(*reader.value);
  visitor_.end_document(place);
}

void read_documents(const std::string& path, const TextLayout& layout, DocumentVisitor& visitor) {
  const auto stream = open_byte_stream(path);
  std::optional<JsonLines> lines;
  if (is_json_lines(path, layout)) lines.emplace(path, layout, visitor);
  std::vector<char> buffer(1u << 20);
  std::int64_t told = 0;
  while (const std::size_t got = stream->read(buffer)) {
    const std::string_view piece(buffer.data(), got);
    lines ? lines->feed(piece) : visitor.text(piece);
    visitor.consumed(stream->consumed() - told);
    told = stream->consumed();
  }
  lines ? lines->finish() : visitor.end_document(path);
}

}  // namespace atl
