/// Fuzz target: gzip and Zstandard, cut, corrupt, or bombs: the same bytes in pieces of any size, or a DataError, in
/// bounded memory; and what is inside as JSON Lines. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/data/byte_stream.hpp"
#include "io/data/text_documents.hpp"
#include "tests/io/scratch_folder.hpp"

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t enough = 2u << 20;  // of a bomb; a small file may hold gigabytes

/// The text from its start, at most `enough` bytes; nothing where the file is refused.
std::optional<std::string> read(const std::string& path, std::size_t piece) {
  try {
    const auto stream = atl::open_byte_stream(path);
    std::vector<char> buffer(piece);
    std::string text;
    while (text.size() < enough) {
      const std::size_t got = stream->read(buffer);
      if (got > piece || (got < piece && stream->read(buffer) != 0)) std::abort();  // less only at the end
      text.append(buffer.data(), got);
      if (got < piece) break;
    }
    return text;
  } catch (const atl::DataError& error) {
    if (std::string_view(error.what()).find(path) == std::string_view::npos) std::abort();
    return {};
  }
}

struct Count : atl::DocumentVisitor {
  struct Enough {};
  std::size_t bytes = 0, documents = 0;
  std::int64_t used = 0;
  void text(std::string_view text) override { bytes += text.size(); }
  void end_document(const std::string&) override { ++documents; }
  void broken_line(const std::string&) override { ++documents; }
  void consumed(std::int64_t file_bytes) override {
    used += file_bytes;
    if (file_bytes < 0) std::abort();
    if (++pieces * (1u << 20) > enough) throw Enough();  // 1 MiB each
  }
  std::size_t pieces = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::ScratchFolder folder;
  const std::string path = folder.write("x.jsonl", {reinterpret_cast<const char*>(data), size});
  const auto whole = read(path, 1u << 20), cut = read(path, 4093);
  if (whole.has_value() != cut.has_value()) {
    // A fault behind `enough` bytes may be seen by one and not by the other.
    const std::string& text = whole ? *whole : *cut;
    if (text.size() < enough) std::abort();
  } else if (whole) {
    const std::size_t both = std::min(whole->size(), cut->size());
    if (whole->compare(0, both, *cut, 0, both) != 0) std::abort();
    if (both < enough && whole->size() != cut->size()) std::abort();
  }
  Count count;
  try {
    atl::read_documents(path, {.replace_invalid = true}, count);
    if (count.used > static_cast<std::int64_t>(size)) std::abort();
  } catch (const atl::DataError&) {
  } catch (const Count::Enough&) {
  }
  return 0;
}
