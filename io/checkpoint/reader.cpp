/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/reader.hpp"

#include "core/errors.hpp"
#include "io/checkpoint/files.hpp"
#include "io/checksum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace atl {

namespace fs = std::filesystem;

CheckpointReader::Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

CheckpointReader::CheckpointReader(const std::string& folder) : folder_(folder), manifest_(read_manifest(folder)) {
  find_files();
  sort_parts();
}

CheckpointReader::CheckpointReader(const std::string& folder, const Communicator& comm) : folder_(folder) {
  std::string text;
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    manifest_ = read_manifest(folder);
    find_files();
    text = to_text(manifest_);
  });
  text = comm.broadcast(text);
  collectively(comm, [&] {
    if (comm.rank() != 0) manifest_ = parse_manifest(text, folder + "/MANIFEST.json");
    sort_parts();
  });
}

/// All are there, with their sizes.
void CheckpointReader::find_files() const {
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    std::error_code error;
    const std::uint64_t size = fs::file_size(path(i), error);
    if (error) throw DataError(fmt::format("{}: missing from the checkpoint: {}", path(i), error.message()));
    if (size != manifest_.files[i].size)
      throw DataError(fmt::format("{}: has {} bytes, {} when it was saved: it was cut off or replaced", path(i), size,
                                  manifest_.files[i].size));
  }
}

/// By array, unit and range, which must be whole.
void CheckpointReader::sort_parts() {
  for (const StoredPart& part : manifest_.parts) {
    auto& units = parts_[part.array.name()];
    units.resize(manifest_.units.size());
    units[part.unit].push_back(&part);
  }
  for (auto& [name, units] : parts_)
    for (std::size_t u = 0; u < units.size(); ++u) {
      std::sort(units[u].begin(), units[u].end(),
                [](const StoredPart* a, const StoredPart* b) { return a->range.begin < b->range.begin; });
      std::size_t end = 0;
      bool whole = true;
      for (const StoredPart* part : units[u]) {
        whole = whole && part->range.begin == end;
        end = part->range.end;
      }
      if (!whole || end != manifest_.unit_sizes[u])
        throw DataError(fmt::format("{}/MANIFEST.json: the parts of {} do not make up the unit {}", folder_, name,
                                    manifest_.units[u]));
    }
}

int CheckpointReader::descriptor(std::size_t file) {
  Descriptor& found = descriptors_[file];
  if (found.value < 0) found.value = ::open(path(file).c_str(), O_RDONLY | O_CLOEXEC);
  if (found.value < 0) throw DataError(fmt::format("{}: cannot open it: {}", path(file), std::strerror(errno)));
  return found.value;
}

void CheckpointReader::read_checked(std::size_t file, const Segment& segment, void* to) {
  // Hashed while it is still in the cache.
  Checksum checksum;
  for (std::uint64_t done = 0; done < segment.size; done += std::min(cached_bytes, segment.size - done)) {
    char* const bytes = static_cast<char*>(to) + done;
    const std::uint64_t count = std::min(cached_bytes, segment.size - done);
    read_exactly(descriptor(file), path(file), segment.offset + done, bytes, count);
    checksum.update(bytes, count);
  }
  if (checksum.value() != segment.hash)
    throw DataError(fmt::format("{}: corrupt: the {} bytes from offset {} do not have the hash of MANIFEST.json",
                                path(file), segment.size, segment.offset));
}

const char* CheckpointReader::segment(std::size_t file, const Segment& segment) {
  if (file_ == file && offset_ == segment.offset && bytes_.size() == segment.size) return bytes_.data();
  file_ = static_cast<std::size_t>(-1);
  bytes_.resize(segment.size);
  read_checked(file, segment, bytes_.data());
  file_ = file, offset_ = segment.offset;
  return bytes_.data();
}

template <class R>
void CheckpointReader::read(const CheckpointArray& array, std::size_t unit, Range range, R* to) {
  if (manifest_.element != element_of<R>())
    throw DataError(
        fmt::format("{}: holds {} numbers, not {}", folder_, name_of(manifest_.element), name_of(element_of<R>())));
  const auto found = parts_.find(array.name());
  if (found == parts_.end()) throw DataError(fmt::format("{}: has no array {}", folder_, array.name()));
  ATOLL_REQUIRE(unit < manifest_.units.size() && range.end <= manifest_.unit_sizes[unit]);
  for (const StoredPart* part : found->second[unit]) {
    const Range common = intersect(part->range, range);
    if (common.empty()) continue;
    const std::uint64_t begin = (common.begin - part->range.begin) * sizeof(R);
    const std::uint64_t end = (common.end - part->range.begin) * sizeof(R), size = part->range.size() * sizeof(R);
    char* out = reinterpret_cast<char*>(to + (common.begin - range.begin));
    for (std::uint64_t i = begin / segment_bytes; i * segment_bytes < end; ++i) {
      const std::uint64_t first = i * segment_bytes, last = std::min(size, first + segment_bytes);
      const Segment stored{part->offset + first, last - first, part->hashes[i]};
      const std::uint64_t from = std::max(begin, first), until = std::min(end, last);
      if (from == first && until == last)
        read_checked(part->file, stored, out);
      else
        std::memcpy(out, segment(part->file, stored) + (from - first), until - from);
      out += until - from;
    }
  }
}

template void CheckpointReader::read<float>(const CheckpointArray&, std::size_t, Range, float*);
template void CheckpointReader::read<double>(const CheckpointArray&, std::size_t, Range, double*);

void CheckpointReader::verify_rest(std::size_t file) {
  for (const Segment& rest : manifest_.files[file].rest) segment(file, rest);
}

std::vector<Segment> CheckpointReader::segments(const StoredPart& part) const {
  std::vector<Segment> all;
  const std::uint64_t size = part.range.size() * size_of(manifest_.element);
  for (std::size_t i = 0; i < part.hashes.size(); ++i) {
    const std::uint64_t first = i * segment_bytes;
    all.push_back({part.offset + first, std::min(segment_bytes, size - first), part.hashes[i]});
  }
  return all;
}

void CheckpointReader::verify_part(std::size_t part) {
  const StoredPart& stored = manifest_.parts[part];
  for (const Segment& one : segments(stored)) segment(stored.file, one);
}

void CheckpointReader::verify_all(const std::function<void(std::uint64_t)>& told) {
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    std::vector<Segment> all = manifest_.files[i].rest;
    for (const StoredPart& part : manifest_.parts) {
      if (part.file != i) continue;
      const auto of_part = segments(part);
      all.insert(all.end(), of_part.begin(), of_part.end());
    }
    std::sort(all.begin(), all.end(), [](const Segment& a, const Segment& b) { return a.offset < b.offset; });
    std::uint64_t end = 0;
    for (const Segment& one : all) {
      if (one.offset != end)
        throw DataError(
            fmt::format("{}/MANIFEST.json: has no hash for offset {} of {}", folder_, end, manifest_.files[i].name));
      segment(i, one);
      end += one.size;
      told(done += one.size);
    }
    if (end != manifest_.files[i].size)
      throw DataError(
          fmt::format("{}/MANIFEST.json: has no hash for offset {} of {}", folder_, end, manifest_.files[i].name));
  }
}

std::string checkpoint_of(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const bool given = fs::is_directory(path, error) || fs::path(path).filename() == "model.h5";
  // Either of the two files: half a checkpoint is meant as one, and refused when it is read.
  return given && (fs::exists(folder / "MANIFEST.json", error) || fs::exists(folder / "COMMIT", error))
             ? folder.string()
             : "";
}

}  // namespace atl
