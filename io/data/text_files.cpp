/// Walking folders and reading files. SPDX-License-Identifier: Apache-2.0
#include "io/data/text_files.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace atl {

namespace {

namespace fs = std::filesystem;

using OwnedFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

OwnedFile open_file(const std::string& path) {
  OwnedFile file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) throw DataError(fmt::format("{}: cannot read it: {}", path, std::strerror(errno)));
  return file;
}

std::vector<FoundFile> files_in(const std::string& folder) {
  std::vector<FoundFile> found;
  try {
    for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
      const bool hidden = entry->path().filename().string().front() == '.';
      if (hidden) entry.disable_recursion_pending();
      std::error_code dangling;  // a link to nowhere is no file
      if (!hidden && entry->is_regular_file(dangling)) {
        found.push_back({entry->path().string(), static_cast<std::int64_t>(entry->file_size()), false});
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("{}: cannot search the folder: {}", folder, error.what()));
  }
  std::sort(found.begin(), found.end(), [](const FoundFile& a, const FoundFile& b) { return a.path < b.path; });
  return found;
}

}  // namespace

std::vector<FoundFile> find_files(const std::vector<std::string>& inputs) {
  std::vector<FoundFile> found;
  for (const std::string& input : inputs) {
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    if (fs::is_directory(status)) {
      const auto inside = files_in(input);
      found.insert(found.end(), inside.begin(), inside.end());
    } else if (fs::is_regular_file(status)) {
      found.push_back({input, static_cast<std::int64_t>(fs::file_size(input)), true});
    } else if (fs::exists(status)) {
      throw DataError(input + ": is neither a file nor a folder (pipes are not read: save the text to a file first)");
    } else {
      throw DataError(
          fmt::format("{}: cannot read it: {}", input, error ? error.message() : "No such file or directory"));
    }
  }
  return found;
}

bool has_extension(const std::string& path, const std::vector<std::string>& extensions) {
  const auto ends_with = [](std::string_view name, std::string_view end) {
    return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
  };
  std::string_view name = path;
  for (const std::string_view compressed : {".gz", ".zst"})
    if (ends_with(name, compressed)) name.remove_suffix(compressed.size());
  return extensions.empty() || std::any_of(extensions.begin(), extensions.end(), [&](const std::string& extension) {
           return ends_with(name, extension) || ends_with(path, extension);
         });
}

std::optional<std::string> decompression_command(const std::string& path) {
  static constexpr std::pair<std::string_view, const char*> known[] = {{"\xfd"
                                                                        "7zXZ",
                                                                        "xz -d"},
                                                                       {"BZh", "bzip2 -d"},
                                                                       {"PK\x03\x04", "unzip"}};
  char start[6] = {};
  const OwnedFile file = open_file(path);
  const std::string_view bytes(start, std::fread(start, 1, sizeof start, file.get()));
  for (const auto& [magic, command] : known) {
    if (bytes.substr(0, magic.size()) == magic) return command;
  }
  return std::nullopt;
}

void write_text_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file)
    throw ConfigError(fmt::format("{}: cannot be written: {}; give another path", path,
                                  errno != 0 ? std::strerror(errno) : "unknown reason"));
}

}  // namespace atl
