/// Temporary name, fsync, rename. SPDX-License-Identifier: Apache-2.0
#include "io/pending_file.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace atl {

namespace {

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

}  // namespace

void flush_to_disk(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw DataError(fmt::format("{}: cannot open it to flush it: {}", path, std::strerror(errno)));
  const int failed = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems have no fsync for folders and say EINVAL: there is nothing more to do on those.
  if (failed != 0 && failed != EINVAL) {
    throw DataError(fmt::format("{}: cannot flush it to the disk: {}", path, std::strerror(failed)));
  }
}

PendingFile::PendingFile(const std::string& path) : path_(path) {
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  temporary_ = fmt::format("{}.tmp-{}-{}", path, host, ::getpid());

  const std::string folder = folder_of(path);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw DataError(fmt::format("{}: cannot make the folder {}: {}", path, folder, error.message()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw DataError(fmt::format("{}: cannot write in the folder {}: {}", path, folder, std::strerror(errno)));
  }
}

PendingFile::~PendingFile() {
  if (!published_) std::remove(temporary_.c_str());
}

void PendingFile::publish() {
  flush_to_disk(temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw DataError(fmt::format("{}: cannot rename {} to it: {}", path_, temporary_, std::strerror(errno)));
  }
  published_ = true;
  flush_to_disk(folder_of(path_));
}

}  // namespace atl
