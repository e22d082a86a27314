/// Any text as the header of a safetensors file: refused, or tensors that lie in the file one after another.
/// SPDX-License-Identifier: Apache-2.0
///
/// The first three bytes are the number of bytes that follow the header.
#include "core/errors.hpp"
#include "io/huggingface/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  if (size < 3) return 0;
  const std::uint64_t bytes = data[0] | data[1] << 8 | data[2] << 16;
  try {
    const auto header = parse_safetensors_header({reinterpret_cast<const char*>(data) + 3, size - 3}, bytes, "file");
    std::uint64_t sum = 0;
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [name, tensor] : header.tensors) {
      if (tensor.begin > tensor.end || tensor.end > bytes) std::abort();
      sum += tensor.end - tensor.begin;
      SafetensorsTensor same{name, tensor.shape};
      if (same.elements() > bytes) std::abort();
      tensors.push_back(same);
    }
    if (sum != bytes) std::abort();
    // What is written of the same names and shapes is read again.
    std::uint64_t elements = 0;
    for (const SafetensorsTensor& tensor : tensors) elements += tensor.elements();
    const std::string text = safetensors_header(tensors, WeightType::bf16);
    if (parse_safetensors_header(text.substr(8), 2 * elements, "again").tensors.size() != tensors.size()) std::abort();
  } catch (const DataError& error) {
    if (std::string_view(error.what()).size() > 1000) std::abort();
  }
  return 0;
}
