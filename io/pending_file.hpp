/// A file that appears under its name only when it is complete. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace atl {

/// Flushes a file or folder to the disk (fsync). DataError when it cannot; file systems that cannot flush folders are
/// left in peace.
void flush_to_disk(const std::string& path);

/// Write to temporary(), then publish(): the file is flushed to the disk and renamed, so a reader sees the old file, or
/// the whole new one, never a part. Without publish() the destructor removes the temporary file (an error was thrown).
class PendingFile {
 public:
  /// Makes the folder of `path` where it is missing. DataError when the folder cannot be made or written to.
  explicit PendingFile(const std::string& path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& temporary() const { return temporary_; }  ///< "<path>.tmp-<host>-<process>", in the same folder

  /// Flushes file and folder (fsync) around the rename. Replaces a file that is already there. DataError when it
  /// cannot.
  void publish();

 private:
  std::string path_, temporary_;
  bool published_ = false;
};

}  // namespace atl
