/// Models of every supported family, as transformers saved them: their logits, whatever the grid.
/// SPDX-License-Identifier: Apache-2.0
///
/// The fixtures are made by tests/fixtures/make_huggingface.py: single and sharded files of fp16, bf16 and fp32, and
/// config.json as transformers 4 and 5 write it.
#include "core/errors.hpp"
#include "io/hdf5.hpp"
#include "io/huggingface/import.hpp"
#include "io/huggingface/safetensors_model.hpp"
#include "tests/io/shared_folder.hpp"
#include "tests/model/tiny_run.hpp"

#include <cstdio>
#include <filesystem>

namespace atl {
namespace {

const std::string fixtures = ATOLL_SOURCE_DIR "/tests/fixtures/huggingface/";
const std::vector<std::string> families = {"llama1",  "llama2",    "llama3", "llama31", "llama32", "linear",
                                           "linear5", "tinyllama", "smollm", "mistral", "nemo",    "head_dim"};

/// Largest difference to transformers' logits, relative to the largest of them.
template <class T>
double difference_of_logits(const std::string& family, const std::string& model) {
  const Hdf5File expected = Hdf5File::open(fixtures + family + "/expected.h5");
  const auto shape = expected.shape("tokens");
  const LlamaConfig config = read_model_info(model).config;
  TinyOptions options;
  options.shape = {static_cast<std::int64_t>(shape[0]), static_cast<std::int64_t>(shape[1]), Recompute::none, 1024};
  TinyRun<T> run(MPI_COMM_WORLD, config, grid_of(Strategy::fsdp), options);
  load_model(model, run.parameters);

  Batch batch;
  batch.sequences = options.shape.micro_batch, batch.length = options.shape.sequence_length;
  batch.tokens.resize(shape[0] * shape[1]);
  expected.read_flat("tokens", 0, batch.tokens);
  batch.targets = batch.tokens;
  std::vector<double> logits(expected.size("logits"));
  expected.read_flat("logits", 0, logits);
  const std::vector<T> actual = to_host(flat(run.model.logits(run.exec, batch)));
  EXPECT_EQ(actual.size(), logits.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual.at(i)) - logits[i]);
    largest = std::max(largest, std::abs(logits[i]));
    if (!(error <= worst)) worst = error;
  }
  if (run.grid.rank() == 0)
    std::printf("%-10s %zu bytes a number: largest difference %.2e of %.2f\n", family.c_str(), sizeof(T), worst,
                largest);
  return worst / largest;
}

TEST(HuggingFaceModels, HaveTransformersLogits) {
  for (const std::string& family : families) {
    SCOPED_TRACE(family);
    EXPECT_LE(difference_of_logits<double>(family, fixtures + family), 1e-12);  // the order of sums
    EXPECT_LE(difference_of_logits<float>(family, fixtures + family), 1e-5);    // 2.4e-6 seen
  }
}

TEST(HuggingFaceModels, ImportedHaveTheSameBits) {
  const Communicator world(MPI_COMM_WORLD);
  const SharedFolder folder(world);
  for (const std::string& family : families) {
    SCOPED_TRACE(family);
    const std::string output = folder / family;
    if (world.rank() == 0) {
      const ImportResult result = import_model(fixtures + family, output, [](auto, auto) {});
      EXPECT_EQ(result.not_finite, 0u);
      EXPECT_TRUE(std::filesystem::exists(output + "/config.json"));
    }
    world.barrier();
    EXPECT_EQ(read_model_info(output).config, read_model_info(fixtures + family).config);
    const auto direct = open_saved_model(fixtures + family), imported = open_saved_model(output);
    for (std::size_t u = 0; u < direct->units().size(); ++u)
      for (std::size_t i = 0; i < direct->units()[u].tensors.size(); ++i) {
        std::vector<float> a(direct->units()[u].tensors[i].size()), b(a.size());
        direct->read({u, i}, 0, std::span<float>(a));
        imported->read({u, i}, 0, std::span<float>(b));
        EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << direct->units()[u].tensors[i].name;
      }
  }
}

TEST(HuggingFaceModels, ModelsOfOtherTensorsAreNotLoaded) {
  const std::string tied = fixtures + "llama32", untied = fixtures + "llama3";
  const auto load = [](const std::string& model, const std::string& into) {
    TinyRun<float> run(MPI_COMM_WORLD, read_model_info(into).config, grid_of(Strategy::fsdp));
    return message_of<DataError>([&] { load_model(model, run.parameters); });
  };
  EXPECT_NE(load(tied, untied).find("has no tensor lm_head.weight"), std::string::npos);
  EXPECT_NE(load(untied, tied).find("has the tensor lm_head.weight"), std::string::npos);
  EXPECT_NE(load(fixtures + "llama31", untied).find("k_proj.weight has shape (6, 24)"), std::string::npos);
}

}  // namespace
}  // namespace atl
