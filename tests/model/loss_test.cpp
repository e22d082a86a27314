/// The loss in chunks, and in bf16 a chunk's logits in parts. SPDX-License-Identifier: Apache-2.0
#include "model/loss.hpp"

#include "tests/core/host_values.hpp"

namespace atl::test {
namespace {

constexpr std::size_t rows = 700, hidden = 24, vocabulary = 50;

struct Found {
  double loss = 0, loss_alone = 0;
  std::vector<bf16> dx;
  std::vector<float> weight, norm;
};

Found with_chunk(std::size_t chunk) {
  LlamaConfig config;
  config.hidden_size = hidden;
  config.vocab_size = vocabulary;
  std::vector<std::int32_t> targets(rows);
  for (std::size_t n = 0; n < rows; ++n) targets[n] = n % 11 == 3 ? -1 : static_cast<std::int32_t>(n * n % vocabulary);
  const auto x = device(random_values<bf16>(1, rows * hidden), rows, hidden);
  const HeadTensors<const bf16> head{device(random_values<bf16>(2, vocabulary * hidden), vocabulary, hidden),
                                     device(random_values<bf16>(3, hidden))};
  const auto dx = device(std::vector<bf16>(rows * hidden, bf16(nan<float>)), rows, hidden);
  const HeadTensors<float> gradients{device(std::vector<float>(vocabulary * hidden, nan<float>), vocabulary, hidden),
                                     device(std::vector<float>(hidden, nan<float>))};
  Loss<bf16> loss(config, rows, chunk);
  Found found;
  found.loss = loss.forward_backward(Exec(), head, x, device(targets), 1.0 / rows, dx, gradients);
  found.loss_alone = loss.forward(Exec(), head, x, device(targets));
  found.dx = host(dx);
  found.weight = host(gradients.weight);
  found.norm = host(gradients.norm);
  return found;
}

// A row's logits come from the same factors whatever the rows beside it, in fp32: a library may add them in another
// order (1e-6), which may round the gradient of a logit to the other neighbour in bf16 (2^-8 of it).
TEST(Loss, PartsOfChunksChangeNothing) {
  const std::size_t chunks[] = {600, 700, 512, 77};
  ASSERT_EQ(Loss<bf16>::logit_rows(600), 150u);
  ASSERT_EQ(Loss<bf16>::logit_rows(512), 128u);
  ASSERT_EQ(Loss<bf16>::logit_rows(77), 77u);
  ASSERT_EQ(Loss<float>::logit_rows(600), 600u);
  const Found whole = with_chunk(128);  // one part a chunk
  for (const std::size_t chunk : chunks) {
    SCOPED_TRACE(chunk);
    const Found found = with_chunk(chunk);
    EXPECT_NEAR(found.loss / whole.loss, 1, 1e-6);
    EXPECT_NEAR(found.loss_alone / whole.loss, 1, 1e-6);
    EXPECT_LE(relative_error(found.dx, whole.dx), 1.0 / 256);
    EXPECT_LE(relative_error(found.weight, whole.weight), 1.0 / 256);
    EXPECT_LE(relative_error(found.norm, whole.norm), 1.0 / 256);
  }
}

}  // namespace
}  // namespace atl::test
