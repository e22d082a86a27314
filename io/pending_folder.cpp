/// SPDX-License-Identifier: Apache-2.0
#include "io/pending_folder.hpp"

#include "core/errors.hpp"
#include "io/pending_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <unistd.h>

namespace atl {

namespace fs = std::filesystem;

PendingFolder::PendingFolder(const std::string& path, std::uint64_t bytes) {
  // Without a slash at its end, so that the temporary folder is beside it.
  fs::path plain = fs::path(path).lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();
  path_ = plain.string();
  std::error_code error;
  if (fs::exists(path_, error) && !(fs::is_directory(path_, error) && fs::is_empty(path_, error)))
    throw DataError(fmt::format("{}: is there already; name a folder that is not there, or empty", path));
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  temporary_ = fmt::format("{}.tmp-{}-{}", path_, host, ::getpid());
  fs::create_directories(temporary_, error);
  if (error) throw DataError(fmt::format("{}: cannot make the folder {}: {}", path, temporary_, error.message()));
  const auto space = fs::space(temporary_, error);
  if (!error && space.available < bytes) {
    fs::remove_all(temporary_, error);
    throw DataError(fmt::format("{}: needs {} bytes, but its file system has {} free", path, bytes, space.available));
  }
}

PendingFolder::~PendingFolder() {
  std::error_code ignored;
  if (!published_) fs::remove_all(temporary_, ignored);
}

void PendingFolder::publish() {
  for (const auto& entry : fs::directory_iterator(temporary_)) flush_to_disk(entry.path().string());
  flush_to_disk(temporary_);
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) throw DataError(fmt::format("{}: cannot rename {} to it: {}", path_, temporary_, error.message()));
  published_ = true;
  const auto parent = fs::path(path_).parent_path();
  flush_to_disk(parent.empty() ? "." : parent.string());
}

}  // namespace atl
