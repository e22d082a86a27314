/// SPDX-License-Identifier: Apache-2.0
#include "io/saved_model.hpp"

#include "core/errors.hpp"
#include "io/checkpoint/store.hpp"
#include "io/checkpoint/training_state.hpp"
#include "io/hdf5.hpp"
#include "io/huggingface/safetensors_model.hpp"
#include "model/parameters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <type_traits>

namespace atl {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece = std::size_t{1} << 22;  // elements on their way between file and device

ModelInfo info_of(const std::string& folder, const CheckpointManifest& manifest) {
  const auto& data = manifest.configuration.at("data");
  return {parse_hugging_face_config(manifest.model, folder),
          manifest.position.step,
          manifest.position.tokens,
          data.value("eval", std::string()),
          data.value("sequence_length", std::int64_t{0}),
          manifest.configuration.at("run").value("seed", std::int64_t{0}),
          data.value("synthetic_eval_tokens", std::int64_t{0}),
          {data.value("packing", std::string()) == "documents" ? Packing::documents : Packing::concatenate,
           data.contains("end_of_document") ? std::optional(data.at("end_of_document").get<std::int64_t>())
                                            : std::nullopt}};
}

class ModelFile : public SavedModel {
 public:
  explicit ModelFile(Hdf5File file) : SavedModel(file.path(), read_model_info(file)), file_(std::move(file)) {}

  Element element() const override {
    return file_.type(units().front().tensors.front().name) == Stored::f64 ? Element::f64 : Element::f32;
  }
  void read(TensorPlace place, std::uint64_t begin, std::span<float> to) override { read_as(place, begin, to); }
  void read(TensorPlace place, std::uint64_t begin, std::span<double> to) override { read_as(place, begin, to); }

 private:
  template <class T>
  void read_as(TensorPlace place, std::uint64_t begin, std::span<T> to) {
    const TensorSpec& wanted = tensor(place);
    if (!file_.has_dataset(wanted.name)) throw DataError(fmt::format("{}: tensor {} is missing", path(), wanted.name));
    const std::vector<std::uint64_t> expected(wanted.shape.begin(), wanted.shape.end());
    if (const auto shape = file_.shape(wanted.name); shape != expected)
      throw DataError(fmt::format("{}: tensor {} has shape ({}), but its configuration says ({})", path(), wanted.name,
                                  fmt::join(shape, ", "), fmt::join(expected, ", ")));
    file_.read_flat(wanted.name, begin, to);
  }

  Hdf5File file_;
};

class CheckpointModel : public SavedModel {
 public:
  explicit CheckpointModel(const std::string& folder) : CheckpointModel(folder, CheckpointReader(folder)) {}

  Element element() const override { return reader_.manifest().element; }
  void read(TensorPlace place, std::uint64_t begin, std::span<float> to) override { read_as(place, begin, to); }
  void read(TensorPlace place, std::uint64_t begin, std::span<double> to) override { read_as(place, begin, to); }

 private:
  CheckpointModel(const std::string& folder, CheckpointReader reader)
      : SavedModel(folder, info_of(folder, reader.manifest())), reader_(std::move(reader)) {
    const CheckpointManifest& manifest = reader_.manifest();
    bool equal = manifest.units.size() == units().size();
    for (std::size_t u = 0; equal && u < units().size(); ++u) {
      layouts_.emplace_back(units()[u], 1);
      equal = manifest.units[u] == units()[u].name && manifest.unit_sizes[u] == layouts_[u].size();
    }
    if (!equal) throw DataError(fmt::format("{}/MANIFEST.json: its units are not those of its model", folder));
  }

  template <class T>
  void read_as(TensorPlace place, std::uint64_t begin, std::span<T> to) {
    using Other = std::conditional_t<std::is_same_v<T, float>, double, float>;
    const std::size_t first = layouts_[place.unit].tensor(place.index).begin + begin;
    const Range range{first, first + to.size()};
    if (element() == element_of<T>()) {
      reader_.read(CheckpointArray{}, place.unit, range, to.data());
    } else {
      std::vector<Other> values(to.size());
      reader_.read(CheckpointArray{}, place.unit, range, values.data());
      std::transform(values.begin(), values.end(), to.begin(), [](Other value) { return static_cast<T>(value); });
    }
  }

  CheckpointReader reader_;
  std::vector<ShardLayout> layouts_;
};

/// DataError that names the first difference.
template <class T>
void require_tensors(const SavedModel& model, const ShardedParameters<T>& parameters) {
  const auto tensors = [](std::size_t units, const auto& unit) {
    std::vector<const TensorSpec*> all;
    for (std::size_t u = 0; u < units; ++u)
      for (const TensorSpec& tensor : unit(u).tensors) all.push_back(&tensor);
    return all;
  };
  const auto saved = tensors(model.units().size(), [&](std::size_t u) -> const UnitSpec& { return model.units()[u]; });
  const auto needed = tensors(parameters.number_of_units(),
                              [&](std::size_t u) -> const UnitSpec& { return parameters.unit(u).layout.unit(); });
  const auto find = [](const auto& all, const std::string& name) -> const TensorSpec* {
    const auto it =
        std::find_if(all.begin(), all.end(), [&](const TensorSpec* tensor) { return tensor->name == name; });
    return it == all.end() ? nullptr : *it;
  };
  for (const TensorSpec* tensor : needed) {
    const TensorSpec* const found = find(saved, tensor->name);
    if (found == nullptr)
      throw DataError(
          fmt::format("{}: has no tensor {}, which the model of this run needs", model.path(), tensor->name));
    if (found->shape != tensor->shape)
      throw DataError(fmt::format("{}: tensor {} has shape ({}), the model of this run needs ({})", model.path(),
                                  tensor->name, fmt::join(found->shape, ", "), fmt::join(tensor->shape, ", ")));
  }
  for (const TensorSpec* tensor : saved)
    if (find(needed, tensor->name) == nullptr)
      throw DataError(
          fmt::format("{}: has the tensor {}, which the model of this run has not", model.path(), tensor->name));
}

}  // namespace

SavedModel::SavedModel(std::string path, ModelInfo info)
    : path_(std::move(path)), info_(std::move(info)), units_(llama_units(info_.config)) {}

std::string find_saved_model(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw DataError(fmt::format("{}: no such file or folder", path));
  if (!fs::is_directory(path, error) || !checkpoint_of(path).empty()) return path;
  const std::string file = path + "/model.h5";
  const bool safetensors = is_safetensors(path);
  if (fs::exists(file, error)) {
    if (safetensors)
      throw DataError(fmt::format("{}: has a model.h5 and safetensors files; name the one that is meant", path));
    return file;
  }
  if (safetensors) return path;
  if (const auto checkpoints = CheckpointStore(path + "/checkpoints").entries(); !checkpoints.empty())
    return checkpoints.front().path;
  const bool pickled =
      fs::exists(path + "/pytorch_model.bin", error) || fs::exists(path + "/pytorch_model.bin.index.json", error);
  throw DataError(fmt::format(
      "{}: holds no model: neither model.h5, checkpoints, model.safetensors nor model.safetensors.index.json{}", path,
      pickled ? "; its pytorch_model.bin is not read: let transformers save it again, as safetensors" : ""));
}

std::unique_ptr<SavedModel> open_saved_model(const std::string& path) {
  const std::string found = find_saved_model(path);
  if (const std::string folder = checkpoint_of(found); !folder.empty())
    return std::make_unique<CheckpointModel>(folder);
  if (is_safetensors(found)) return std::make_unique<SafetensorsModel>(found);
  return std::make_unique<ModelFile>(Hdf5File::open(found));
}

ModelInfo read_model_info(const std::string& path) {
  const std::string found = find_saved_model(path);
  if (const std::string folder = checkpoint_of(found); !folder.empty()) return info_of(folder, read_manifest(folder));
  if (is_safetensors(found)) return SafetensorsModel::read_info(found);
  return read_model_info(Hdf5File::open(found));
}

template <class T>
void load_model(const std::string& path, ShardedParameters<T>& parameters) {
  using R = Accumulator<T>;
  const std::string found = find_saved_model(path);
  if (const std::string folder = checkpoint_of(found); !folder.empty()) {
    CheckpointReader reader(folder);
    restore_model(reader, parameters);
    return;
  }
  const auto model = open_saved_model(found);
  require_tensors(*model, parameters);
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    auto& unit = parameters.unit(u);
    for (std::size_t i = 0; i < unit.layout.unit().tensors.size(); ++i) {
      const Range mine = unit.owned_of(i);
      for (std::size_t begin = mine.begin; begin < mine.end; begin += piece) {
        const Range range{begin, std::min(mine.end, begin + piece)};
        std::vector<R> values(range.size());
        model->read({u, i}, range.begin - unit.layout.tensor(i).begin, std::span<R>(values));
        copy_to_device(values, unit.local(unit.master, range));
      }
    }
  }
}

template void load_model<float>(const std::string&, ShardedParameters<float>&);
template void load_model<double>(const std::string&, ShardedParameters<double>&);
template void load_model<bf16>(const std::string&, ShardedParameters<bf16>&);

}  // namespace atl
