/// Calls of the HDF5 library: files, data sets, flat ranges. SPDX-License-Identifier: Apache-2.0
///
/// Only functions whose signature is the same in 1.10, 1.12, 1.14 and 2.x (no H5Literate, H5Lvisit, H5Oget_info).
#include "io/hdf5.hpp"

#include "core/errors.hpp"
#include "io/hdf5_calls.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <unistd.h>

namespace atl {

namespace hdf5 {

std::string innermost_error() {
  std::string text;
  // Upward starts where the error arose, so the first description is the reason and the others only say who called.
  const auto first_description = [](unsigned, const H5E_error2_t* error, void* result) -> herr_t {
    auto& found = *static_cast<std::string*>(result);
    if (found.empty() && error->desc != nullptr) found = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_description, &text);
  return text.empty() ? "HDF5 gives no reason" : text;
}

hid_t memory_type(Stored type) {
  switch (type) {
    case Stored::f64:
      return H5T_NATIVE_DOUBLE;
    case Stored::f32:
      return H5T_NATIVE_FLOAT;
    case Stored::u16:
      return H5T_NATIVE_UINT16;
    case Stored::i32:
      return H5T_NATIVE_INT32;
    case Stored::u32:
      return H5T_NATIVE_UINT32;
    case Stored::i64:
      return H5T_NATIVE_INT64;
    case Stored::u64:
      return H5T_NATIVE_UINT64;
  }
  return -1;
}

hid_t file_type(Stored type) {
  switch (type) {
    case Stored::f64:
      return H5T_IEEE_F64LE;
    case Stored::f32:
      return H5T_IEEE_F32LE;
    case Stored::u16:
      return H5T_STD_U16LE;
    case Stored::i32:
      return H5T_STD_I32LE;
    case Stored::u32:
      return H5T_STD_U32LE;
    case Stored::i64:
      return H5T_STD_I64LE;
    case Stored::u64:
      return H5T_STD_U64LE;
  }
  return -1;
}

}  // namespace hdf5

namespace {

using Sizes = std::vector<std::uint64_t>;
static_assert(std::is_same_v<hid_t, std::int64_t> && std::is_same_v<herr_t, int>, "HDF5 1.10 or later");

constexpr Stored all_types[] = {Stored::f64, Stored::f32, Stored::u16, Stored::i32,
                                Stored::u32, Stored::i64, Stored::u64};

std::uint64_t bytes_of(Stored type) { return H5Tget_size(hdf5::memory_type(type)); }

std::uint64_t product(const Sizes& sizes, std::size_t from = 0) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(from), sizes.end(), std::uint64_t{1},
                         std::multiplies<>());
}

std::vector<hsize_t> to_hsize(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }

/// How files are opened: no lock files. Nobody writes a file that others read (PendingFile), and locks fail on the
/// parallel file systems that have none.
Hdf5Handle file_access(const std::string& path) {
  // Where closing a file failed (a full disk), HDF5 1.10 keeps a handle to freed memory and would close it again at
  // exit: a crash. All our handles are owned, so that nothing is left to do then.
  [[maybe_unused]] static const bool once = (H5dont_atexit(), true);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors become exceptions, not text on stderr
  Hdf5Handle access(ATOLL_HDF5(H5Pcreate(H5P_FILE_ACCESS), path), H5Pclose);
#if (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0)) || H5_VERSION_GE(1, 12, 1)
  ATOLL_HDF5(H5Pset_file_locking(access.id(), false, true), path);
#endif
  return access;
}

/// Visits the boxes that together are the flat range [begin, end) of a row-major array, in order: of a matrix the end
/// of a row, whole rows, the start of a row. `start` and `extent` describe a box in the dimensions before `level`.
template <class Visit>
void for_each_box(const Sizes& shape, std::size_t level, std::uint64_t begin, std::uint64_t end, Sizes& start,
                  Sizes& extent, const Visit& visit) {
  const std::uint64_t row = product(shape, level + 1);
  while (begin < end) {
    const std::uint64_t first = begin / row;
    start[level] = first;
    if (begin % row == 0 && end / row > first) {
      extent[level] = end / row - first;
      std::fill(start.begin() + static_cast<std::ptrdiff_t>(level) + 1, start.end(), 0);
      std::copy(shape.begin() + static_cast<std::ptrdiff_t>(level) + 1, shape.end(),
                extent.begin() + static_cast<std::ptrdiff_t>(level) + 1);
      visit(extent[level] * row);
      begin = (first + extent[level]) * row;
    } else {
      const std::uint64_t stop = std::min(end, (first + 1) * row);
      extent[level] = 1;
      for_each_box(shape, level + 1, begin - first * row, stop - first * row, start, extent, visit);
      begin = stop;
    }
  }
}

void list_datasets(hid_t group, const std::string& path, const std::string& prefix, std::vector<std::string>& names) {
  H5G_info_t info{};
  ATOLL_HDF5(H5Gget_info(group, &info), path + ": /" + prefix);
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    const auto read_name = [&](char* buffer, std::size_t size) {
      return ATOLL_HDF5(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, buffer, size, H5P_DEFAULT), path);
    };
    std::string name(static_cast<std::size_t>(read_name(nullptr, 0)), '\0');
    read_name(name.data(), name.size() + 1);
    const Hdf5Handle object(ATOLL_HDF5(H5Oopen(group, name.c_str(), H5P_DEFAULT), path + ": " + prefix + name),
                            H5Oclose);
    const H5I_type_t kind = H5Iget_type(object.id());
    if (kind == H5I_DATASET) names.push_back(prefix + name);
    if (kind == H5I_GROUP) list_datasets(object.id(), path, prefix + name + "/", names);
  }
}

}  // namespace

std::string_view name_of(Stored type) {
  switch (type) {
    case Stored::f64:
      return "fp64";
    case Stored::f32:
      return "fp32";
    case Stored::u16:
      return "uint16";
    case Stored::i32:
      return "int32";
    case Stored::u32:
      return "uint32";
    case Stored::i64:
      return "int64";
    case Stored::u64:
      return "uint64";
  }
  return "?";
}

Hdf5File Hdf5File::open(const std::string& path) {
  // HDF5's own words for these two are hard to read.
  if (::access(path.c_str(), R_OK) != 0) throw DataError(path + ": cannot read it: " + std::strerror(errno));
  if (std::filesystem::is_directory(path)) throw DataError(path + ": is a folder, not an HDF5 file");
  const Hdf5Handle access = file_access(path);
  Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
  if (file.id() < 0) throw DataError(path + ": not a readable HDF5 file (" + hdf5::innermost_error() + ")");
  return Hdf5File(path, std::move(file));
}

Hdf5File Hdf5File::create(const std::string& path, std::uint64_t alignment) {
  const Hdf5Handle access = file_access(path);
  if (alignment > 1) ATOLL_HDF5(H5Pset_alignment(access.id(), alignment, alignment), path);
  const Hdf5Handle creation(ATOLL_HDF5(H5Pcreate(H5P_FILE_CREATE), path), H5Pclose);
  ATOLL_HDF5(H5Pset_obj_track_times(creation.id(), false), path);
  Hdf5Handle file(ATOLL_HDF5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()), path), H5Fclose);
  return Hdf5File(path, std::move(file));
}

std::string Hdf5File::place(const std::string& name) const { return path_ + ": data set '" + name + "'"; }

void Hdf5File::close() {
  if (file_.id() < 0) return;
  open_.clear();  // or HDF5 would keep the file open behind our back
  ATOLL_HDF5(H5Fflush(file_.id(), H5F_SCOPE_GLOBAL), path_);
  ATOLL_HDF5(file_.close(), path_);
}

std::vector<std::string> Hdf5File::datasets() const {
  std::vector<std::string> names;
  const Hdf5Handle root(ATOLL_HDF5(H5Gopen2(file_.id(), "/", H5P_DEFAULT), path_), H5Gclose);
  list_datasets(root.id(), path_, "", names);
  std::sort(names.begin(), names.end());
  return names;
}

bool Hdf5File::has_dataset(const std::string& name) const {
  if (open_.count(name) != 0) return true;
  const Hdf5Handle object(H5Oopen(file_.id(), name.c_str(), H5P_DEFAULT), H5Oclose);
  return object.id() >= 0 && H5Iget_type(object.id()) == H5I_DATASET;
}

Hdf5File::Dataset& Hdf5File::dataset(const std::string& name) const {
  if (const auto found = open_.find(name); found != open_.end()) return found->second;
  if (!has_dataset(name)) throw DataError(path_ + ": has no data set '" + name + "'");
  Dataset result{
      Hdf5Handle(ATOLL_HDF5(H5Dopen2(file_.id(), name.c_str(), H5P_DEFAULT), place(name)), H5Dclose), {}, {}};

  const Hdf5Handle space(ATOLL_HDF5(H5Dget_space(result.handle.id()), place(name)), H5Sclose);
  const int rank = ATOLL_HDF5(H5Sget_simple_extent_ndims(space.id()), place(name));
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  if (rank > 0) ATOLL_HDF5(H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr), place(name));
  result.shape.assign(sizes.begin(), sizes.end());

  const Hdf5Handle type(ATOLL_HDF5(H5Dget_type(result.handle.id()), place(name)), H5Tclose);
  const auto known = std::find_if(std::begin(all_types), std::end(all_types), [&](Stored candidate) {
    return H5Tequal(type.id(), hdf5::file_type(candidate)) > 0;
  });
  if (rank == 0 || known == std::end(all_types)) {
    throw DataError(place(name) + " is no array of fp32, fp64 or 16 to 64 bit integers (little-endian)");
  }
  result.type = *known;
  return open_.emplace(name, std::move(result)).first->second;
}

std::vector<std::uint64_t> Hdf5File::shape(const std::string& name) const { return dataset(name).shape; }
std::uint64_t Hdf5File::size(const std::string& name) const { return product(dataset(name).shape); }
Stored Hdf5File::type(const std::string& name) const { return dataset(name).type; }

void Hdf5File::create(const std::string& name, const Sizes& shape, const Sizes& limits, Stored type,
                      const Hdf5Handle& properties) {
  ATOLL_REQUIRE(!shape.empty());
  const Hdf5Handle links(ATOLL_HDF5(H5Pcreate(H5P_LINK_CREATE), place(name)), H5Pclose);
  ATOLL_HDF5(H5Pset_create_intermediate_group(links.id(), 1), place(name));
  ATOLL_HDF5(H5Pset_obj_track_times(properties.id(), false), place(name));
  const Hdf5Handle space(
      ATOLL_HDF5(H5Screate_simple(static_cast<int>(shape.size()), to_hsize(shape).data(), to_hsize(limits).data()),
                 place(name)),
      H5Sclose);
  Hdf5Handle handle(ATOLL_HDF5(H5Dcreate2(file_.id(), name.c_str(), hdf5::file_type(type), space.id(), links.id(),
                                          properties.id(), H5P_DEFAULT),
                               place(name)),
                    H5Dclose);
  open_.emplace(name, Dataset{std::move(handle), shape, type});
}

void Hdf5File::create_dataset(const std::string& name, const Sizes& shape, Stored type) {
  const Hdf5Handle properties(ATOLL_HDF5(H5Pcreate(H5P_DATASET_CREATE), place(name)), H5Pclose);
  create(name, shape, shape, type, properties);
}

std::uint64_t Hdf5File::create_allocated_dataset(const std::string& name, std::uint64_t size, Stored type) {
  const Hdf5Handle properties(ATOLL_HDF5(H5Pcreate(H5P_DATASET_CREATE), place(name)), H5Pclose);
  ATOLL_HDF5(H5Pset_alloc_time(properties.id(), H5D_ALLOC_TIME_EARLY), place(name));
  ATOLL_HDF5(H5Pset_fill_time(properties.id(), H5D_FILL_TIME_NEVER), place(name));
  create(name, {size}, {size}, type, properties);
  const haddr_t offset = H5Dget_offset(dataset(name).handle.id());
  if (offset == HADDR_UNDEF)
    throw DataError(fmt::format("{}: HDF5 gives it no place in the file: {}", place(name), hdf5::innermost_error()));
  return offset;
}

void Hdf5File::create_virtual_dataset(const std::string& name, const Sizes& shape, Stored type,
                                      const std::vector<VirtualSource>& sources) {
  const auto where = [&] { return place(name); };
  const Hdf5Handle properties(ATOLL_HDF5(H5Pcreate(H5P_DATASET_CREATE), where()), H5Pclose);
  const double missing = std::numeric_limits<double>::quiet_NaN();
  ATOLL_HDF5(H5Pset_fill_value(properties.id(), H5T_NATIVE_DOUBLE, &missing), where());
  const Hdf5Handle space(
      ATOLL_HDF5(H5Screate_simple(static_cast<int>(shape.size()), to_hsize(shape).data(), nullptr), where()), H5Sclose);
  Sizes start(shape.size()), extent(shape.size());
  std::uint64_t done = 0;
  for (const VirtualSource& source : sources) {
    const hsize_t size = source.size;
    const Hdf5Handle source_space(ATOLL_HDF5(H5Screate_simple(1, &size, nullptr), where()), H5Sclose);
    hsize_t first = source.begin;
    for_each_box(shape, 0, done, done + source.count, start, extent, [&](std::uint64_t elements) {
      const hsize_t count = elements;
      ATOLL_HDF5(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, to_hsize(start).data(), nullptr,
                                     to_hsize(extent).data(), nullptr),
                 where());
      ATOLL_HDF5(H5Sselect_hyperslab(source_space.id(), H5S_SELECT_SET, &first, nullptr, &count, nullptr), where());
      ATOLL_HDF5(
          H5Pset_virtual(properties.id(), space.id(), source.file.c_str(), source.dataset.c_str(), source_space.id()),
          where());
      first += count;
    });
    done += source.count;
  }
  ATOLL_REQUIRE(done == product(shape));
  create(name, shape, shape, type, properties);
}

void Hdf5File::create_growing_dataset(const std::string& name, Stored type, std::uint64_t chunk) {
  const Hdf5Handle properties(ATOLL_HDF5(H5Pcreate(H5P_DATASET_CREATE), place(name)), H5Pclose);
  const hsize_t elements = chunk;
  ATOLL_HDF5(H5Pset_chunk(properties.id(), 1, &elements), place(name));
  create(name, {0}, {H5S_UNLIMITED}, type, properties);
}

void Hdf5File::extend(const std::string& name, std::uint64_t length) {
  Dataset& target = dataset(name);
  const hsize_t size = length;
  ATOLL_HDF5(H5Dset_extent(target.handle.id(), &size), place(name));
  target.shape = {length};
}

void Hdf5File::write_range(const std::string& name, std::uint64_t begin, Stored memory, const void* data,
                           std::uint64_t count) {
  // HDF5's write takes const memory again; transfer() shares its code with reading.
  transfer(Direction::write, name, begin, memory, static_cast<char*>(const_cast<void*>(data)), count);
}

void Hdf5File::read_range(const std::string& name, std::uint64_t begin, Stored memory, void* data,
                          std::uint64_t count) const {
  transfer(Direction::read, name, begin, memory, static_cast<char*>(data), count);
}

void Hdf5File::transfer(Direction direction, const std::string& name, std::uint64_t begin, Stored memory, char* data,
                        std::uint64_t count) const {
  const Dataset& target = dataset(name);
  const auto real = [](Stored type) { return type == Stored::f32 || type == Stored::f64; };
  if (memory != target.type && !(real(memory) && real(target.type))) {
    throw DataError(fmt::format("{} holds {}, not {}", place(name), name_of(target.type), name_of(memory)));
  }
  const std::uint64_t size = product(target.shape);
  if (begin > size || count > size - begin) {
    throw DataError(fmt::format("{} has {} elements: [{}, {}) is not inside", place(name), size, begin, begin + count));
  }
  if (count == 0) return;

  const Hdf5Handle file_space(ATOLL_HDF5(H5Dget_space(target.handle.id()), place(name)), H5Sclose);
  Sizes start(target.shape.size()), extent(target.shape.size());
  const auto move_box = [&](std::uint64_t elements) {
    const hsize_t length = elements;
    ATOLL_HDF5(H5Sselect_hyperslab(file_space.id(), H5S_SELECT_SET, to_hsize(start).data(), nullptr,
                                   to_hsize(extent).data(), nullptr),
               place(name));
    const Hdf5Handle memory_space(ATOLL_HDF5(H5Screate_simple(1, &length, nullptr), place(name)), H5Sclose);
    if (direction == Direction::read) {
      ATOLL_HDF5(
          H5Dread(target.handle.id(), hdf5::memory_type(memory), memory_space.id(), file_space.id(), H5P_DEFAULT, data),
          place(name));
    } else {
      ATOLL_HDF5(H5Dwrite(target.handle.id(), hdf5::memory_type(memory), memory_space.id(), file_space.id(),
                          H5P_DEFAULT, data),
                 place(name));
    }
    data += elements * bytes_of(memory);
  };
  const std::uint64_t wide = std::max(bytes_of(memory), bytes_of(target.type));
  const std::uint64_t piece = std::max<std::uint64_t>(1, call_bytes_ / wide);
  for (std::uint64_t done = 0; done < count; done += std::min(piece, count - done)) {
    const std::uint64_t from = begin + done;
    for_each_box(target.shape, 0, from, from + std::min(piece, count - done), start, extent, move_box);
  }
}

}  // namespace atl
