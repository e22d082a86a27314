/// The kernels for tensor cores, run on the host thread by thread. SPDX-License-Identifier: Apache-2.0
#include "core/attention_tensor_cores.hpp"

#include "tests/core/attention_cases.hpp"
#include "tests/core/emulated_block.hpp"

namespace atl::test {
namespace {

using namespace tensor_cores;

/// An array between guards that nothing may write, NaN where it is not given.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t n) : Guarded(std::vector<T>(n, T(nan<float>))) {}
  explicit Guarded(const std::vector<T>& values) : all_(values.size() + 3 * guard, T(nan<float>)) {
    std::copy(values.begin(), values.end(), data());
    before_ = all_;
  }
  T* data() {  // aligned as arrays of devices are
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(all_.data()) / sizeof(T) % guard;
    return all_.data() + 2 * guard - beyond;
  }
  std::vector<T> values(std::size_t n) { return std::vector<T>(data(), data() + n); }
  bool guards_hold(std::size_t n) {
    const auto same = [&](const T* from, const T* to) {
      return std::memcmp(from, before_.data() + (from - all_.data()),
                         static_cast<std::size_t>(to - from) * sizeof(T)) == 0;
    };
    return same(all_.data(), data()) && same(data() + n, all_.data() + all_.size());
  }

 private:
  static constexpr std::size_t guard = 64;
  std::vector<T> all_, before_;
};

template <class Kernel>
void run(const Kernel& kernel, std::size_t blocks, Copies copies) {
  EmulatedBlock block(Kernel::shared_bytes, copies);
  for (std::size_t b = 0; b < blocks; ++b)
    block.run([&](EmulatedThread& thread) { kernel(thread, static_cast<int>(b)); });
}

Attended<bf16> emulated_forward(const Shape& n, const std::vector<bf16>& qkv, const FirstKeys& first_keys,
                                Copies copies) {
  Guarded<bf16> in(qkv), out(rows(n) * out_width(n));
  Guarded<float> lse(rows(n) * n.query_heads);
  const Dimensions dimensions(n, block_rows, first_keys.empty() ? nullptr : first_keys.data());
  with_columns(n.head_size, [&](auto columns) {
    using Kernel = Forward<columns.value>;
    run(Kernel{dimensions, in.data(), out.data(), lse.data()}, Kernel::blocks(dimensions, n.sequences), copies);
  });
  EXPECT_TRUE(out.guards_hold(rows(n) * out_width(n)) && lse.guards_hold(rows(n) * n.query_heads)) << text(n);
  return {out.values(rows(n) * out_width(n)), lse.values(rows(n) * n.query_heads)};
}

/// As attention_backward computes it.
std::vector<float> delta_of(const Shape& n, const std::vector<bf16>& out, const std::vector<bf16>& dout) {
  std::vector<float> delta(rows(n) * n.query_heads, 0.0f);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / out_width(n), head = i % out_width(n) / n.head_size;
    delta[(row / n.length * n.query_heads + head) * n.length + row % n.length] += float(out[i]) * float(dout[i]);
  }
  return delta;
}

std::vector<bf16> emulated_backward(const Shape& n, const std::vector<bf16>& qkv, const Attended<bf16>& y,
                                    const std::vector<bf16>& dout, const FirstKeys& first_keys, Copies copies) {
  Guarded<bf16> in(qkv), gradient(dout), out(qkv.size());
  Guarded<float> lse(y.lse), delta(delta_of(n, y.out, dout));
  const Dimensions dimensions(n, block_rows, first_keys.empty() ? nullptr : first_keys.data());
  const BackwardArrays arrays{dimensions, in.data(), gradient.data(), lse.data(), delta.data(), out.data()};
  with_columns(n.head_size, [&](auto columns) {
    using Queries = BackwardQueries<columns.value>;
    using Keys = BackwardKeys<columns.value>;
    run(Queries{arrays}, Queries::blocks(dimensions, n.sequences), copies);
    run(Keys{arrays}, Keys::blocks(dimensions, n.sequences), copies);
  });
  EXPECT_TRUE(out.guards_hold(qkv.size())) << text(n);
  return out.values(qkv.size());
}

// Lengths around the edges of tiles of 32 and 64, heads of every number of columns and between, groups, documents that
// begin inside of tiles and that hide whole ones.
const Packed cases[] = {{{1, 1, 1, 1, 16}, {}},
                        {{2, 7, 2, 1, 8}, {}},
                        {{1, 64, 2, 2, 64}, {}},
                        {{2, 65, 4, 2, 32}, {}},
                        {{1, 130, 3, 1, 128}, {}},
                        {{1, 97, 2, 2, 80}, {}},
                        {{1, 200, 2, 1, 96}, {}},
                        {{1, 129, 2, 1, 40}, {}},
                        {{1, 200, 2, 1, 64}, {{100, 1, 99}}},
                        {{2, 130, 4, 2, 24}, {{64, 66}, {1, 62, 2, 65}}},
                        {{1, 330, 2, 1, 112}, {{10, 130, 190}}},
                        {{2, 260, 2, 2, 16}, {{200, 3, 57}, {63, 1, 1, 195}}},
                        {{1, 70, 1, 1, 128}, {std::vector<std::size_t>(70, 1)}}};

// The tolerances of the other kernels for bf16 (attention_test.cpp): probabilities, and their gradients, are rounded by
// half of 2^-7 before they are multiplied, and results once more.
TEST(AttentionOnTensorCores, MatchesFp64OnRoundedInputs) {
  for (const Packed& c : cases) {
    SCOPED_TRACE(text(c.shape));
    const auto qkv = converted<bf16>(random_qkv<float>(c.shape)), dout = converted<bf16>(random_dout<float>(c.shape));
    const auto exact = forward(c.shape, converted<double>(qkv), c.first_keys());
    const auto exact_gradient = backward(c.shape, converted<double>(qkv), converted<double>(dout), c.first_keys());
    const auto y = emulated_forward(c.shape, qkv, c.first_keys(), Copies::late);
    EXPECT_LT(relative_error(y.out, exact.out), bf16_tolerance);
    EXPECT_LT(relative_error(y.lse, exact.lse), 3e-6) << "summed and kept in fp32";
    const auto gradient = emulated_backward(c.shape, qkv, y, dout, c.first_keys(), Copies::late);
    // Queries, keys and values apart: their gradients differ in size.
    const std::size_t ends[] = {0, out_width(c.shape),
                                (c.shape.query_heads + c.shape.key_value_heads) * c.shape.head_size, c.shape.width()};
    for (int part = 0; part < 3; ++part) {
      std::vector<bf16> found;
      std::vector<double> of_part;
      for (std::size_t i = 0; i < gradient.size(); ++i)
        if (i % c.shape.width() >= ends[part] && i % c.shape.width() < ends[part + 1])
          found.push_back(gradient[i]), of_part.push_back(exact_gradient[i]);
      if (c.shape.length > 1 && c.documents.empty())
        EXPECT_LT(relative_error(found, of_part), 2 * bf16_tolerance) << "part " << part;
      else  // where each sees one key alone, queries and keys have no gradient but rounding
        EXPECT_LT(relative_error(found, of_part), part == 2 ? 2 * bf16_tolerance : INFINITY) << "part " << part;
    }
    EXPECT_LT(relative_error(gradient, exact_gradient), 2 * bf16_tolerance);
    // The same bits whenever copies happen.
    const auto early = emulated_forward(c.shape, qkv, c.first_keys(), Copies::early);
    EXPECT_EQ(relative_error(early.out, converted<float>(y.out)), 0);
    EXPECT_EQ(relative_error(early.lse, y.lse), 0);
    EXPECT_EQ(relative_error(emulated_backward(c.shape, qkv, y, dout, c.first_keys(), Copies::early),
                             converted<float>(gradient)),
              0);
  }
}

// Scores of several thousand: the softmax picks single keys, and the largest one moves from tile to tile.
TEST(AttentionOnTensorCores, LargeScoresStayFinite) {
  const Shape n{1, 200, 2, 1, 16};
  const auto qkv = converted<bf16>(random_qkv<float>(n, 60)), dout = converted<bf16>(random_dout<float>(n));
  const auto exact = forward(n, converted<double>(qkv));
  const auto exact_gradient = backward(n, converted<double>(qkv), converted<double>(dout));
  const auto y = emulated_forward(n, qkv, {}, Copies::late);
  EXPECT_LT(relative_error(y.out, exact.out), 2 * bf16_tolerance);
  EXPECT_LT(relative_error(y.lse, exact.lse), 3e-6);
  EXPECT_LT(relative_error(emulated_backward(n, qkv, y, dout, {}, Copies::late), exact_gradient), INFINITY);
}

// Fragments of both products against sums written out; whole numbers, so exact.
TEST(TensorCoreTiles, MultiplyMatrices) {
  constexpr int k = 32, n = 48;
  const auto a = random_integers<float>(1, block_rows * k), b = random_integers<float>(2, n * k),
             second = random_integers<float>(3, n * k);
  std::vector<float> found(block_rows * k);
  EmulatedBlock block(sizeof(bf16) * (pitch<k> * (block_rows + 2 * n)), Copies::late);
  block.run([&](EmulatedThread& thread) {
    bf16* const left = reinterpret_cast<bf16*>(thread.shared());
    bf16 *const right = left + block_rows * pitch<k>, *const last = right + n * pitch<k>;
    if (thread.thread() == 0)
      for (int c = 0; c < k; ++c) {
        for (int r = 0; r < block_rows; ++r) left[r * pitch<k> + c] = bf16(a[static_cast<std::size_t>(r * k + c)]);
        for (int r = 0; r < n; ++r) right[r * pitch<k> + c] = bf16(b[static_cast<std::size_t>(r * k + c)]);
        for (int r = 0; r < n; ++r) last[r * pitch<k> + c] = bf16(second[static_cast<std::size_t>(r * k + c)]);
      }
    thread.barrier();
    const Place place(thread);
    float sums[n / 8][4] = {}, all[k / 8][4] = {};
    multiply_by_transposed<k, n>(thread, left + 16 * place.warp * pitch<k>, right, sums);
    for (auto& tile : sums)  // small enough for bf16
      for (float& sum : tile) sum = static_cast<float>(static_cast<int>(sum) % 5);
    multiply<n, k>(thread, sums, last, all);
    for (int j = 0; j < k / 8; ++j)
      for (int e = 0; e < 4; ++e)
        found[static_cast<std::size_t>((place.row() + e / 2 * 8) * k + 8 * j + place.column() + e % 2)] = all[j][e];
  });
  std::vector<float> expected(block_rows * k, 0.0f);
  for (int r = 0; r < block_rows; ++r)
    for (int j = 0; j < n; ++j) {
      int sum = 0;
      for (int c = 0; c < k; ++c)
        sum += static_cast<int>(a[static_cast<std::size_t>(r * k + c)] * b[static_cast<std::size_t>(j * k + c)]);
      for (int c = 0; c < k; ++c)
        expected[static_cast<std::size_t>(r * k + c)] +=
            static_cast<float>(sum % 5) * second[static_cast<std::size_t>(j * k + c)];
    }
  EXPECT_EQ(found, expected);
}

TEST(EmulatedBlock, ThreadsThatPartAreFound) {
  EmulatedBlock block(64, Copies::late);
  EXPECT_THROW(block.run([](EmulatedThread& thread) {
    if (thread.thread() != 5) thread.barrier();
  }),
               std::logic_error);
  EXPECT_THROW(block.run([](EmulatedThread& thread) {
    if (thread.thread() % 32 < 16) thread.shuffle_xor(1, 1);
  }),
               std::logic_error);
  EXPECT_THROW(block.run([](EmulatedThread& thread) {
    bf16 word[2];
    thread.store_pair(word, 0);
  }),
               std::logic_error);
  EXPECT_NO_THROW(block.run([](EmulatedThread& thread) { thread.barrier(); }));
}

}  // namespace
}  // namespace atl::test
