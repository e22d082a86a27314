/// SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/safetensors_model.hpp"

#include "core/errors.hpp"
#include "io/huggingface/weights.hpp"
#include "model/strict_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

namespace atl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_name = "model.safetensors.index.json", single_name = "model.safetensors";
constexpr std::uintmax_t largest_index = 16 << 20;
constexpr std::uint64_t piece_bytes = 8 << 20;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  const auto folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// The file or index that a path means.
std::string file_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const std::string single = fmt::format("{}/{}", path, single_name), index = fmt::format("{}/{}", path, index_name);
  const bool has_index = fs::exists(index, error);
  if (has_index && fs::exists(single, error))
    throw DataError(fmt::format("{}: has both {} and {}; name the one that is meant", path, single_name, index_name));
  return has_index ? index : single;
}

/// Names of tensors by the file that an index says they are in.
std::map<std::string, std::set<std::string>> read_index(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) throw DataError(fmt::format("{}: not a file, or not there", path));
  if (fs::file_size(path, error) > largest_index)
    throw DataError(fmt::format("{}: larger than {} bytes, so no index of safetensors files", path, largest_index));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::map<std::string, std::set<std::string>> files;
  try {
    const nlohmann::json index = parse_strict_object(text);
    if (!index.contains("weight_map") || !index["weight_map"].is_object())
      throw std::runtime_error("it has no object weight_map");
    for (const auto& [tensor, name] : index["weight_map"].items()) {
      if (!name.is_string()) throw std::runtime_error(fmt::format("weight_map.{} is no file's name", tensor));
      const auto plain = name.get<std::string>();
      if (plain.empty() || plain.find('/') != std::string::npos || !ends_with(plain, ".safetensors"))
        throw std::runtime_error(fmt::format("weight_map.{} = {} is not the name of a .safetensors file beside it",
                                             tensor, brief_json(name)));
      files[plain].insert(tensor);
    }
    if (files.empty()) throw std::runtime_error("its weight_map is empty");
  } catch (const std::runtime_error& fault) {
    throw DataError(fmt::format("{}: no index of safetensors files: {}", path, fault.what()));
  }
  return files;
}

/// What old files hold besides: tables that follow from the configuration.
bool is_rotary_table(const std::string& name) {
  return name.rfind("model.layers.", 0) == 0 && ends_with(name, ".self_attn.rotary_emb.inv_freq");
}

/// "a, b and 3 more".
std::string some_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, names.size())));
  const std::size_t more = names.size() - first.size();
  return fmt::format("{}{}", fmt::join(first, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

bool is_safetensors(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return ends_with(path, ".safetensors") || ends_with(path, ".safetensors.index.json");
  return fs::exists(fmt::format("{}/{}", path, single_name), error) ||
         fs::exists(fmt::format("{}/{}", path, index_name), error);
}

ModelInfo SafetensorsModel::read_info(const std::string& path) {
  ModelInfo info;
  info.config = read_hugging_face_config(folder_of(path) + "/config.json");
  return info;
}

SafetensorsModel::SafetensorsModel(const std::string& path) : SavedModel(path, read_info(path)) {
  open_files(file_of(path));
  find_tensors();
}

void SafetensorsModel::open_files(const std::string& path) {
  if (ends_with(path, ".safetensors")) {
    files_.emplace_back(path);
    return;
  }
  for (const auto& [name, tensors] : read_index(path)) {
    files_.emplace_back(folder_of(path) + "/" + name);
    const auto& held = files_.back().header().tensors;
    for (const std::string& tensor : tensors)
      if (held.count(tensor) == 0)
        throw DataError(fmt::format("{}: has no tensor {}, which {} says it has", files_.back().path(), tensor, path));
    for (const auto& [tensor, entry] : held)
      if (tensors.count(tensor) == 0)
        throw DataError(
            fmt::format("{}: has the tensor {}, which {} says it has not", files_.back().path(), tensor, path));
  }
}

void SafetensorsModel::find_tensors() {
  std::map<std::string, Source> found;
  for (const SafetensorsFile& file : files_)
    for (const auto& [name, entry] : file.header().tensors) found[name] = {&file, &entry};

  std::vector<std::string> missing, others;
  for (const UnitSpec& unit : units()) {
    auto& sources = tensors_.emplace_back();
    for (const TensorSpec& tensor : unit.tensors) {
      const auto it = found.find(tensor.name);
      if (it == found.end()) {
        missing.push_back(tensor.name);
        continue;
      }
      Source source = it->second;
      const std::vector<std::uint64_t> expected(tensor.shape.begin(), tensor.shape.end());
      if (source.entry->shape != expected)
        throw DataError(fmt::format("{}: tensor {} has shape ({}), but config.json says ({})", source.file->path(),
                                    tensor.name, fmt::join(source.entry->shape, ", "), fmt::join(expected, ", ")));
      bool known = false;
      for (const WeightType type : {WeightType::fp32, WeightType::bf16, WeightType::fp16})
        if (source.entry->dtype == safetensors_name(type)) source.type = type, known = true;
      if (!known)
        throw DataError(
            fmt::format("{}: tensor {} is of dtype {}; only F32, BF16 and F16 are read (quantised models are not)",
                        source.file->path(), tensor.name, source.entry->dtype));
      sources.push_back(source);
      found.erase(it);
    }
  }
  if (!missing.empty())
    throw DataError(
        fmt::format("{}: tensors of the model in config.json are missing: {}{}", path(), some_of(missing),
                    missing.front() == "lm_head.weight" ? " (config.json has tie_word_embeddings = false)" : ""));
  for (const auto& [name, source] : found) {
    if (name == "lm_head.weight" && info().config.tie_word_embeddings)
      require_equal_head(source);
    else if (!is_rotary_table(name))
      others.push_back(name);
  }
  if (!others.empty())
    throw DataError(fmt::format("{}: has tensors that the model in config.json has not, so it is other mathematics: {}",
                                path(), some_of(others)));
}

void SafetensorsModel::require_equal_head(const Source& head) const {
  const Source& embedding = tensors_.front().front();
  bool equal = head.entry->shape == embedding.entry->shape && head.entry->dtype == embedding.entry->dtype;
  const std::uint64_t size = head.entry->end - head.entry->begin;
  std::vector<char> a, b;
  for (std::uint64_t at = 0; equal && at < size; at += a.size()) {
    a.resize(std::min(piece_bytes, size - at));
    b.resize(a.size());
    head.file->read_bytes(*head.entry, at, a.size(), a.data());
    embedding.file->read_bytes(*embedding.entry, at, b.size(), b.data());
    equal = a == b;
  }
  if (!equal)
    throw DataError(fmt::format(
        "{}: lm_head.weight differs from model.embed_tokens.weight, but config.json has tie_word_embeddings = true",
        head.file->path()));
}

std::uint64_t SafetensorsModel::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& unit : tensors_)
    for (const Source& source : unit) sum += source.entry->end - source.entry->begin;
  return sum;
}

template <class T>
void SafetensorsModel::read_as(TensorPlace place, std::uint64_t begin, std::span<T> to) {
  const Source& source = tensors_[place.unit][place.index];
  const std::uint64_t element = size_of(source.type), step = piece_bytes / element;
  for (std::uint64_t done = 0; done < to.size(); done += step) {
    const std::uint64_t count = std::min(step, to.size() - done);
    bytes_.resize(count * element);
    source.file->read_bytes(*source.entry, (begin + done) * element, bytes_.size(), bytes_.data());
    widen(source.type, bytes_.data(), count, to.data() + done);
  }
}

template void SafetensorsModel::read_as<float>(TensorPlace, std::uint64_t, std::span<float>);
template void SafetensorsModel::read_as<double>(TensorPlace, std::uint64_t, std::span<double>);

}  // namespace atl
