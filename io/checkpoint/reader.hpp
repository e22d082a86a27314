/// Reading a checkpoint: every byte that is used is checked first. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint/manifest.hpp"
#include "parallel/communicator.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace atl {

/// Opens by COMMIT, MANIFEST.json and the sizes of all files, and reads ranges of arrays from the data files
/// themselves, by intersection with the parts stored there. Each segment is read once, hashed, then used: HDF5 sees no
/// byte. Not collective: every rank that reads has one. All faults are DataErrors that name file and offset.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& folder);
  /// Rank 0 looks for the files, all ranks get the manifest. Collective; throws CollectiveError.
  CheckpointReader(const std::string& folder, const Communicator& comm);

  const std::string& folder() const { return folder_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  bool has(const CheckpointArray& array) const { return parts_.count(array.name()) != 0; }

  /// Elements of a unit of an array; to.size() == range.size(). R: float or double, as stored.
  template <class R>
  void read(const CheckpointArray& array, std::size_t unit, Range range, R* to);

  /// Reads and checks what no array covers: HDF5's structures of file i of manifest().files.
  void verify_rest(std::size_t file);
  /// Reads and checks part i of manifest().parts.
  void verify_part(std::size_t part);
  /// Reads and checks every byte; told(bytes so far).
  void verify_all(const std::function<void(std::uint64_t)>& told);

 private:
  void find_files() const;
  void sort_parts();

  struct Descriptor {
    int value = -1;
    ~Descriptor();
  };
  int descriptor(std::size_t file);
  std::string path(std::size_t file) const { return folder_ + "/" + manifest_.files[file].name; }
  void read_checked(std::size_t file, const Segment& segment, void* to);
  /// Its segments, one after another.
  std::vector<Segment> segments(const StoredPart& part) const;
  const char* segment(std::size_t file, const Segment& segment);  ///< read and checked; valid until the next call

  std::string folder_;
  CheckpointManifest manifest_;
  std::map<std::string, std::vector<std::vector<const StoredPart*>>> parts_;  ///< by array and unit, in order
  std::map<std::size_t, Descriptor> descriptors_;
  std::vector<char> bytes_;  ///< of the segment read last
  std::size_t file_ = static_cast<std::size_t>(-1);
  std::uint64_t offset_ = 0;
};

/// The checkpoint that a path means: a checkpoint folder itself, or the model.h5 in one. Empty: none of these.
std::string checkpoint_of(const std::string& path);

}  // namespace atl
