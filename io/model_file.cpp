/// SPDX-License-Identifier: Apache-2.0
#include "io/model_file.hpp"

#include "io/checkpoint/training_state.hpp"
#include "io/hdf5.hpp"
#include "io/pending_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>

namespace atl {

namespace {

constexpr std::string_view format_name = "atoll-model";
constexpr std::int64_t format_version = 1;
constexpr std::size_t piece = std::size_t{1} << 24;  // elements on their way between device and file

template <class E>
void write_tensor(Hdf5File& file, const TensorSpec& tensor, const View1<E>& values) {
  file.create_dataset(tensor.name, {tensor.shape.begin(), tensor.shape.end()}, element_of<std::remove_const_t<E>>());
  for (std::size_t begin = 0; begin < values.extent(0); begin += piece) {
    const std::size_t n = std::min(piece, values.extent(0) - begin);
    file.write_flat(tensor.name, begin, to_host(part(values, begin, n)));
  }
}

}  // namespace

void write_model_info(Hdf5File& file, const ModelInfo& info) {
  file.set_string_attribute("format", std::string(format_name));
  file.set_integer_attribute("version", format_version);
  file.set_string_attribute("config", to_hugging_face_json(info.config));
  file.set_integer_attribute("step", info.step);
  file.set_integer_attribute("tokens", info.tokens);
  if (info.sequence_length == 0) return;
  file.set_string_attribute("eval", info.eval);
  file.set_integer_attribute("sequence_length", info.sequence_length);
  file.set_integer_attribute("seed", info.seed);
  file.set_integer_attribute("synthetic_eval_tokens", info.synthetic_eval_tokens);
}

namespace {

ModelInfo info_of_checkpoint(const std::string& folder) {
  const CheckpointManifest manifest = read_manifest(folder);
  const auto& data = manifest.configuration.at("data");
  return {parse_hugging_face_config(manifest.model, folder),
          manifest.position.step,
          manifest.position.tokens,
          data.value("eval", std::string()),
          data.value("sequence_length", std::int64_t{0}),
          manifest.configuration.at("run").value("seed", std::int64_t{0}),
          data.value("synthetic_eval_tokens", std::int64_t{0})};
}

/// The model.h5 of a checkpoint shows NaN where a file is missing: it is read through the manifest only.
void refuse_lone_view(const Hdf5File& file) {
  if (file.has_attribute(view_attribute))
    throw DataError(
        fmt::format("{}: only a view of a checkpoint's data files, whose COMMIT and MANIFEST.json are missing "
                    "beside it; give a complete checkpoint",
                    file.path()));
}

}  // namespace

std::string model_of_folder(const std::string& folder) {
  const std::string path = folder + "/model.h5";
  if (std::filesystem::exists(path)) return path;
  const auto checkpoints = CheckpointStore(folder + "/checkpoints").entries();
  return checkpoints.empty() ? path : checkpoints.front().path + "/model.h5";
}

ModelInfo read_model_info(const std::string& path) {
  if (const std::string folder = checkpoint_of(path); !folder.empty()) return info_of_checkpoint(folder);
  const Hdf5File file = Hdf5File::open(path);
  if (!file.has_attribute("format") || file.string_attribute("format") != format_name)
    throw DataError(fmt::format(
        "{}: not a model file (no attribute format = \"{}\"); atoll train writes one as model.h5", path, format_name));
  refuse_lone_view(file);
  if (const auto version = file.integer_attribute("version"); version != format_version)
    throw DataError(
        fmt::format("{}: model file of version {}, this program reads version {}; use the atoll that wrote it", path,
                    version, format_version));
  ModelInfo info{parse_hugging_face_config(file.string_attribute("config"), path), file.integer_attribute("step"),
                 file.integer_attribute("tokens")};
  if (file.has_attribute("sequence_length")) {
    info.eval = file.string_attribute("eval");
    info.sequence_length = file.integer_attribute("sequence_length");
    info.seed = file.integer_attribute("seed");
    info.synthetic_eval_tokens = file.integer_attribute("synthetic_eval_tokens");
  }
  return info;
}

template <class T>
void save_model(const Exec& exec, const std::string& path, const ModelInfo& info, ShardedParameters<T>& parameters,
                const ProcessGrid& grid, const Communicators& communicators) {
  // A rank that cannot write goes on gathering with the others, and tells at the end: nobody waits for it in vain.
  std::exception_ptr failure;
  const auto attempt = [&](const auto& work) {
    if (grid.rank() != 0 || failure) return;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  if (grid.group() == 0 && grid.replica() == 0) {
    std::optional<PendingFile> pending;
    std::optional<Hdf5File> file;
    attempt([&] {
      pending.emplace(path);
      file.emplace(Hdf5File::create(pending->temporary()));
      write_model_info(*file, info);
    });
    for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
      const auto full = parameters.gather_master(exec, u);
      exec.fence();
      const ShardLayout& layout = parameters.unit(u).layout;
      for (std::size_t i = 0; i < layout.unit().tensors.size(); ++i)
        attempt([&] {
          const Range range = layout.tensor(i);
          write_tensor(*file, layout.unit().tensors[i], part(full, range.begin, range.size()));
        });
    }
    attempt([&] {
      file->close();
      pending->publish();
    });
  }
  collectively(communicators.world, [&] {
    if (failure) std::rethrow_exception(failure);
  });
}

template <class T>
void load_model(const std::string& path, ShardedParameters<T>& parameters) {
  using R = Accumulator<T>;
  if (const std::string folder = checkpoint_of(path); !folder.empty()) {
    CheckpointReader reader(folder);
    restore_model(reader, parameters);
    return;
  }
  const Hdf5File file = Hdf5File::open(path);
  refuse_lone_view(file);
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    auto& unit = parameters.unit(u);
    const auto& tensors = unit.layout.unit().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string& name = tensors[i].name;
      if (!file.has_dataset(name)) throw DataError(fmt::format("{}: tensor {} is missing", path, name));
      const std::vector<std::uint64_t> expected(tensors[i].shape.begin(), tensors[i].shape.end());
      if (const auto shape = file.shape(name); shape != expected)
        throw DataError(fmt::format("{}: tensor {} has shape ({}), the model of this run needs ({})", path, name,
                                    fmt::join(shape, ", "), fmt::join(expected, ", ")));
      const Range mine = unit.owned_of(i);
      for (std::size_t begin = mine.begin; begin < mine.end; begin += piece) {
        const Range range{begin, std::min(mine.end, begin + piece)};
        std::vector<R> values(range.size());
        file.read_flat(name, range.begin - unit.layout.tensor(i).begin, values);
        copy_to_device(values, unit.local(unit.master, range));
      }
    }
  }
}

#define ATOLL_INSTANTIATE(T)                                                                            \
  template void save_model<T>(const Exec&, const std::string&, const ModelInfo&, ShardedParameters<T>&, \
                              const ProcessGrid&, const Communicators&);                                \
  template void load_model<T>(const std::string&, ShardedParameters<T>&);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
#undef ATOLL_INSTANTIATE

}  // namespace atl
