/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/files.hpp"

#include "core/errors.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

namespace atl {

namespace {

// Of a page, so that ranks on different nodes never write into the same one.
constexpr std::uint64_t alignment = 4096;

std::string reason() { return std::strerror(errno); }

}  // namespace

std::string data_file_name(int index) { return fmt::format("data/w{:05d}.h5", index); }

std::string dataset_name(const CheckpointPart& part, const std::vector<std::string>& units) {
  return fmt::format("{}/{}/{}", part.array.name(), units[part.unit], part.range.begin);
}

DataFile create_data_file(const std::string& folder, const std::string& name, const std::vector<CheckpointPart>& parts,
                          const std::vector<UnitSpec>& units, Element element) {
  const std::string path = folder + "/" + name;
  std::vector<std::string> unit_names;
  std::vector<std::uint64_t> unit_sizes;
  for (const UnitSpec& unit : units) {
    unit_names.push_back(unit.name);
    unit_sizes.push_back(ShardLayout(unit, 1).size());
  }
  DataFile result{{name, 0, {}}, {}};
  std::vector<Segment> covered;
  Hdf5File file = Hdf5File::create(path, alignment);
  for (const CheckpointPart& part : parts) {
    const std::string dataset = dataset_name(part, unit_names);
    result.offsets.push_back(file.create_allocated_dataset(dataset, part.range.size(), stored_as(element)));
    file.set_integer_attribute_of(dataset, "begin", static_cast<std::int64_t>(part.range.begin));
    file.set_integer_attribute_of(dataset, "end", static_cast<std::int64_t>(part.range.end));
    file.set_integer_attribute_of(dataset, "size", static_cast<std::int64_t>(unit_sizes[part.unit]));
    covered.push_back({result.offsets.back(), part.range.size() * size_of(element), 0});
  }
  file.close();
  std::sort(covered.begin(), covered.end(), [](const Segment& a, const Segment& b) { return a.offset < b.offset; });
  result.file.size = std::filesystem::file_size(path);
  result.file.rest = hash_rest(path, result.file.size, covered);
  return result;
}

CheckpointFile create_model_file(const std::string& folder, std::vector<ModelPart> parts,
                                 const std::vector<UnitSpec>& units, Element element, const ModelInfo& info) {
  const std::string name = "model.h5", path = folder + "/" + name;
  std::sort(parts.begin(), parts.end(), [](const ModelPart& a, const ModelPart& b) {
    return std::pair(a.part.unit, a.part.range.begin) < std::pair(b.part.unit, b.part.range.begin);
  });
  std::vector<std::string> unit_names;
  for (const UnitSpec& unit : units) unit_names.push_back(unit.name);
  Hdf5File file = Hdf5File::create(path);
  write_model_info(file, info);
  file.set_integer_attribute(view_attribute, 1);
  auto part = parts.begin();
  for (std::size_t u = 0; u < units.size(); ++u) {
    const ShardLayout layout(units[u], 1);
    const auto end = std::find_if(part, parts.end(), [&](const ModelPart& p) { return p.part.unit > u; });
    for (std::size_t i = 0; i < units[u].tensors.size(); ++i) {
      const TensorSpec& tensor = units[u].tensors[i];
      std::vector<Hdf5File::VirtualSource> sources;
      for (auto p = part; p != end; ++p) {
        const Range common = intersect(p->part.range, layout.tensor(i));
        if (!common.empty())
          sources.push_back({p->file, dataset_name(p->part, unit_names), p->part.range.size(),
                             common.begin - p->part.range.begin, common.size()});
      }
      file.create_virtual_dataset(tensor.name, {tensor.shape.begin(), tensor.shape.end()}, stored_as(element), sources);
    }
    part = end;
  }
  file.close();
  const std::uint64_t size = std::filesystem::file_size(path);
  return {name, size, hash_rest(path, size, {})};
}

PartFile::PartFile(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw DataError(fmt::format("{}: cannot open it to write: {}", path, reason()));
}

PartFile::~PartFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::vector<std::uint64_t> PartFile::write(std::uint64_t offset, std::uint64_t size, const Fetch& fetch) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t begin = 0; begin < size; begin += segment_bytes) {
    const std::uint64_t count = std::min(segment_bytes, size - begin);
    const char* const bytes = static_cast<const char*>(fetch(begin, count));
    Checksum checksum;
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t piece = std::min(cached_bytes, count - done);
      checksum.update(bytes + done, piece);
      for (const std::uint64_t end = done + piece; done < end;) {
        const ::ssize_t wrote =
            ::pwrite(descriptor_, bytes + done, end - done, static_cast<::off_t>(offset + begin + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0)
          throw DataError(fmt::format("{}: writing {} bytes at offset {} failed: {}", path_, end - done,
                                      offset + begin + done, wrote == 0 ? "nothing was written" : reason()));
        done += static_cast<std::uint64_t>(wrote);
      }
    }
    hashes.push_back(checksum.value());
#ifdef SYNC_FILE_RANGE_WRITE
    // The disk starts while the next segment is hashed and copied; flush() waits for it.
    ::sync_file_range(descriptor_, static_cast<::off_t>(offset + begin), static_cast<::off_t>(count),
                      SYNC_FILE_RANGE_WRITE);
#endif
  }
  return hashes;
}

void PartFile::flush() {
  if (::fsync(descriptor_) != 0) throw DataError(fmt::format("{}: cannot flush it to the disk: {}", path_, reason()));
  if (::close(std::exchange(descriptor_, -1)) != 0)
    throw DataError(fmt::format("{}: cannot close it: {}", path_, reason()));
}

void read_exactly(int descriptor, const std::string& path, std::uint64_t offset, void* to, std::uint64_t count) {
  for (std::uint64_t done = 0; done < count;) {
    const ::ssize_t got =
        ::pread(descriptor, static_cast<char*>(to) + done, count - done, static_cast<::off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw DataError(fmt::format("{}: reading {} bytes at offset {} failed: {}", path, count - done, offset + done,
                                  got == 0 ? "the file ends before" : reason()));
    done += static_cast<std::uint64_t>(got);
  }
}

std::vector<Segment> hash_rest(const std::string& path, std::uint64_t size, const std::vector<Segment>& covered) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw DataError(fmt::format("{}: cannot open it: {}", path, reason()));
  struct Closed {
    int descriptor;
    ~Closed() { ::close(descriptor); }
  } const closed{descriptor};
  std::vector<Segment> rest;
  std::vector<char> bytes;
  const auto hash_gap = [&](std::uint64_t begin, std::uint64_t end) {
    for (; begin < end; begin += std::min(segment_bytes, end - begin)) {
      bytes.resize(std::min(segment_bytes, end - begin));
      read_exactly(descriptor, path, begin, bytes.data(), bytes.size());
      rest.push_back({begin, bytes.size(), hash_of_bytes(bytes.data(), bytes.size())});
    }
  };
  std::uint64_t done = 0;
  for (const Segment& part : covered) {
    ATOLL_REQUIRE(part.offset >= done);
    hash_gap(done, part.offset);
    done = part.offset + part.size;
  }
  ATOLL_REQUIRE(done <= size);
  hash_gap(done, size);
  return rest;
}

}  // namespace atl
