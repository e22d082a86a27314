/// The bytes of a text file from its start to its end, decompressed where it is gzip or Zstandard.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace atl {

/// Memory is bounded whatever the file says: 1 MiB of buffer, and a window of Zstandard of at most 2 GiB. All faults
/// are DataErrors that name file and byte.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// The next bytes of the text, as many as fit; less only at the end, and then 0.
  virtual std::size_t read(std::span<char> out) = 0;
  virtual std::int64_t consumed() const = 0;  ///< bytes of the file so far
};

/// Told by the first bytes. DataError for files of other compressors, with the command that decompresses them.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

}  // namespace atl
