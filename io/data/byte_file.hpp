/// Byte ranges of a file, read by as few calls as they have. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace atl {

/// A regular file, open for reading. Reads are calls of pread of the range asked for: no mapped pages, whose faults
/// would be thousands of small requests to a parallel file system. Faults are DataErrors that name file and byte.
class ByteFile {
 public:
  explicit ByteFile(std::string path);
  ~ByteFile();
  ByteFile(ByteFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  ByteFile& operator=(ByteFile&&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< bytes, when it was opened

  /// Bytes [begin, begin + bytes) into `out`. DataError where the file ends before.
  void read(std::uint64_t begin, void* out, std::uint64_t bytes) const;
  /// The first `most` bytes, or all where there are less.
  std::string start(std::uint64_t most) const;
  template <class T>
  T value(std::uint64_t begin) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T result;
    read(begin, &result, sizeof result);
    return result;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace atl
