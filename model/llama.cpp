/// SPDX-License-Identifier: Apache-2.0
#include "model/llama.hpp"

#include "model/rope_frequencies.hpp"

namespace atl {

namespace {

std::size_t rows_of(const LlamaShape& shape) {
  return static_cast<std::size_t>(shape.micro_batch) * static_cast<std::size_t>(shape.sequence_length);
}

}  // namespace

template <class T>
Llama<T>::Llama(const LlamaConfig& config, const LlamaShape& shape, ShardedParameters<T>& parameters)
    : config_(config),
      shape_(shape),
      parameters_(parameters),
      layers_(static_cast<std::size_t>(config.num_hidden_layers)),
      token_index_(rows_of(shape)),
      workspace_(config, rows_of(shape)),
      loss_(config, rows_of(shape), static_cast<std::size_t>(shape.loss_chunk)) {
  const std::size_t rows = rows_of(shape), c = static_cast<std::size_t>(config.hidden_size);
  context_.config = config;
  context_.attention = {static_cast<std::size_t>(shape.micro_batch), static_cast<std::size_t>(shape.sequence_length),
                        static_cast<std::size_t>(config.num_attention_heads),
                        static_cast<std::size_t>(config.num_key_value_heads),
                        static_cast<std::size_t>(config.head_dim)};
  context_.rope = make_rope_table<T>(rope_frequencies(config), static_cast<std::size_t>(shape.sequence_length));
  tokens_ = allocate<std::int32_t>("atoll::tokens", rows);
  targets_ = allocate<std::int32_t>("atoll::targets", rows);
  if (shape.packing == Packing::documents) document_starts_ = allocate<std::int32_t>("atoll::document_starts", rows);
  for (std::size_t i = 0; i <= layers_; ++i) streams_.push_back(allocate<T>("atoll::residual_stream", rows, c));
  const std::size_t kept = shape.recompute == Recompute::none ? layers_ : 1;
  for (std::size_t i = 0; i < kept; ++i) saved_.emplace_back(config, rows);
  gradient_ = allocate<T>("atoll::residual_gradient", rows, c);
}

template <class T>
View2<T> Llama<T>::stream(std::size_t layer) const {
  return row_block(streams_[layer], 0, context_.rows());
}

template <class T>
void Llama<T>::load(const Batch& batch) {
  ATOLL_REQUIRE(batch.length == shape_.sequence_length && batch.sequences <= shape_.micro_batch && batch.sequences > 0);
  const std::size_t n = batch.tokens.size();
  context_.attention.sequences = static_cast<std::size_t>(batch.sequences);
  copy_to_device(batch.tokens, part(tokens_, 0, n));
  copy_to_device(batch.targets, part(targets_, 0, n));
  ATOLL_REQUIRE(batch.document_starts.size() == (shape_.packing == Packing::documents ? n : 0));
  if (shape_.packing == Packing::concatenate) return;
  copy_to_device(batch.document_starts, part(document_starts_, 0, n));
  context_.first_keys = part(document_starts_, 0, n);
}

template <class T>
std::vector<std::size_t> Llama<T>::gather_order(Keep keep) const {
  std::vector<std::size_t> order{embedding_unit()};
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) order.push_back(block_unit(layer));
  order.push_back(head_unit(config_));
  if (keep == Keep::for_backward)
    for (std::int64_t layer = config_.num_hidden_layers; layer-- > 0;) order.push_back(block_unit(layer));
  return order;
}

template <class T>
View2<T> Llama<T>::forward_blocks(const Exec& exec, const Batch& batch, Keep keep) {
  load(batch);
  const auto vocabulary = static_cast<std::size_t>(config_.vocab_size),
             c = static_cast<std::size_t>(config_.hidden_size);
  const View1<const T> table = parameters_.gather(exec, embedding_unit());
  embedding<T>(exec, matrix(table, 0, vocabulary, c), part(tokens_, 0, context_.rows()), stream(0));
  parameters_.release(embedding_unit());
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    const std::size_t unit = block_unit(static_cast<std::int64_t>(layer));
    const auto weights = block_tensors(config_, parameters_.gather(exec, unit));
    block_forward<T>(exec, context_, weights, stream(layer), activations(layer), workspace_, stream(layer + 1));
    if (keep == Keep::for_backward)
      parameters_.release_after_forward(unit);
    else
      parameters_.release(unit);
  }
  return stream(layers_);
}

template <class T>
double Llama<T>::forward(const Exec& exec, const Batch& batch) {
  parameters_.expect_gathers(gather_order(Keep::nothing));
  const View2<T> last = forward_blocks(exec, batch, Keep::nothing);
  const std::size_t unit = head_unit(config_);
  const auto head = head_tensors(config_, parameters_.gather(exec, unit));
  const double loss = loss_.forward(exec, head, last, part(targets_, 0, context_.rows()));
  parameters_.release(unit);
  return loss;
}

template <class T>
View2<Accumulator<T>> Llama<T>::logits(const Exec& exec, const Batch& batch) {
  parameters_.expect_gathers(gather_order(Keep::nothing));
  const View2<T> last = forward_blocks(exec, batch, Keep::nothing);
  const std::size_t unit = head_unit(config_);
  const View2<R> logits = loss_.logits(exec, head_tensors(config_, parameters_.gather(exec, unit)), last);
  exec.fence();
  parameters_.release(unit);
  return logits;
}

template <class T>
double Llama<T>::forward_backward(const Exec& exec, const Batch& batch, double scale, Follows follows) {
  std::vector<std::size_t> order = gather_order(Keep::for_backward);
  if (follows == Follows::micro_batch) order.push_back(embedding_unit());
  parameters_.expect_gathers(order);
  const View2<T> last = forward_blocks(exec, batch, Keep::for_backward);
  const View2<T> gradient = row_block(gradient_, 0, context_.rows());

  const std::size_t head = head_unit(config_);
  const View1<R> head_gradient = parameters_.gradient(exec, head);
  const double loss =
      loss_.forward_backward(exec, head_tensors(config_, parameters_.gather(exec, head)), last,
                             part(targets_, 0, context_.rows()), scale, gradient, head_tensors(config_, head_gradient));
  parameters_.release(head);
  if (!config_.tie_word_embeddings) parameters_.reduce(exec, head);

  for (std::size_t layer = layers_; layer-- > 0;) {
    const std::size_t unit = block_unit(static_cast<std::int64_t>(layer));
    const auto weights = block_tensors(config_, parameters_.gather(exec, unit));
    if (shape_.recompute == Recompute::block)
      block_forward<T>(exec, context_, weights, stream(layer), activations(layer), workspace_, stream(layer + 1));
    block_backward<T>(exec, context_, weights, stream(layer), activations(layer), workspace_, gradient,
                      block_tensors(config_, parameters_.gradient(exec, unit)));
    parameters_.release(unit);
    parameters_.reduce(exec, unit);
  }

  // A tied table already holds the head's gradient; otherwise it starts at zero. Its weights are not needed.
  const auto vocabulary = static_cast<std::size_t>(config_.vocab_size),
             c = static_cast<std::size_t>(config_.hidden_size);
  const View1<R> table_gradient = parameters_.gradient(exec, embedding_unit());
  if (!config_.tie_word_embeddings) fill(exec, table_gradient, R(0));
  token_index_.assign(batch.tokens, vocabulary);
  embedding_backward<T>(exec, token_index_, gradient, matrix(table_gradient, 0, vocabulary, c));
  parameters_.reduce(exec, embedding_unit());
  return loss;
}

template class Llama<float>;
template class Llama<double>;
template class Llama<bf16>;

}  // namespace atl
