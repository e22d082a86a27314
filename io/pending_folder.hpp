/// A folder that appears under its name only when all its files are complete. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace atl {

/// As PendingFile: write into temporary(), then publish(). Without it the destructor removes what was written.
class PendingFolder {
 public:
  /// Makes "<path>.tmp-<host>-<process>". DataError where that cannot be done, where `path` is there and not an empty
  /// folder, or where the file system has less than `bytes` free.
  PendingFolder(const std::string& path, std::uint64_t bytes);
  ~PendingFolder();
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& temporary() const { return temporary_; }

  /// Flushes all files and the folder to the disk, and renames it.
  void publish();

 private:
  std::string path_, temporary_;
  bool published_ = false;
};

}  // namespace atl
