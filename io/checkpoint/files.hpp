/// The files of a checkpoint while they are made: HDF5 makes room, ranks write into it. SPDX-License-Identifier:
/// Apache-2.0
///
/// One rank makes a data file with the serial HDF5 library, with a data set for every part but no numbers in it, and
/// closes it. Then each rank writes its parts where their data sets lie, hashing what it writes. So no array passes
/// through HDF5 (whose 1.10 fails above 2 GiB a call) nor through another rank, and the file is HDF5 all the same.
#pragma once

#include "io/checkpoint/manifest.hpp"
#include "io/model_file.hpp"

#include <functional>
#include <string>
#include <vector>

namespace atl {

/// Name of a data file in the checkpoint: "data/w00003.h5".
std::string data_file_name(int index);
/// Name of a part's data set in its file: "model/block 3/4096", of 1-D numbers with the attributes begin, end, size (of
/// the unit).
std::string dataset_name(const CheckpointPart& part, const std::vector<std::string>& units);

/// Makes folder/name with room for `parts`; returns the offset of each, and the file's size and the rest of its bytes.
struct DataFile {
  CheckpointFile file;
  std::vector<std::uint64_t> offsets;
};
DataFile create_data_file(const std::string& folder, const std::string& name, const std::vector<CheckpointPart>& parts,
                          const std::vector<UnitSpec>& units, Element element);

/// A part of the array `model`, and the name of its file.
struct ModelPart {
  CheckpointPart part;
  std::string file;
};
/// Makes folder/model.h5: the model as virtual data sets with Hugging Face names and full shapes, for h5dump, h5py and
/// HDFView. `parts` cover all units. Attributes as of a model file (io/model_file.hpp).
CheckpointFile create_model_file(const std::string& folder, std::vector<ModelPart> parts,
                                 const std::vector<UnitSpec>& units, Element element, const ModelInfo& info);

/// Writes `size` bytes from `offset` of a file on, segment by segment, and returns their hashes. `fetch(begin, count)`
/// gives bytes [begin, begin + count) of the part; its memory is used before the next call. DataError with file, offset
/// and reason.
class PartFile {
 public:
  explicit PartFile(const std::string& path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  using Fetch = std::function<const void*(std::uint64_t begin, std::uint64_t count)>;
  std::vector<std::uint64_t> write(std::uint64_t offset, std::uint64_t size, const Fetch& fetch);
  void flush();  ///< to the disk (fsync), then closes

 private:
  std::string path_;
  int descriptor_;
};

/// Segments of `file` (open or not, `size` bytes) that are not in `covered`, which is sorted, with their hashes.
std::vector<Segment> hash_rest(const std::string& path, std::uint64_t size, const std::vector<Segment>& covered);

/// Reads exactly `count` bytes; DataError with file, offset and reason.
void read_exactly(int descriptor, const std::string& path, std::uint64_t offset, void* to, std::uint64_t count);

}  // namespace atl
