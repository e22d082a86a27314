/// SPDX-License-Identifier: Apache-2.0
#include "io/model_file.hpp"

#include "core/errors.hpp"
#include "io/hdf5.hpp"
#include "io/pending_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
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
  if (info.documents.packing == Packing::concatenate) return;
  file.set_string_attribute("packing", "documents");
  if (info.documents.end_of_document) file.set_integer_attribute("end_of_document", *info.documents.end_of_document);
}

ModelInfo read_model_info(const Hdf5File& file) {
  if (!file.has_attribute("format") || file.string_attribute("format") != format_name)
    throw DataError(
        fmt::format("{}: not a model file (no attribute format = \"{}\"); atoll train writes one as model.h5",
                    file.path(), format_name));
  // It shows NaN where a file of the checkpoint is missing: that is read through the manifest only.
  if (file.has_attribute(view_attribute))
    throw DataError(
        fmt::format("{}: only a view of a checkpoint's data files, whose COMMIT and MANIFEST.json are missing "
                    "beside it; give a complete checkpoint",
                    file.path()));
  if (const auto version = file.integer_attribute("version"); version != format_version)
    throw DataError(
        fmt::format("{}: model file of version {}, this program reads version {}; use the atoll that wrote it",
                    file.path(), version, format_version));
  ModelInfo info{parse_hugging_face_config(file.string_attribute("config"), file.path()),
                 file.integer_attribute("step"), file.integer_attribute("tokens")};
  if (file.has_attribute("sequence_length")) {
    info.eval = file.string_attribute("eval");
    info.sequence_length = file.integer_attribute("sequence_length");
    info.seed = file.integer_attribute("seed");
    info.synthetic_eval_tokens = file.integer_attribute("synthetic_eval_tokens");
    if (file.has_attribute("packing")) info.documents.packing = Packing::documents;
    if (file.has_attribute("end_of_document"))
      info.documents.end_of_document = file.integer_attribute("end_of_document");
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

template void save_model<float>(const Exec&, const std::string&, const ModelInfo&, ShardedParameters<float>&,
                                const ProcessGrid&, const Communicators&);
template void save_model<double>(const Exec&, const std::string&, const ModelInfo&, ShardedParameters<double>&,
                                 const ProcessGrid&, const Communicators&);
template void save_model<bf16>(const Exec&, const std::string&, const ModelInfo&, ShardedParameters<bf16>&,
                               const ProcessGrid&, const Communicators&);

}  // namespace atl
