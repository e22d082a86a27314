/// Perplexity in strided windows: against Hugging Face, and to the bit the same on any number of ranks.
/// SPDX-License-Identifier: Apache-2.0
#include "io/data/batch_source.hpp"
#include "io/hdf5.hpp"
#include "io/saved_model.hpp"
#include "model/evaluate.hpp"
#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

struct Case {
  std::int64_t length, stride;
};

struct Evaluated {
  Evaluation evaluation;
  double expected = 0;
};

template <class T>
Evaluated evaluated(MPI_Comm comm, const Case& windows, std::int64_t micro_batch, std::int64_t limit = 0) {
  const std::string path = std::string(ATOLL_SOURCE_DIR) + "/tests/fixtures/generate.h5";
  const Hdf5File file = Hdf5File::open(path);
  std::vector<std::int32_t> tokens(file.size("eval/tokens"));
  file.read_flat("eval/tokens", 0, tokens);
  Evaluated result;
  std::vector<double> loss(1);
  file.read_flat("eval/" + std::to_string(windows.length) + "_" + std::to_string(windows.stride), 0, loss);
  result.expected = loss[0];

  GridWithCommunicators& place = GridCache::get(comm, ParallelOptions{});
  const Communicator& world = place.communicators.world;
  const LlamaConfig config = read_model_info(path).config;
  ShardedParameters<T> parameters(llama_units(config), *place.shard, *place.replica, AfterForward::reshard);
  load_model(path, parameters);
  Llama<T> model(config, {micro_batch, windows.length, Recompute::block, 64}, parameters);
  const auto source =
      std::make_shared<MemorySource>("text", 258, std::vector<std::uint16_t>(tokens.begin(), tokens.end()));
  const EvaluationSource batches(source, windows.length, world.size(), world.rank(), micro_batch, limit,
                                 windows.stride);
  result.evaluation =
      evaluate<T>(Exec(), model, world, batches.micro_batches(), [&](std::int64_t i) { return batches.batch(i); });
  return result;
}

constexpr Case cases[] = {{16, 16}, {16, 4}, {16, 1}, {23, 7}, {200, 200}};

TEST(StridedEvaluation, IsThatOfHuggingFace) {
  for (const Case& windows : cases) {
    for (const std::int64_t micro_batch : {1, 3}) {
      const Evaluated exact = evaluated<double>(MPI_COMM_WORLD, windows, micro_batch);
      EXPECT_EQ(exact.evaluation.tokens, 100);
      EXPECT_LE(relative_difference(exact.evaluation.total, exact.expected), 1e-11)
          << windows.length << ", " << windows.stride;
    }
    // fp32: a few ulp of each loss.
    const Evaluated rounded = evaluated<float>(MPI_COMM_WORLD, windows, 2);
    EXPECT_LE(relative_difference(rounded.evaluation.total, rounded.expected), 1e-5);
  }
}

TEST(StridedEvaluation, NoNumberOfRanksChangesABit) {
  for (const Case& windows : cases)
    for (const std::int64_t micro_batch : {1, 2, 5}) {
      EXPECT_EQ(evaluated<float>(MPI_COMM_WORLD, windows, micro_batch).evaluation.total,
                evaluated<float>(MPI_COMM_SELF, windows, micro_batch).evaluation.total);
      const Evaluation some = evaluated<float>(MPI_COMM_WORLD, windows, micro_batch, 3).evaluation;
      EXPECT_EQ(some.total, evaluated<float>(MPI_COMM_SELF, windows, micro_batch, 3).evaluation.total);
      EXPECT_EQ(some.tokens, std::min<std::int64_t>(100, windows.length + 2 * windows.stride));
    }
}

}  // namespace
}  // namespace atl
