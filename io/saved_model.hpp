/// A saved model, whatever holds it: a model file, a checkpoint, or a folder of safetensors. SPDX-License-Identifier:
/// Apache-2.0
#pragma once

#include "core/element.hpp"
#include "io/model_file.hpp"
#include "parallel/sharded_parameters.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace atl {

/// A tensor of llama_units(config): units[unit].tensors[index].
struct TensorPlace {
  std::size_t unit = 0, index = 0;
};

/// Read by ranges, so that nobody needs memory for the whole of it. Faults are DataErrors that name file and tensor.
/// Not collective, and without device memory: every rank that reads has one.
class SavedModel {
 public:
  virtual ~SavedModel() = default;

  const std::string& path() const { return path_; }
  const ModelInfo& info() const { return info_; }
  const std::vector<UnitSpec>& units() const { return units_; }  ///< llama_units(info().config)
  const TensorSpec& tensor(TensorPlace place) const { return units_[place.unit].tensors[place.index]; }

  /// fp32 or fp64, which holds every number exactly.
  virtual Element element() const = 0;
  /// Elements [begin, begin + to.size()) of a tensor, in row-major order.
  virtual void read(TensorPlace place, std::uint64_t begin, std::span<float> to) = 0;
  virtual void read(TensorPlace place, std::uint64_t begin, std::span<double> to) = 0;

 protected:
  SavedModel(std::string path, ModelInfo info);

 private:
  std::string path_;
  ModelInfo info_;
  std::vector<UnitSpec> units_;
};

/// The file or folder that a path means: of a run's folder its model.h5, before that is there its newest checkpoint;
/// any other path is returned as it is. DataError where there is nothing, or more than one model.
std::string find_saved_model(const std::string& path);

/// Opens what find_saved_model finds: a model file, a checkpoint (or the model.h5 in one), a safetensors file, its
/// index, or the folder of either. DataError or ConfigError (of a config.json) unless it can be used.
std::unique_ptr<SavedModel> open_saved_model(const std::string& path);

/// Its description alone; cheap.
ModelInfo read_model_info(const std::string& path);

/// Every rank reads what it owns. DataError where the model has other tensors than `parameters`. Not collective.
template <class T>
void load_model(const std::string& path, ShardedParameters<T>& parameters);

}  // namespace atl
