/// SPDX-License-Identifier: Apache-2.0
#include "io/huggingface/export.hpp"

#include "core/errors.hpp"
#include "io/data/tokenizer_of_data.hpp"
#include "io/huggingface/companion_files.hpp"
#include "io/huggingface/weights.hpp"
#include "io/pending_folder.hpp"
#include "io/saved_model.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace atl {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t piece = std::uint64_t{1} << 22;  // elements on their way

/// A file that is written from its beginning to its end.
class Output {
 public:
  explicit Output(const std::string& path) : path_(path) {
    errno = 0;
    file_.rdbuf()->pubsetbuf(nullptr, 0);  // pieces are large
    file_.open(path, std::ios::binary);
    check();
  }
  void write(const char* bytes, std::uint64_t count) {
    file_.write(bytes, static_cast<std::streamsize>(count));
    check();
  }
  void close() {
    file_.close();
    check();
  }

 private:
  void check() const {
    if (!file_)
      throw DataError(fmt::format("{}: cannot be written: {}", path_, errno != 0 ? std::strerror(errno) : "unknown"));
  }
  std::string path_;
  std::ofstream file_;
};

void write_text(const std::string& path, const std::string& text) {
  Output file(path);
  file.write(text.data(), text.size());
  file.close();
}

/// The tensors of one file.
struct Shard {
  std::vector<TensorPlace> places;
  std::vector<SafetensorsTensor> tensors;
  std::uint64_t bytes = 0;
  std::string name;
};

/// In the order of the model; a file takes tensors as long as they fit.
std::vector<Shard> plan_shards(const SavedModel& model, const ExportOptions& options) {
  std::vector<Shard> shards(1);
  for (std::size_t u = 0; u < model.units().size(); ++u)
    for (std::size_t i = 0; i < model.units()[u].tensors.size(); ++i) {
      const TensorSpec& tensor = model.units()[u].tensors[i];
      const std::uint64_t bytes = tensor.size() * size_of(options.type);
      if (!shards.back().places.empty() && shards.back().bytes + bytes > options.max_shard_bytes) shards.emplace_back();
      shards.back().places.push_back({u, i});
      shards.back().tensors.push_back({tensor.name, {tensor.shape.begin(), tensor.shape.end()}});
      shards.back().bytes += bytes;
    }
  for (std::size_t s = 0; s < shards.size(); ++s)
    shards[s].name = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05d}-of-{:05d}.safetensors", s + 1, shards.size());
  return shards;
}

std::string index_of(const std::vector<Shard>& shards, const ExportResult& result) {
  std::map<std::string, std::string> files;
  for (const Shard& shard : shards)
    for (const SafetensorsTensor& tensor : shard.tensors) files[tensor.name] = shard.name;
  return Json{{"metadata", {{"total_parameters", result.parameters}, {"total_size", result.bytes_written}}},
              {"weight_map", files}}
             .dump(2) +
         "\n";
}

/// Reads in T, fp32 or fp64, which holds the saved numbers exactly.
template <class T>
void write_shard(SavedModel& model, const Shard& shard, const std::string& path, WeightType type, ExportResult& result,
                 const std::function<void(std::uint64_t)>& wrote) {
  Output file(path);
  const std::string header = safetensors_header(shard.tensors, type);
  file.write(header.data(), header.size());
  std::vector<T> values;
  std::vector<char> bytes;
  for (const TensorPlace place : shard.places) {
    const TensorSpec& tensor = model.tensor(place);
    for (std::uint64_t begin = 0; begin < tensor.size(); begin += piece) {
      values.resize(std::min<std::uint64_t>(piece, tensor.size() - begin));
      model.read(place, begin, std::span<T>(values));
      bytes.resize(values.size() * size_of(type));
      const Rounded rounded = narrow(values.data(), values.size(), type, bytes.data());
      if (rounded.too_large != nullptr)
        throw DataError(fmt::format("{}: {} has the number {}, which is too large for {}; choose bf16 or fp32",
                                    model.path(), tensor.name, *static_cast<const T*>(rounded.too_large),
                                    name_of(type)));
      result.not_finite += rounded.not_finite;
      file.write(bytes.data(), bytes.size());
      wrote(bytes.size());
    }
  }
  file.close();
}

/// The folder that the user names, or the model's, or that of the tokenizer which made the run's data.
std::string folder_of_tokenizer(const SavedModel& model, const std::string& named) {
  if (!named.empty()) return named;
  const std::string beside = folder_of_companions(model.path());
  if (has_tokenizer(companion_files(beside))) return beside;
  const std::string tokenizer = tokenizer_of_data(model.info().eval);
  if (tokenizer.empty() || tokenizer == ByteTokenizer::name) return beside;
  return folder_of_companions(tokenizer);
}

}  // namespace

ExportResult export_safetensors(const std::string& source, const std::string& output, const ExportOptions& options,
                                const BytesDone& told) {
  const auto model = open_saved_model(source);
  const std::string beside = folder_of_tokenizer(*model, options.tokenizer);
  ExportResult result;
  result.companions = companion_files(beside);
  if (!options.tokenizer.empty() && !has_tokenizer(result.companions))
    throw DataError(fmt::format("{}: no folder with a tokenizer (tokenizer.json, tokenizer.model or vocab.json)",
                                options.tokenizer));
  const std::vector<Shard> shards = plan_shards(*model, options);
  std::uint64_t total = 0, done = 0;
  for (const Shard& shard : shards) total += shard.bytes;

  PendingFolder folder(output, total);
  for (const Shard& shard : shards) {
    const auto wrote = [&](std::uint64_t bytes) { told(done += bytes, total); };
    const std::string path = folder.temporary() + "/" + shard.name;
    if (model->element() == Element::f64)
      write_shard<double>(*model, shard, path, options.type, result, wrote);
    else
      write_shard<float>(*model, shard, path, options.type, result, wrote);
    result.files.push_back(shard.name);
  }
  result.parameters = parameter_count(model->info().config);
  result.bytes_written = total;
  if (shards.size() > 1) write_text(folder.temporary() + "/model.safetensors.index.json", index_of(shards, result));

  Json config = Json::parse(to_hugging_face_json(model->info().config));
  const Json ids = special_token_ids(beside);
  config.update(ids);
  config["torch_dtype"] = options.type == WeightType::fp32   ? "float32"
                          : options.type == WeightType::bf16 ? "bfloat16"
                                                             : "float16";
  write_text(folder.temporary() + "/config.json", config.dump(2) + "\n");
  copy_files(result.companions, beside, folder.temporary());
  if (const std::string generation = folder.temporary() + "/generation_config.json"; !fs::exists(generation)) {
    Json text{{"_from_model_config", true}};
    text.update(ids);
    write_text(generation, text.dump(2) + "\n");
  }
  folder.publish();
  return result;
}

}  // namespace atl
