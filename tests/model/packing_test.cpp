/// Packed documents against the same documents run apart. SPDX-License-Identifier: Apache-2.0
#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

using Lengths = std::vector<std::int64_t>;

// Sequences of 150 tokens, cut on and around the edges of attention's blocks of 64, and one document in its own right.
constexpr std::int64_t length = 150;
const std::vector<Lengths> packed{{70, 1, 64, 15}, {150},        {3, 147}, {64, 64, 22},
                                  {1, 1, 148},     {127, 2, 21}, {65, 85}, {75, 75}};

/// Document `number`: its tokens and targets, the last of which is the end of the document and ignored.
void append_document(std::size_t number, std::int64_t n, Batch& batch) {
  append_sequence(number, n, Targets::all, batch);
  batch.targets.back() = ignored_target;
}

/// These sequences, with their documents packed.
Batch packed_batch(Range which, Packing packing) {
  Batch batch;
  for (std::size_t s = which.begin; s < which.end; ++s)
    for (std::size_t d = 0, begin = 0; d < packed[s].size(); begin += static_cast<std::size_t>(packed[s][d++])) {
      append_document(10 * s + d, packed[s][d], batch);
      if (packing == Packing::documents)
        batch.document_starts.resize(batch.tokens.size(), static_cast<std::int32_t>(begin));
    }
  batch.sequences = static_cast<std::int64_t>(which.size());
  batch.length = length;
  return batch;
}

/// Their documents, a sequence each, which begins at position 0; padded behind the end.
Batch apart(Range which) {
  Batch batch;
  for (std::size_t s = which.begin; s < which.end; ++s)
    for (std::size_t d = 0; d < packed[s].size(); ++d) {
      append_document(10 * s + d, packed[s][d], batch);
      const auto rows = static_cast<std::size_t>(batch.sequences * length);
      batch.tokens.resize(rows, 9);
      batch.targets.resize(rows, ignored_target);
    }
  batch.length = length;
  return batch;
}

struct Result {
  double loss = 0;  ///< sum
  FullUnits<double> gradients;
};

/// On all ranks, each with some of the sequences.
Result run(const LlamaConfig& config, const LlamaShape& shape, const std::function<Batch(Range)>& batch_of) {
  TinyOptions options;
  options.shape = shape;
  TinyRun<double> run(MPI_COMM_WORLD, config, grid_of(Strategy::fsdp), options);
  const Batch batch = batch_of(share({0, packed.size()}, run.grid.world_size(), run.grid.rank()));
  const double loss = run.model.forward_backward(run.exec, batch, 1.0);
  run.parameters.finish_gradients(run.exec);
  EXPECT_EQ(run.model.forward(run.exec, batch), loss);
  return {run.communicators.world.sum(loss), run.gradients()};
}

LlamaConfig with_scaling(RopeScaling::Kind kind) {
  LlamaConfig config = tiny_config(Head::own);
  config.rope_theta = 100;
  config.rope_scaling.kind = kind;
  if (kind != RopeScaling::Kind::none) config.rope_scaling.factor = 4;
  config.rope_scaling.original_max_position_embeddings = 32;
  complete_and_check(config);
  return config;
}

// 1e-12: packed, positions go on through the sequence, and RoPE turns by other angles of equal differences.
TEST(Packing, IsThatOfDocumentsApart) {
  using Kind = RopeScaling::Kind;
  for (const Kind kind : {Kind::none, Kind::linear, Kind::llama3}) {
    const LlamaConfig config = with_scaling(kind);
    const Result expected = run(config, {24, length, Recompute::none, 1024}, apart);
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      const Result found = run(config, {8, length, recompute, 100, Packing::documents},
                               [](Range which) { return packed_batch(which, Packing::documents); });
      EXPECT_LE(relative_difference(found.loss, expected.loss), 1e-12);
      expect_close(config, found.gradients, expected.gradients, 1e-12, "gradient");
    }
    const Result concatenated =
        run(config, {8, length}, [](Range which) { return packed_batch(which, Packing::concatenate); });
    EXPECT_GT(relative_difference(concatenated.loss, expected.loss), 1e-6) << "documents are seen across their ends";
  }
}

// What a model of one packing is given must be of it.
TEST(Packing, BatchesOfTheOtherPackingAreRefused) {
  for (const Packing packing : {Packing::concatenate, Packing::documents}) {
    TinyOptions options;
    options.shape = {8, length, Recompute::none, 100, packing};
    TinyRun<double> run(MPI_COMM_SELF, tiny_config(Head::own), grid_of(Strategy::fsdp), options);
    const Packing other = packing == Packing::documents ? Packing::concatenate : Packing::documents;
    EXPECT_NO_THROW(run.model.forward(run.exec, packed_batch({0, 2}, packing)));
    EXPECT_THROW(run.model.forward(run.exec, packed_batch({0, 2}, other)), Error);
  }
}

}  // namespace
}  // namespace atl
