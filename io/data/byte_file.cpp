/// SPDX-License-Identifier: Apache-2.0
#include "io/data/byte_file.hpp"

#include "core/errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace atl {

namespace {

/// A source may be a thousand files, and 1024 is a common limit, which a process may raise itself.
bool raise_file_limit() {
  ::rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int open_to_read(const std::string& path) {
  // Not blocking: opening a pipe would wait for its writer.
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

ByteFile::ByteFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  descriptor_ = open_to_read(path_);
  if (descriptor_ < 0 && errno == EMFILE && raise_file_limit()) descriptor_ = open_to_read(path_);
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    throw DataError(fmt::format("{}: cannot read it: {}", path_, std::strerror(error)));
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw DataError(path_ + (S_ISDIR(status.st_mode) ? ": is a folder; name its files, as in " + path_ + "/*.bin"
                                                     : ": is not a regular file"));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

ByteFile::~ByteFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void ByteFile::read(std::uint64_t begin, void* out, std::uint64_t bytes) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const std::uint64_t piece = std::min<std::uint64_t>(bytes, 1u << 30);  // Linux moves 2 GiB at most
    const ::ssize_t got = ::pread(descriptor_, to, piece, static_cast<::off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DataError(fmt::format("{}: cannot read byte {}: {}", path_, begin, std::strerror(errno)));
    if (got == 0) throw DataError(fmt::format("{}: ends at byte {}, before what it should hold", path_, begin));
    to += got;
    begin += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
}

std::string ByteFile::start(std::uint64_t most) const {
  std::string bytes(static_cast<std::size_t>(std::min(most, size_)), '\0');
  read(0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace atl
