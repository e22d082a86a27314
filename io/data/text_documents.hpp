/// Documents of text files: a file each, or a line of JSON each. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace atl {

enum class TextFormat {
  by_name,     ///< json_lines where the name ends in .jsonl or .ndjson (before .gz or .zst), else text
  text,        ///< the file is a document
  json_lines,  ///< each line is a JSON object that holds a document
};

struct TextLayout {
  TextFormat format = TextFormat::by_name;
  std::string field = "text";    ///< of JSON Lines: the key whose string is the document
  bool replace_invalid = false;  ///< of JSON Lines: what is not UTF-8, and zero bytes, become U+FFFD
};

bool is_json_lines(const std::string& path, const TextLayout& layout);

/// Is told what a file holds, in its order.
class DocumentVisitor {
 public:
  virtual ~DocumentVisitor() = default;
  virtual void text(std::string_view piece) = 0;            ///< of the document that is being read
  virtual void end_document(const std::string& place) = 0;  ///< "x.txt", or "x.jsonl:7"
  /// Instead of a document: "x.jsonl:7: has no key 'text'; it has id, body".
  virtual void broken_line(const std::string& reason) = 0;
  virtual void consumed(std::int64_t bytes) = 0;  ///< more of the file was read
};

/// Reads a file once, from start to end, decompressing it where need be (io/data/byte_stream.hpp). Text comes in pieces
/// of at most 1 MiB, unchecked; a document of JSON Lines comes at once and is valid UTF-8 without zero bytes. Empty
/// lines are passed over. DataError for what cannot be read, and for a line above 256 MiB.
void read_documents(const std::string& path, const TextLayout& layout, DocumentVisitor& visitor);

/// Cuts bytes that arrive in pieces into lines, and takes one string out of each. Used by read_documents.
class JsonLines {
 public:
  static constexpr std::size_t longest_line = 256u << 20;

  /// `name` is that of the file, for messages.
  JsonLines(std::string name, TextLayout layout, DocumentVisitor& visitor)
      : name_(std::move(name)), layout_(std::move(layout)), visitor_(visitor) {}
  void feed(std::string_view bytes);
  void finish();  ///< the last line may lack its end

 private:
  void line(std::string_view text);

  std::string name_;
  TextLayout layout_;
  DocumentVisitor& visitor_;
  std::string waiting_;
  std::int64_t number_ = 0;
};

}  // namespace atl
