/// Fuzz target: JSON Lines. The first byte says where the input is cut in two, and whether bad bytes are replaced.
/// SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/data/text_documents.hpp"
#include "io/tokenizer/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace {

struct Collected : atl::DocumentVisitor {
  std::vector<std::string> documents;
  std::size_t broken = 0;
  void text(std::string_view text) override { documents.emplace_back(text); }
  void end_document(const std::string&) override {}
  void broken_line(const std::string&) override { ++broken; }
  void consumed(std::int64_t) override {}
};

Collected read(std::string_view text, std::size_t cut, bool replace) {
  Collected found;
  atl::JsonLines lines("x", {.replace_invalid = replace}, found);
  lines.feed(text.substr(0, cut));
  lines.feed(text.substr(cut));
  lines.finish();
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool replace = (data[0] & 1) != 0;
  const Collected whole = read(text, 0, replace),
                  cut = read(text, std::min<std::size_t>(data[0] / 2, text.size()), replace);
  if (whole.documents != cut.documents || whole.broken != cut.broken) std::abort();
  for (const std::string& document : whole.documents) {
    std::string ignored;
    atl::Utf8Reader reader;
    reader.feed(document, ignored);
    reader.finish(ignored);
    if (reader.first_invalid()) std::abort();
  }
  return 0;
}
