/// Text files on disk: finding them, and reading them in pieces. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

struct FoundFile {
  std::string path;
  std::int64_t bytes = 0;
  bool named = false;  ///< by the user, not found in a folder
};

/// Regular files of `inputs` in order, those of a folder in depth and sorted by path. Passes over names that start with
/// a dot, and links to folders. DataError for an input that is not there or is neither file nor folder.
std::vector<FoundFile> find_files(const std::vector<std::string>& inputs);

/// Calls `visit` with the bytes [begin, end) of a file in pieces of at most 1 MiB. DataError when they cannot be read,
/// or when the file is shorter by now.
void read_file(const std::string& path, std::int64_t begin, std::int64_t end,
               const std::function<void(std::string_view piece)>& visit);

/// Writes a small file. ConfigError where that fails.
void write_text_file(const std::string& path, const std::string& text);

/// "gzip -d" and its like for a file that starts as compressed files do, else nothing.
std::optional<std::string> decompression_command(const std::string& path);

}  // namespace atl
