/// SPDX-License-Identifier: Apache-2.0
#include "core/decode_attention.hpp"

#include "core/attention.hpp"
#include "tests/core/host_values.hpp"

#include <numeric>

namespace atl::test {
namespace {

// B sequences of T positions; lengths around the edges of parts of 256 positions, head sizes that are no vector.
constexpr AttentionShape shapes[] = {{1, 1, 1, 1, 8},    {3, 23, 4, 2, 12},  {2, 256, 2, 1, 8},
                                     {2, 257, 2, 2, 64}, {1, 600, 6, 2, 40}, {1, 9, 8, 1, 128}};

/// Every position of every sequence, decoded; against attention over whole sequences. Positions of one sequence are the
/// rows of one call: each sees what is stored up to its own position only.
template <class T>
double decoding_error(const AttentionShape& n) {
  const std::size_t rows = n.sequences * n.length, width = n.query_heads * n.head_size;
  const auto qkv = device(random_values<T>(1, rows * n.width()), rows, n.width());
  const auto expected = allocate<T>("atoll::test", rows, width);
  attention<T>(Exec(), n, qkv, expected, allocate<Accumulator<T>>("atoll::test", rows * n.query_heads));

  const std::size_t slots = n.sequences + 2, capacity = n.length + 3;
  KeyValueCache<T> cache(slots, capacity, n.key_value_heads, n.head_size);
  fill(Exec(), cache.keys, nan<T>);  // where nothing may be read
  fill(Exec(), cache.values, nan<T>);
  std::vector<std::int32_t> slot(rows), position(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    slot[i] = static_cast<std::int32_t>(slots - 1 - i / n.length);
    position[i] = static_cast<std::int32_t>(i % n.length);
  }
  store_keys_values<T>(Exec(), device(slot), device(position), qkv, cache);
  const auto out = device(std::vector<T>(rows * width, nan<T>), rows, width);
  const auto workspace = device(std::vector<Accumulator<T>>(
      decode_attention_workspace(rows, n.length, n.query_heads, n.head_size), nan<Accumulator<T>>));
  decode_attention<T>(Exec(), device(slot), device(position), n.length, qkv, cache, out, workspace);
  double error = relative_error(host(out), host(expected));

  // A copied slot gives the same bits, alone and with a smaller `longest`.
  copy_slot(Exec(), slots - 1, 0, n.length, cache);
  const std::size_t last = n.length - 1;
  const auto one = device(std::vector<T>(width, nan<T>), 1, width);
  decode_attention<T>(Exec(), device(std::vector<std::int32_t>{0}), device(std::vector<std::int32_t>{position[last]}),
                      n.length, row_block(qkv, last, 1), cache, one, workspace);
  const auto alone = host(one), all = host(out);
  for (std::size_t i = 0; i < width; ++i) EXPECT_EQ(alone[i], all[last * width + i]) << i;
  return error;
}

TEST(DecodeAttention, MatchesAttentionOverWholeSequences) {
  for (const auto& shape : shapes) {
    EXPECT_LT(decoding_error<double>(shape), 1e-13) << shape.length;
    // Scores are sums of D products, outputs averages over T values: a few ulp of the largest one each.
    EXPECT_LT(decoding_error<float>(shape), 3e-6) << shape.length;
  }
}

}  // namespace
}  // namespace atl::test
