/// A whole tiny Llama against Hugging Face's, and against itself. SPDX-License-Identifier: Apache-2.0
///
/// The fixtures, made by tests/fixtures/make_llama.py, have grouped-query attention, llama3 RoPE scaling with all three
/// bands, ignored targets, and a tied head or an untied one with its own head_dim; the one of make_packing.py has
/// documents packed into its sequences. On several ranks each has a share of the sequences.
#include "model/llama.hpp"

#include "io/hdf5.hpp"
#include "tests/model/tiny_run.hpp"

#include <map>

namespace atl {
namespace {

struct Fixture {
  explicit Fixture(const std::string& name)
      : file(Hdf5File::open(std::string(ATOLL_SOURCE_DIR) + "/tests/fixtures/" + name)),
        config(parse_hugging_face_config(file.string_attribute("config"), name)),
        tokens(read<std::int32_t>("tokens")),
        targets(read<std::int32_t>("targets")) {
    complete_and_check(config);
    const auto shape = file.shape("tokens");
    sequences = shape[0];
    length = shape[1];
    if (file.has_dataset("document_starts")) document_starts = read<std::int32_t>("document_starts");
    for (const auto target : targets) counted += target != ignored_target;
  }

  template <class R>
  std::vector<R> read(const std::string& name) const {
    std::vector<R> values(file.size(name));
    file.read_flat(name, 0, values);
    return values;
  }
  /// All units, from data sets named prefix + Hugging Face name.
  template <class R>
  std::vector<std::vector<R>> units(const std::string& prefix) const {
    std::vector<std::vector<R>> all;
    for (const UnitSpec& unit : llama_units(config)) {
      all.emplace_back();
      for (const TensorSpec& tensor : unit.tensors) {
        const std::vector<R> values = read<R>(prefix + tensor.name);
        EXPECT_EQ(values.size(), tensor.size()) << tensor.name;
        all.back().insert(all.back().end(), values.begin(), values.end());
      }
    }
    return all;
  }
  /// Some sequences, each with `padding` more tokens whose targets are ignored.
  Batch batch(Range which, std::size_t padding = 0) const {
    Batch part;
    part.sequences = static_cast<std::int64_t>(which.size());
    part.length = static_cast<std::int64_t>(length + padding);
    for (std::size_t s = which.begin; s < which.end; ++s)
      for (std::size_t t = 0; t < length + padding; ++t) {
        part.tokens.push_back(t < length ? tokens[s * length + t] : static_cast<std::int32_t>(t % 5));
        part.targets.push_back(t < length ? targets[s * length + t] : ignored_target);
        if (!document_starts.empty())
          part.document_starts.push_back(t < length ? document_starts[s * length + t]
                                                    : static_cast<std::int32_t>(length));
      }
    return part;
  }

  Hdf5File file;
  LlamaConfig config;
  std::vector<std::int32_t> tokens, targets, document_starts;
  std::size_t sequences = 0, length = 0;
  std::int64_t counted = 0;
};

LlamaShape shape_of(const Fixture& fixture, Recompute recompute = Recompute::none, std::int64_t chunk = 1024,
                    std::size_t padding = 0) {
  return {static_cast<std::int64_t>(fixture.sequences), static_cast<std::int64_t>(fixture.length + padding), recompute,
          chunk, fixture.document_starts.empty() ? Packing::concatenate : Packing::documents};
}

/// The fixture's model on all ranks, after forward and backward of this rank's sequences.
template <class T>
struct Trained {
  Trained(const Fixture& fixture, const LlamaShape& shape)
      : run(MPI_COMM_WORLD, fixture.config, grid_of(Strategy::fsdp), options_with(shape)),
        mine(share({0, fixture.sequences}, run.grid.world_size(), run.grid.rank())) {
    const auto weights = fixture.units<Accumulator<T>>("");
    run.set(&ShardedUnit<T>::master, [&](std::size_t u, std::size_t i) { return weights[u][i]; });
    const std::size_t padding = static_cast<std::size_t>(shape.sequence_length) - fixture.length;
    const Batch batch = fixture.batch(mine, padding);
    logits = to_host(flat(run.model.logits(run.exec, batch)));
    const double scale = 1.0 / static_cast<double>(fixture.counted);
    const double forward = run.model.forward(run.exec, batch);
    const double both = run.model.forward_backward(run.exec, batch, scale);
    run.parameters.finish_gradients(run.exec);
    EXPECT_EQ(forward, both);
    loss = run.communicators.world.sum(both) * scale;
    gradients = run.gradients();
  }
  static TinyOptions options_with(const LlamaShape& shape) {
    TinyOptions options;
    options.shape = shape;
    return options;
  }

  TinyRun<T> run;
  Range mine;
  std::vector<Accumulator<T>> logits;  ///< of this rank's sequences
  double loss = 0;                     ///< mean over all counted targets
  FullUnits<T> gradients;
};

template <class T>
void expect_hugging_face_values(const std::string& name, double tolerance, double loss_tolerance) {
  SCOPED_TRACE(name);
  const Fixture fixture(name);
  const Trained<T> trained(fixture, shape_of(fixture));

  const std::vector<double> logits = fixture.read<double>("logits");
  const std::size_t begin = trained.mine.begin * fixture.length * static_cast<std::size_t>(fixture.config.vocab_size);
  ASSERT_LE(begin + trained.logits.size(), logits.size());
  double largest = 0, worst = 0;
  for (const double value : logits) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < trained.logits.size(); ++i) {
    const double error = std::abs(static_cast<double>(trained.logits[i]) - logits[begin + i]);
    if (!(error <= worst)) worst = error;
  }
  EXPECT_LE(worst / largest, tolerance) << "logits";

  const double loss = fixture.read<double>("loss").at(0);
  EXPECT_LE(relative_difference(trained.loss, loss), loss_tolerance);
  expect_close(fixture.config, trained.gradients, fixture.units<Accumulator<T>>("grad/"), tolerance, "gradient");
}

TEST(Llama, MatchesHuggingFaceInDoublePrecision) {
  expect_hugging_face_values<double>("llama_tied.h5", 1e-11, 1e-11);
  expect_hugging_face_values<double>("llama_untied.h5", 1e-11, 1e-11);
  expect_hugging_face_values<double>("llama_packed.h5", 1e-11, 1e-11);
}

TEST(Llama, MatchesHuggingFaceInSinglePrecision) {
  expect_hugging_face_values<float>("llama_tied.h5", 1e-5, 1e-5);
  expect_hugging_face_values<float>("llama_untied.h5", 1e-5, 1e-5);
  expect_hugging_face_values<float>("llama_packed.h5", 1e-5, 1e-5);
}

// Weights and every activation are rounded to bf16, by up to 2^-8 = 0.004 of their size; some 20 roundings follow one
// another in two layers, and the weights of these models make scores large. Relative to the largest element of a tensor
// PyTorch's own bf16 model is off by up to 0.057 in the logits, 0.077 in the gradients and 0.001 in the loss; atoll by
// 0.054 and 0.083.
TEST(Llama, IsNearHuggingFaceInBf16) {
  expect_hugging_face_values<bf16>("llama_tied.h5", 0.1, 0.003);
  expect_hugging_face_values<bf16>("llama_untied.h5", 0.1, 0.003);
  expect_hugging_face_values<bf16>("llama_packed.h5", 0.1, 0.003);
}

template <class T>
void expect_recomputation_changes_no_bit(const std::string& name) {
  const Fixture fixture(name);
  const Trained<T> stored(fixture, shape_of(fixture)), again(fixture, shape_of(fixture, Recompute::block));
  EXPECT_EQ(again.loss, stored.loss);
  EXPECT_TRUE(same_bits(again.gradients, stored.gradients)) << name;
}

TEST(Llama, RecomputationChangesNoBit) {
  expect_recomputation_changes_no_bit<float>("llama_tied.h5");
  expect_recomputation_changes_no_bit<double>("llama_untied.h5");
  expect_recomputation_changes_no_bit<bf16>("llama_tied.h5");
  expect_recomputation_changes_no_bit<bf16>("llama_untied.h5");
  expect_recomputation_changes_no_bit<float>("llama_packed.h5");
  expect_recomputation_changes_no_bit<double>("llama_packed.h5");
  expect_recomputation_changes_no_bit<bf16>("llama_packed.h5");
}

TEST(Llama, ChunksOfTheLossChangeNothing) {
  for (const char* name : {"llama_tied.h5", "llama_untied.h5"}) {
    const Fixture fixture(name);
    const Trained<double> whole(fixture, shape_of(fixture, Recompute::none, 1000));
    for (const std::int64_t chunk : {1, 7, 23}) {
      const Trained<double> chunks(fixture, shape_of(fixture, Recompute::none, chunk));
      EXPECT_LE(relative_difference(chunks.loss, whole.loss), 1e-12) << chunk;
      expect_close(fixture.config, chunks.gradients, whole.gradients, 1e-12, "gradient");
    }
  }
}

// Tokens behind the end of every sequence, whose targets are ignored: nothing before them may notice.
TEST(Llama, TrailingPaddingChangesNothing) {
  constexpr std::size_t padding = 5;
  for (const char* name : {"llama_tied.h5", "llama_untied.h5", "llama_packed.h5"}) {
    const Fixture fixture(name);
    const Trained<double> plain(fixture, shape_of(fixture));
    const Trained<double> padded(fixture, shape_of(fixture, Recompute::none, 1024, padding));
    EXPECT_LE(relative_difference(padded.loss, plain.loss), 1e-12);
    expect_close(fixture.config, padded.gradients, plain.gradients, 1e-12, "gradient");
    const std::size_t row = fixture.length * static_cast<std::size_t>(fixture.config.vocab_size);
    const std::size_t padded_row = row + padding * static_cast<std::size_t>(fixture.config.vocab_size);
    for (std::size_t s = 0; s < plain.mine.size(); ++s)
      for (std::size_t i = 0; i < row; ++i)
        ASSERT_NEAR(padded.logits[s * padded_row + i], plain.logits[s * row + i], 1e-12) << s << ", " << i;
  }
}

// A rank that has nothing to do takes part with a batch of ignored targets: no loss, and no gradient at all.
TEST(Llama, IgnoredTargetsGiveNoGradient) {
  const LlamaConfig config = tiny_config(Head::own);
  TinyRun<float> run(MPI_COMM_WORLD, config, grid_of(Strategy::fsdp));
  EXPECT_EQ(run.model.forward_backward(run.exec, run.batch({0, 0}), 1.0), 0.0);
  run.parameters.finish_gradients(run.exec);
  for (const auto& unit : run.gradients())
    for (const float value : unit) ASSERT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace atl
