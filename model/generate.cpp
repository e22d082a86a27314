/// SPDX-License-Identifier: Apache-2.0
#include "model/generate.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

namespace atl {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// This rank's sequences: local index i is sequence rank + i ranks, and slot i.
struct Mine {
  std::size_t rank, ranks, count;
  Mine(const Communicator& world, std::size_t sequences)
      : rank(static_cast<std::size_t>(world.rank())),
        ranks(static_cast<std::size_t>(world.size())),
        count((sequences + ranks - 1 - rank) / ranks) {}
  std::size_t sequence(std::size_t local) const { return rank + local * ranks; }
};

}  // namespace

template <class T>
GenerateResult generate(const Exec& exec, const LlamaConfig& config, ShardedParameters<T>& parameters,
                        const Communicator& world, const std::vector<std::vector<std::int32_t>>& prompts,
                        const GenerateOptions& options,
                        const std::function<void(std::size_t, std::int32_t, bool)>& on_token) {
  using R = Accumulator<T>;
  ATOLL_REQUIRE(options.samples > 0 && options.max_tokens > 0);
  const std::size_t samples = static_cast<std::size_t>(options.samples), sequences = prompts.size() * samples;
  const Mine mine(world, sequences);
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const std::int64_t capacity = static_cast<std::int64_t>(longest) + options.max_tokens;
  std::optional<LlamaDecoder<T>> decoder;
  collectively(world, [&] { decoder.emplace(config, static_cast<std::int64_t>(mine.count), capacity, parameters); });

  GenerateResult result;
  result.sequences.resize(sequences);
  std::vector<std::int32_t> token(mine.count, -1);  // the newest of each of my sequences; -1 once it has ended
  // Draws the next token of my sequences `rows`, whose logits are given in this order.
  const auto draw = [&](const View2<R>& logits, const std::vector<std::int32_t>& rows) {
    exec.fence();
    const std::vector<R> values = to_host(flat(logits));
    const std::size_t v = static_cast<std::size_t>(config.vocab_size);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t local = static_cast<std::size_t>(rows[i]), q = mine.sequence(local);
      const std::size_t position = prompts[q / samples].size() + result.sequences[q].tokens.size();
      token[local] = sample_token<R>(std::span<const R>(values).subspan(i * v, v), options.sampling,
                                     static_cast<std::int64_t>(q % samples), static_cast<std::int64_t>(position));
    }
  };
  // Every rank learns all new tokens; true while there is a sequence that goes on.
  const std::size_t most = (sequences + mine.ranks - 1) / mine.ranks;
  const auto exchange = [&] {
    std::vector<double> sent(most, -1.0);
    std::copy(token.begin(), token.end(), sent.begin());
    const std::vector<double> all = world.all_gather(sent);
    bool goes_on = false;
    for (std::size_t q = 0; q < sequences; ++q) {
      const auto next = static_cast<std::int32_t>(all[q % mine.ranks * most + q / mine.ranks]);
      if (next < 0) continue;
      Generated& sequence = result.sequences[q];
      sequence.tokens.push_back(next);
      const auto& stops = options.stop_tokens;
      sequence.stopped = std::find(stops.begin(), stops.end(), next) != stops.end();
      const bool last = sequence.stopped || static_cast<std::int64_t>(sequence.tokens.size()) == options.max_tokens;
      if (last && q % mine.ranks == mine.rank) token[q / mine.ranks] = -1;
      goes_on = goes_on || !last;
      if (on_token) on_token(q, next, last);
    }
    return goes_on;
  };

  const double start = now();
  // A prompt that several of my sequences share is computed once, into the first slots; then moved to where it belongs,
  // from the back, so that nothing is overwritten before it is copied.
  std::vector<std::vector<std::int32_t>> distinct;
  std::vector<std::int32_t> source(mine.count);
  for (std::size_t i = 0; i < mine.count; ++i) {
    const std::size_t prompt = mine.sequence(i) / samples;
    if (i == 0 || prompt != mine.sequence(i - 1) / samples) distinct.push_back(prompts[prompt]);
    source[i] = static_cast<std::int32_t>(distinct.size()) - 1;
  }
  const View2<R> first = decoder->prefill(exec, distinct);
  for (std::size_t i = mine.count; i-- > 0;)
    if (source[i] != static_cast<std::int32_t>(i)) decoder->copy(exec, source[i], static_cast<std::int64_t>(i));
  collectively(world, [&] {
    for (std::size_t i = 0; i < mine.count; ++i)
      draw(row_block(first, static_cast<std::size_t>(source[i]), 1), {static_cast<std::int32_t>(i)});
  });
  bool goes_on = exchange();
  result.prefill_seconds = now() - start;
  while (goes_on) {
    std::vector<std::int32_t> rows, tokens;
    for (std::size_t i = 0; i < mine.count; ++i)
      if (token[i] >= 0) {
        rows.push_back(static_cast<std::int32_t>(i));
        tokens.push_back(token[i]);
      }
    const View2<R> logits = decoder->step(exec, rows, tokens);
    collectively(world, [&] { draw(logits, rows); });
    goes_on = exchange();
    ++result.steps;
  }
  result.decode_seconds = now() - start - result.prefill_seconds;
  return result;
}

#define ATOLL_INSTANTIATE(T)                                                                                       \
  template GenerateResult generate<T>(const Exec&, const LlamaConfig&, ShardedParameters<T>&, const Communicator&, \
                                      const std::vector<std::vector<std::int32_t>>&, const GenerateOptions&,       \
                                      const std::function<void(std::size_t, std::int32_t, bool)>&);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
