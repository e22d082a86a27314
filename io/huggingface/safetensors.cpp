/// SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/safetensors.hpp"

#include "core/errors.hpp"
#include "io/checkpoint/files.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace atl {

namespace {

/// Of a regular file: opening a pipe would wait for its other end.
int open_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw DataError(fmt::format("{}: {}", path, error ? error.message() : "not a file, or not there"));
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw DataError(fmt::format("{}: cannot open it: {}", path, std::strerror(errno)));
  return descriptor;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), descriptor_(open_file(path)) {
  try {
    const std::uint64_t size = std::filesystem::file_size(path);
    if (size < 8) throw DataError(fmt::format("{}: no safetensors file: it has {} bytes only", path, size));
    unsigned char length[8];
    read_exactly(descriptor_, path, 0, length, sizeof length);
    std::uint64_t header = 0;
    for (int i = 0; i < 8; ++i) header |= std::uint64_t{length[i]} << (8 * i);
    if (header > size - 8 || header > largest_safetensors_header)
      throw DataError(fmt::format(
          "{}: no safetensors file, or cut off: its header would take {} bytes; {} bytes follow, and the format allows "
          "{}",
          path, header, size - 8, largest_safetensors_header));
    std::string text(header, '\0');
    read_exactly(descriptor_, path, 8, text.data(), header);
    data_ = 8 + header;
    header_ = parse_safetensors_header(text, size - data_, path);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& tensor, std::uint64_t begin, std::uint64_t count,
                                 void* to) const {
  ATOLL_REQUIRE(begin <= tensor.end - tensor.begin && count <= tensor.end - tensor.begin - begin);
  read_exactly(descriptor_, path_, data_ + tensor.begin + begin, to, count);
}

}  // namespace atl
