/// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.hpp"

#include "core/embedding.hpp"
#include "core/gemv.hpp"
#include "core/rms_norm.hpp"
#include "core/swiglu.hpp"
#include "model/rope_frequencies.hpp"

#include <algorithm>

namespace atl {

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace

template <class T>
LlamaDecoder<T>::LlamaDecoder(const LlamaConfig& config, std::int64_t slots, std::int64_t capacity,
                              ShardedParameters<T>& parameters)
    : config_(config), capacity_(capacity), parameters_(parameters), lengths_(size(slots), 0) {
  ATOLL_REQUIRE(slots >= 0 && capacity > 0);
  const std::size_t rows = size(slots), f = size(config.intermediate_size);
  const std::size_t q = size(config.query_size()), kv = size(config.key_value_size());
  context_.config = config;
  context_.attention = {1, 0, size(config.num_attention_heads), size(config.num_key_value_heads),
                        size(config.head_dim)};
  context_.rope = make_rope_table<T>(rope_frequencies(config), size(capacity));
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    caches_.emplace_back(rows, size(capacity), size(config.num_key_value_heads), size(config.head_dim));
  slots_ = allocate<std::int32_t>("atoll::decode_slots", rows);
  positions_ = allocate<std::int32_t>("atoll::decode_positions", rows);
  tokens_ = allocate<std::int32_t>("atoll::decode_tokens", rows);
  x_ = allocate<T>("atoll::decode_stream", rows, size(config.hidden_size));
  normed_ = allocate<T>("atoll::decode_normed", rows, size(config.hidden_size));
  qkv_ = allocate<T>("atoll::decode_qkv", rows, q + 2 * kv);
  attended_ = allocate<T>("atoll::decode_attended", rows, q);
  gate_up_ = allocate<T>("atoll::decode_gate_up", rows, 2 * f);
  activated_ = allocate<T>("atoll::decode_activated", rows, f);
  logits_ = allocate<R>("atoll::decode_logits", rows, size(config.vocab_size));
  reciprocal_ = allocate<R>("atoll::decode_reciprocal", rows);
  workspace_ = allocate<R>(
      "atoll::decode_attention_workspace",
      decode_attention_workspace(rows, size(capacity), size(config.num_attention_heads), size(config.head_dim)));
}

template <class T>
void LlamaDecoder<T>::expect_gathers() {
  std::vector<std::size_t> order{embedding_unit()};
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) order.push_back(block_unit(layer));
  order.push_back(head_unit(config_));
  parameters_.expect_gathers(order);
}

template <class T>
View2<Accumulator<T>> LlamaDecoder<T>::logits(const Exec& exec, const View1<const T>& head_unit, View2<const T> x) {
  const auto head = head_tensors(config_, head_unit);
  const View2<T> normed = row_block(normed_, 0, x.extent(0));
  const View2<R> logits = row_block(logits_, 0, x.extent(0));
  rms_norm<T>(exec, x, head.norm, config_.rms_norm_eps, normed, reciprocal_);
  gemv<T, R>(exec, normed, head.weight, 0, logits);
  return logits;
}

template <class T>
View2<Accumulator<T>> LlamaDecoder<T>::prefill(const Exec& exec,
                                               const std::vector<std::vector<std::int32_t>>& prompts) {
  ATOLL_REQUIRE(prompts.size() <= lengths_.size());
  std::vector<std::int32_t> all;
  std::vector<std::size_t> begins{0};
  std::size_t longest = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ATOLL_REQUIRE(!prompts[i].empty() && prompts[i].size() <= size(capacity_));
    all.insert(all.end(), prompts[i].begin(), prompts[i].end());
    begins.push_back(all.size());
    longest = std::max(longest, prompts[i].size());
    lengths_[i] = static_cast<std::int64_t>(prompts[i].size());
  }
  std::vector<std::int32_t> ascending(longest);
  for (std::size_t t = 0; t < longest; ++t) ascending[t] = static_cast<std::int32_t>(t);
  const std::size_t c = size(config_.hidden_size), vocabulary = size(config_.vocab_size);
  const auto positions = to_device("atoll::prompt_positions", ascending);
  const auto tokens = to_device("atoll::prompt_tokens", all);
  const auto slot = allocate<std::int32_t>("atoll::prompt_slots", longest);
  View2<T> x = allocate<T>("atoll::prompt_stream", all.size(), c);
  const View2<T> y = allocate<T>("atoll::prompt_output", longest, c);
  const BlockActivations<T> saved(config_, longest);
  const BlockScratch<T> scratch(config_, longest);

  expect_gathers();
  const View1<const T> table = parameters_.gather(exec, embedding_unit());
  embedding<T>(exec, matrix(table, 0, vocabulary, c), tokens, x);
  parameters_.release_after_forward(embedding_unit());
  for (std::size_t layer = 0; layer < caches_.size(); ++layer) {
    const std::size_t unit = block_unit(static_cast<std::int64_t>(layer));
    const auto weights = block_tensors(config_, parameters_.gather(exec, unit));
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::size_t n = prompts[i].size();
      context_.attention.length = n;
      const View2<T> stream = row_block(x, begins[i], n), output = row_block(y, 0, n);
      block_forward<T>(exec, context_, weights, stream, saved, scratch, output);
      Kokkos::deep_copy(exec, stream, output);
      fill(exec, slot, static_cast<std::int32_t>(i));
      store_keys_values<T>(exec, part(slot, 0, n), part(positions, 0, n), row_block(saved.qkv, 0, n), caches_[layer]);
    }
    parameters_.release_after_forward(unit);
  }
  const View2<T> last = row_block(x_, 0, prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i)
    Kokkos::deep_copy(exec, row_block(last, i, 1), row_block(x, begins[i + 1] - 1, 1));
  const std::size_t unit = head_unit(config_);
  const View2<R> result = logits(exec, parameters_.gather(exec, unit), last);
  exec.fence();  // what is local here is still read
  parameters_.release_after_forward(unit);
  return result;
}

template <class T>
void LlamaDecoder<T>::copy(const Exec& exec, std::int64_t from, std::int64_t to) {
  for (const auto& cache : caches_) copy_slot(exec, size(from), size(to), size(length(from)), cache);
  lengths_[size(to)] = length(from);
}

template <class T>
View2<Accumulator<T>> LlamaDecoder<T>::step(const Exec& exec, const std::vector<std::int32_t>& slots,
                                            const std::vector<std::int32_t>& tokens) {
  const std::size_t n = slots.size(), c = size(config_.hidden_size);
  ATOLL_REQUIRE(tokens.size() == n && n <= lengths_.size());
  std::vector<std::int32_t> positions(n);
  std::int64_t longest = 1;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t& length = lengths_[size(slots[i])];
    ATOLL_REQUIRE(length < capacity_);
    positions[i] = static_cast<std::int32_t>(length++);
    longest = std::max(longest, length);
  }
  const auto slot = part(slots_, 0, n), position = part(positions_, 0, n), token = part(tokens_, 0, n);
  copy_to_device(slots, slot);
  copy_to_device(positions, position);
  copy_to_device(tokens, token);
  const auto x = row_block(x_, 0, n), normed = row_block(normed_, 0, n), qkv = row_block(qkv_, 0, n);
  const auto attended = row_block(attended_, 0, n), gate_up = row_block(gate_up_, 0, n);
  const auto activated = row_block(activated_, 0, n);
  const double eps = config_.rms_norm_eps;

  expect_gathers();
  const View1<const T> table = parameters_.gather(exec, embedding_unit());
  embedding<T>(exec, matrix(table, 0, size(config_.vocab_size), c), token, x);
  parameters_.release_after_forward(embedding_unit());
  for (std::size_t layer = 0; layer < caches_.size(); ++layer) {
    const std::size_t unit = block_unit(static_cast<std::int64_t>(layer));
    const auto weights = block_tensors(config_, parameters_.gather(exec, unit));
    rms_norm<T>(exec, x, weights.attention_norm, eps, normed, reciprocal_);
    gemv<T>(exec, normed, weights.qkv, 0, qkv);
    rope<T>(exec, position, context_.rope, size(config_.num_attention_heads + config_.num_key_value_heads), qkv);
    store_keys_values<T>(exec, slot, position, qkv, caches_[layer]);
    decode_attention<T>(exec, slot, position, size(longest), qkv, caches_[layer], attended, workspace_);
    gemv<T>(exec, attended, weights.o, 1, x);
    rms_norm<T>(exec, x, weights.mlp_norm, eps, normed, reciprocal_);
    gemv<T>(exec, normed, weights.gate_up, 0, gate_up);
    swiglu<T>(exec, gate_up, activated);
    gemv<T>(exec, activated, weights.down, 1, x);
    parameters_.release_after_forward(unit);
  }
  const std::size_t unit = head_unit(config_);
  const View2<R> result = logits(exec, parameters_.gather(exec, unit), x);
  parameters_.release_after_forward(unit);
  return result;
}

template class LlamaDecoder<float>;
template class LlamaDecoder<double>;
template class LlamaDecoder<bf16>;

}  // namespace atl
