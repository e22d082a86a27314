/// HDF5 files: owned handles, checked calls, flat ranges of data sets. SPDX-License-Identifier: Apache-2.0
///
/// The serial API only, so that serial and parallel libraries from 1.10 to 2.x serve alike. One thread calls HDF5.
#pragma once

#include "core/element.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace atl {

/// Types on disk, little-endian. bf16 is stored as its 16 bits.
enum class Stored { f64, f32, u16, i32, u32, i64, u64 };

constexpr Stored stored_as(Element element) {
  switch (element) {
    case Element::f64:
      return Stored::f64;
    case Element::f32:
      return Stored::f32;
    case Element::bf16:
      return Stored::u16;
    case Element::i32:
      return Stored::i32;
    case Element::u16:
      return Stored::u16;
  }
  return Stored::f32;
}

template <class T>
constexpr Stored stored_as() {
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    return Stored::u32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return Stored::i64;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return Stored::u64;
  } else {
    return stored_as(element_of<T>());
  }
}

std::string_view name_of(Stored type);  ///< "fp32", "uint16"

/// Owns an HDF5 identifier (file, data set, data space, attribute, property list, group, type) and closes it.
class Hdf5Handle {
 public:
  using Close = int (*)(std::int64_t);  ///< H5Dclose and its like; hid_t is an int64_t, herr_t an int

  Hdf5Handle() = default;
  Hdf5Handle(std::int64_t id, Close closing_call) : id_(id), close_(closing_call) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Handle() { close(); }

  std::int64_t id() const { return id_; }
  int close() { return id_ < 0 ? 0 : close_(std::exchange(id_, -1)); }  ///< negative where HDF5 reports a failure

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

/// One HDF5 file. Every failure is a DataError that names the file, the object and HDF5's innermost reason.
/// Reproducible: no time stamps are stored, so the same content is the same bytes.
class Hdf5File {
 public:
  static Hdf5File open(const std::string& path);  ///< for reading
  /// For writing; replaces what is there (see PendingFile). Large data sets begin at multiples of `alignment` bytes.
  static Hdf5File create(const std::string& path, std::uint64_t alignment = 1);

  const std::string& path() const { return path_; }

  /// Names of all data sets, sorted, with their folders inside the file: "model.norm.weight", "optimizer/step".
  std::vector<std::string> datasets() const;
  bool has_dataset(const std::string& name) const;
  std::vector<std::uint64_t> shape(const std::string& name) const;
  std::uint64_t size(const std::string& name) const;  ///< number of elements
  Stored type(const std::string& name) const;         ///< bf16 shows as uint16

  /// A contiguous data set of a fixed shape (at least one dimension), zeros until written. Groups in `name` are made.
  void create_dataset(const std::string& name, const std::vector<std::uint64_t>& shape, Stored type);
  void create_dataset(const std::string& name, const std::vector<std::uint64_t>& shape, Element element) {
    create_dataset(name, shape, stored_as(element));
  }

  /// A contiguous 1-D data set whose place in the file is final; returns the offset of its first byte, so that others
  /// can write there once the file is closed. Its elements are undefined until then.
  std::uint64_t create_allocated_dataset(const std::string& name, std::uint64_t size, Stored type);

  /// Elements [begin, begin + count) of the flat data set `dataset` of `size` elements in `file`, which is relative to
  /// the folder of the virtual data set's file.
  struct VirtualSource {
    std::string file, dataset;
    std::uint64_t size = 0, begin = 0, count = 0;
  };
  /// A data set of real numbers that lies in other files: its elements are those of all sources, one after another in
  /// row-major order. NaN shows where a file is missing.
  void create_virtual_dataset(const std::string& name, const std::vector<std::uint64_t>& shape, Stored type,
                              const std::vector<VirtualSource>& sources);

  /// A 1-D data set of length 0 that extend() lengthens, stored in chunks of `chunk` elements.
  void create_growing_dataset(const std::string& name, Stored type, std::uint64_t chunk);
  void extend(const std::string& name, std::uint64_t length);

  /// Elements [begin, begin + data.size()) in row-major order over the whole shape, from or to a vector, span or array.
  /// The type must be the stored one; fp32 and fp64 are converted into one another.
  template <class Data>
  void write_flat(const std::string& name, std::uint64_t begin, const Data& data) {
    const std::span values(data);
    using T = std::remove_cv_t<typename decltype(values)::element_type>;
    write_range(name, begin, stored_as<T>(), values.data(), values.size());
  }
  template <class Data>
  void read_flat(const std::string& name, std::uint64_t begin, Data&& data) const {
    const std::span values(data);
    using T = typename decltype(values)::element_type;
    static_assert(!std::is_const_v<T>, "read_flat needs elements it can write to");
    read_range(name, begin, stored_as<T>(), values.data(), values.size());
  }

  /// Attributes of the file's root. An integer is an int64, a string is UTF-8 of at most about 64 kB.
  bool has_attribute(const std::string& name) const;
  void set_string_attribute(const std::string& name, const std::string& value);
  void set_integer_attribute(const std::string& name, std::int64_t value);
  void set_integer_attribute_of(const std::string& dataset, const std::string& name, std::int64_t value);
  void set_real_attribute(const std::string& name, double value);
  std::string string_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;
  double real_attribute(const std::string& name) const;

  /// Flushes and closes: a full disk shows here. The destructor closes too, but cannot report.
  void close();

  /// Bytes that one call of HDF5 may move (default 512 MiB: 1.10 fails above 2 GiB); larger ranges go in pieces.
  void limit_call_bytes(std::uint64_t bytes) { call_bytes_ = bytes; }

 private:
  struct Dataset {
    Hdf5Handle handle;
    std::vector<std::uint64_t> shape;
    Stored type;
  };
  enum class Direction { read, write };

  Hdf5File(std::string path, Hdf5Handle file) : path_(std::move(path)), file_(std::move(file)) {}
  Dataset& dataset(const std::string& name) const;
  std::string place(const std::string& name) const;
  void write_range(const std::string& name, std::uint64_t begin, Stored memory, const void* data, std::uint64_t count);
  void read_range(const std::string& name, std::uint64_t begin, Stored memory, void* data, std::uint64_t count) const;
  void transfer(Direction direction, const std::string& name, std::uint64_t begin, Stored memory, char* data,
                std::uint64_t count) const;
  void create(const std::string& name, const std::vector<std::uint64_t>& shape,
              const std::vector<std::uint64_t>& limits, Stored type, const Hdf5Handle& properties);
  void set_attribute(std::int64_t object, const std::string& name, std::int64_t file_type, std::int64_t memory_type,
                     const void* value);
  Hdf5Handle open_attribute(const std::string& name) const;

  std::string path_;
  Hdf5Handle file_;
  mutable std::map<std::string, Dataset> open_;  // so that a small read is one call; closed before file_
  std::uint64_t call_bytes_ = 512ull << 20;
};

}  // namespace atl
