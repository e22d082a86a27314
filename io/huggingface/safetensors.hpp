/// Safetensors files: the header, checked before anything is read, and ranges of tensors. SPDX-License-Identifier:
/// Apache-2.0
///
/// Format (https://github.com/huggingface/safetensors): 8 bytes with the length N of the header, N bytes of JSON, then
/// the tensors' bytes without gaps, little-endian, in row-major order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl {

/// Types of numbers that models are read and written in; safetensors calls them F32, BF16 and F16.
enum class WeightType { fp32, bf16, fp16 };
std::string_view name_of(WeightType type);           ///< "fp32"
std::string_view safetensors_name(WeightType type);  ///< "F32"
std::size_t size_of(WeightType type);

struct SafetensorsEntry {
  std::string dtype;  ///< as in the file: "BF16", "I64", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< bytes, from the end of the header on
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

inline constexpr std::uint64_t largest_safetensors_header = 100'000'000;  ///< as the safetensors library has it

/// Parses the JSON of a header whose tensors must fill `data_bytes` bytes. DataError, beginning with `where`, for what
/// is no header: keys given twice, unknown types, sizes that do not follow from shape and type, tensors that overlap,
/// leave gaps or lie outside the file. Takes memory in proportion to the text, whatever it is.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, const std::string& where);

/// The header of a file with these tensors, one after another as they are given: length and JSON, padded to 8 bytes.
struct SafetensorsTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements() const;
};
std::string safetensors_header(const std::vector<SafetensorsTensor>& tensors, WeightType type);

/// A file opened for reading; its header is checked. Faults are DataErrors that name the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        data_(other.data_),
        header_(std::move(other.header_)) {}
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  /// Bytes [begin, begin + count) of a tensor.
  void read_bytes(const SafetensorsEntry& tensor, std::uint64_t begin, std::uint64_t count, void* to) const;

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t data_ = 0;  ///< offset of the first tensor
  SafetensorsHeader header_;
};

}  // namespace atl
