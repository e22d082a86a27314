/// A Llama in a folder as transformers saves it: config.json and safetensors files. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/huggingface/safetensors.hpp"
#include "io/saved_model.hpp"

#include <map>
#include <string>
#include <vector>

namespace atl {

/// Whether the path is a .safetensors file, an index (model.safetensors.index.json), or a folder with either of them.
bool is_safetensors(const std::string& path);

/// Everything is checked before anything is read: the configuration, the headers of all files, the index, and that they
/// hold exactly this model's tensors with its shapes, as BF16, F16 or F32. What transformers ignores too may be there
/// besides: the rotary_emb.inv_freq of old files, and a tied head that is equal to the embedding.
class SafetensorsModel : public SavedModel {
 public:
  explicit SafetensorsModel(const std::string& path);
  static ModelInfo read_info(const std::string& path);  ///< from config.json alone

  Element element() const override { return Element::f32; }  ///< all three types are exact in fp32
  void read(TensorPlace place, std::uint64_t begin, std::span<float> to) override { read_as(place, begin, to); }
  void read(TensorPlace place, std::uint64_t begin, std::span<double> to) override { read_as(place, begin, to); }

  std::uint64_t bytes() const;  ///< of all tensors
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  struct Source {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    WeightType type = WeightType::fp32;
  };

  void open_files(const std::string& path);
  void find_tensors();
  void require_equal_head(const Source& head) const;
  template <class T>
  void read_as(TensorPlace place, std::uint64_t begin, std::span<T> to);

  std::vector<SafetensorsFile> files_;
  std::vector<std::vector<Source>> tensors_;  ///< by unit and index
  std::vector<char> bytes_;
};

}  // namespace atl
