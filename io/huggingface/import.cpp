/// SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/import.hpp"

#include "core/errors.hpp"
#include "io/hdf5.hpp"
#include "io/huggingface/companion_files.hpp"
#include "io/huggingface/safetensors_model.hpp"
#include "io/pending_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace atl {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t piece = std::uint64_t{1} << 22;  // elements on their way: 16 MiB

std::string folder_of(const std::string& path) {
  if (fs::is_directory(path)) return path;
  const auto folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

}  // namespace

ImportResult import_model(const std::string& source, const std::string& output, const BytesDone& told) {
  if (!is_safetensors(source))
    throw DataError(fmt::format(
        "{}: neither a .safetensors file, nor a folder with model.safetensors or model.safetensors.index.json",
        source));
  SafetensorsModel model(source);
  ImportResult result;
  result.parameters = parameter_count(model.info().config);
  result.bytes_read = model.bytes();
  result.bytes_written = static_cast<std::uint64_t>(result.parameters) * sizeof(float);

  const std::string from = folder_of(source);
  PendingFolder folder(output, result.bytes_written);
  Hdf5File file = Hdf5File::create(folder.temporary() + "/model.h5");
  write_model_info(file, model.info());
  std::vector<float> values;
  std::uint64_t done = 0;
  for (std::size_t u = 0; u < model.units().size(); ++u)
    for (std::size_t i = 0; i < model.units()[u].tensors.size(); ++i) {
      const TensorSpec& tensor = model.units()[u].tensors[i];
      file.create_dataset(tensor.name, {tensor.shape.begin(), tensor.shape.end()}, Stored::f32);
      for (std::uint64_t begin = 0; begin < tensor.size(); begin += piece) {
        values.resize(std::min<std::uint64_t>(piece, tensor.size() - begin));
        model.read({u, i}, begin, std::span<float>(values));
        for (const float value : values) result.not_finite += !std::isfinite(value);
        file.write_flat(tensor.name, begin, values);
        done += values.size() * sizeof(float);
        told(done, result.bytes_written);
      }
    }
  file.close();
  result.companions = companion_files(from);
  copy_files(result.companions, from, folder.temporary());
  copy_files({"config.json"}, from, folder.temporary());
  folder.publish();
  return result;
}

}  // namespace atl
