/// Views over flat arrays: what they cover, and that they refuse to leave it. SPDX-License-Identifier: Apache-2.0
#include "core/array.hpp"

#include "tests/core/host_values.hpp"

namespace atl::test {
namespace {

TEST(Array, AllocatesZeros) {
  for (const std::size_t n : {0u, 1u, 1000u}) {
    {  // leaves memory that is not zero by chance
      const auto vector = allocate<float>("atoll::test", n);
      const auto matrix = allocate<std::int32_t>("atoll::test", n, 3);
      fill(Exec(), vector, 7.0f);
      fill(Exec(), flat(matrix), 7);
    }
    EXPECT_EQ(host(allocate<float>("atoll::test", n)), std::vector<float>(n, 0.0f));
    EXPECT_EQ(host(allocate<std::int32_t>("atoll::test", n, 3)), std::vector<std::int32_t>(3 * n, 0));
  }
  EXPECT_EQ(allocate<double>("atoll::some_label", 3).label(), "atoll::some_label");
}

TEST(Array, FillsParts) {
  const auto all = device(std::vector<float>{1, 2, 3, 4});
  fill(Exec(), part(all, 1, 2), -1.0f);
  fill(Exec(), part(all, 4, 0), -2.0f);
  EXPECT_EQ(host(all), (std::vector<float>{1, -1, -1, 4}));
}

TEST(Array, PartsAndMatricesShareTheFlatArray) {
  const auto all = device(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(host(part(all, 3, 4)), (std::vector<int>{3, 4, 5, 6}));
  EXPECT_EQ(host(part(all, 10, 0)), std::vector<int>());
  const auto m = matrix(all, 1, 3, 2);
  EXPECT_EQ(host(m), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(host(row_block(m, 1, 2)), (std::vector<int>{3, 4, 5, 6}));
  copy_to_device(std::vector<int>{-1, -2}, flat(row_block(m, 2, 1)));
  EXPECT_EQ(host(all), (std::vector<int>{0, 1, 2, 3, 4, -1, -2, 7, 8, 9}));
}

TEST(Array, RefusesToLeaveTheArray) {
  const auto all = allocate<float>("atoll::test", 10);
  EXPECT_THROW(part(all, 8, 3), Error);
  EXPECT_THROW(matrix(all, 1, 5, 2), Error);
  EXPECT_THROW(row_block(matrix(all, 0, 5, 2), 4, 2), Error);
  EXPECT_THROW(copy_to_device(std::vector<float>(9), all), Error);
}

}  // namespace
}  // namespace atl::test
