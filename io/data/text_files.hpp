/// Text files on disk: finding them, and reading them in pieces. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

/// True if the name ends in one of `extensions` (".txt"), before a .gz or .zst; of none, always.
bool has_extension(const std::string& path, const std::vector<std::string>& extensions);

/// Writes a small file. ConfigError where that fails.
void write_text_file(const std::string& path, const std::string& text);

/// "xz -d" and its like for a file that starts as files of compressors do that are not read here, else nothing.
std::optional<std::string> decompression_command(const std::string& path);

}  // namespace atl
