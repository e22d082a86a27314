/// Generation with a cache against full forward passes, against Hugging Face, and on any number of ranks.
/// SPDX-License-Identifier: Apache-2.0
#include "model/generate.hpp"

#include "io/hdf5.hpp"
#include "io/saved_model.hpp"
#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

using Tokens = std::vector<std::int32_t>;

std::string fixture_path() { return std::string(ATOLL_SOURCE_DIR) + "/tests/fixtures/generate.h5"; }

/// A model over all ranks.
template <class T>
struct Model {
  explicit Model(const LlamaConfig& c, AfterForward after = AfterForward::reshard)
      : config(c),
        place(GridCache::get(MPI_COMM_WORLD, ParallelOptions{})),
        parameters(llama_units(config), *place.shard, *place.replica, after) {}
  const Communicator& world() const { return place.communicators.world; }
  GenerateResult generate(const std::vector<Tokens>& prompts, const GenerateOptions& options) {
    return atl::generate<T>(exec, config, parameters, world(), prompts, options);
  }

  Exec exec;
  LlamaConfig config;
  GridWithCommunicators& place;
  ShardedParameters<T> parameters;
};

template <class T>
struct RandomModel : Model<T> {
  explicit RandomModel(Head head, AfterForward after = AfterForward::reshard) : Model<T>(tiny_config(head), after) {
    LlamaConfig wide = this->config;
    wide.initializer_range = 0.5;  // so that logits differ
    initialise(this->exec, wide, 3, this->parameters);
  }
};

Tokens random_tokens(std::uint64_t key, std::size_t n) {
  Tokens tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<std::int32_t>(random_bits(key, i) % 257);
  return tokens;
}

/// Logits of the last token, by a forward pass over all of them.
template <class T>
std::vector<Accumulator<T>> full_logits(Model<T>& model, const Tokens& tokens) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  Llama<T> llama(model.config, {1, length, Recompute::none, 64}, model.parameters);
  const auto all =
      to_host(flat(llama.logits(model.exec, {1, length, tokens, Tokens(tokens.size(), ignored_target), {}})));
  return {all.end() - model.config.vocab_size, all.end()};
}

TEST(Decoder, LogitsAreThoseOfFullForwardPasses) {
  for (const Head head : {Head::tied, Head::own}) {
    RandomModel<double> model(head);
    std::vector<Tokens> texts{random_tokens(1, 5), random_tokens(2, 1), random_tokens(3, 12)};
    LlamaDecoder<double> decoder(model.config, 4, 40, model.parameters);
    View2<double> logits = decoder.prefill(model.exec, texts);
    decoder.copy(model.exec, 1, 3);
    Tokens slots{0, 1, 2};
    for (int step = 0; step < 12; ++step) {
      const auto values = to_host(flat(logits));
      const auto v = static_cast<std::size_t>(model.config.vocab_size);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const auto expected = full_logits(model, texts[static_cast<std::size_t>(slots[i] == 3 ? 1 : slots[i])]);
        for (std::size_t j = 0; j < v; ++j) ASSERT_NEAR(values[i * v + j], expected[j], 1e-12) << step << ", " << i;
      }
      slots = step % 3 == 0 ? Tokens{3, 0, 2} : step % 3 == 1 ? Tokens{2, 0} : Tokens{0};
      // Slot 3 holds text 1's prompt; slot 1 itself no longer takes part.
      Tokens next;
      for (const std::int32_t slot : slots) {
        Tokens& text = texts[static_cast<std::size_t>(slot == 3 ? 1 : slot)];
        text.push_back(static_cast<std::int32_t>(random_bits(9, static_cast<std::uint64_t>(100 * step + slot)) % 257));
        next.push_back(text.back());
      }
      logits = decoder.step(model.exec, slots, next);
    }
  }
}

// Rounding to bf16 at every layer, in another order of sums: a few 2^-8 of the largest logit.
TEST(Decoder, LogitsInBf16AreCloseToThoseOfFullForwardPasses) {
  RandomModel<bf16> model(Head::own, AfterForward::keep);
  Tokens text = random_tokens(3, 9);
  LlamaDecoder<bf16> decoder(model.config, 1, 40, model.parameters);
  View2<float> logits = decoder.prefill(model.exec, {text});
  for (int step = 0; step < 10; ++step) {
    const auto values = to_host(flat(logits)), expected = full_logits(model, text);
    float largest = 0;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t j = 0; j < expected.size(); ++j) ASSERT_NEAR(values[j], expected[j], 0x1p-5 * largest) << step;
    text.push_back(step);
    logits = decoder.step(model.exec, {0}, {step});
  }
}

TEST(Generate, GreedyIsThatOfFullForwardPasses) {
  for (const Head head : {Head::tied, Head::own}) {
    RandomModel<double> model(head);
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 30;
    const std::vector<Tokens> prompts{random_tokens(4, 6), random_tokens(5, 1), random_tokens(6, 9)};
    const GenerateResult result = model.generate(prompts, options);
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      Tokens text = prompts[p];
      for (const std::int32_t token : result.sequences[p].tokens) {
        const auto logits = full_logits(model, text);
        ASSERT_EQ(token, greedy_token<double>(logits)) << p << ", " << text.size();
        text.push_back(token);
      }
      EXPECT_EQ(text.size(), prompts[p].size() + 30);
    }
  }
}

template <class T>
void expect_hugging_face_texts() {
  const Hdf5File file = Hdf5File::open(fixture_path());
  const auto read = [&](const std::string& name) {
    Tokens tokens(file.size(name));
    file.read_flat(name, 0, tokens);
    return tokens;
  };
  const std::vector<Tokens> prompts{read("prompt/0"), read("prompt/1"), read("prompt/2")};
  Model<T> model(read_model_info(fixture_path()).config);
  load_model(fixture_path(), model.parameters);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 60;
  const GenerateResult all = model.generate(prompts, options);
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const Tokens expected = read("greedy/" + std::to_string(p));
    EXPECT_EQ(all.sequences[p].tokens, expected) << p;
    EXPECT_FALSE(all.sequences[p].stopped);
    // The same up to the first of a stop token.
    options.stop_tokens = {-7, expected[20]};
    const Generated stopped = model.generate({prompts[p]}, options).sequences.at(0);
    const auto end = std::find(expected.begin(), expected.end(), expected[20]) + 1;
    EXPECT_EQ(stopped.tokens, Tokens(expected.begin(), end)) << p;
    EXPECT_TRUE(stopped.stopped);
    options.stop_tokens.clear();
  }
}

// The two best logits of the fixture differ by 1e-3 or more everywhere, far above rounding in fp32.
TEST(Generate, GreedyIsThatOfHuggingFace) {
  expect_hugging_face_texts<double>();
  expect_hugging_face_texts<float>();
}

// Also in fp32 to the bit: what a sample says does not depend on the samples and prompts beside it, on who computes it,
// or on whether weights stay gathered.
TEST(Generate, SamplesDoNotDependOnTheirNeighbours) {
  RandomModel<float> model(Head::own), keeping(Head::own, AfterForward::keep);
  GenerateOptions options;
  options.samples = 3;
  options.max_tokens = 20;
  options.sampling.temperature = 1.5;
  options.sampling.top_k = 50;
  options.sampling.top_p = 0.95;
  options.stop_tokens = {3, 7, 11, 13, 17, 19, 23};  // sequences end at different steps
  const std::vector<Tokens> prompts{random_tokens(4, 6), random_tokens(5, 2)};
  const GenerateResult all = model.generate(prompts, options), again = keeping.generate(prompts, options);
  const GenerateResult second = model.generate({prompts[1]}, options);
  options.samples = 1;
  const GenerateResult one = model.generate({prompts[0]}, options);
  EXPECT_EQ(one.sequences[0].tokens, all.sequences[0].tokens);
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(second.sequences[s].tokens, all.sequences[3 + s].tokens);
  for (std::size_t q = 0; q < 6; ++q) EXPECT_EQ(again.sequences[q].tokens, all.sequences[q].tokens);
  EXPECT_NE(all.sequences[0].tokens, all.sequences[1].tokens);
  options.sampling.seed = 2;
  EXPECT_NE(model.generate({prompts[0]}, options).sequences[0].tokens, one.sequences[0].tokens);

  // One rank alone says the same.
  TinyRun<float> alone(MPI_COMM_SELF, model.config, grid_of(Strategy::fsdp));
  LlamaConfig wide = model.config;
  wide.initializer_range = 0.5;
  initialise(alone.exec, wide, 3, alone.parameters);
  options.sampling.seed = 1;
  options.samples = 3;
  const GenerateResult self =
      generate<float>(alone.exec, model.config, alone.parameters, alone.communicators.world, prompts, options);
  for (std::size_t q = 0; q < 6; ++q) EXPECT_EQ(self.sequences[q].tokens, all.sequences[q].tokens) << q;
}

}  // namespace
}  // namespace atl
