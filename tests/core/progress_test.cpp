/// Who lets work in the background go on, and how often. SPDX-License-Identifier: Apache-2.0
#include "core/progress.hpp"

#include "core/gemm.hpp"
#include "core/launch.hpp"
#include "tests/core/host_values.hpp"

#include <stdexcept>

namespace atl::test {
namespace {

int calls = 0;

void empty_kernel(std::size_t n) { for_each("atoll::test_kernel", Exec(), n, KOKKOS_LAMBDA(const std::int64_t){}); }
void empty_teams(std::size_t n) { for_each_team("atoll::test_teams", Exec(), n, KOKKOS_LAMBDA(const TeamMember&){}); }

class MakeProgress : public ::testing::Test {
 protected:
  MakeProgress() {
    calls = 0;
    set_progress([] { ++calls; });
  }
  ~MakeProgress() override { set_progress(nullptr); }
};

TEST_F(MakeProgress, OncePerLaunch) {
  empty_kernel(3);
  EXPECT_EQ(calls, 1);
  empty_teams(2);
  EXPECT_EQ(calls, 2);
  empty_kernel(0);
  empty_teams(0);
  EXPECT_EQ(calls, 2) << "nothing was launched";
  set_progress(nullptr);
  empty_kernel(3);
  make_progress();
  EXPECT_EQ(calls, 2);
}

// What goes on in the background launches kernels itself.
TEST_F(MakeProgress, DoesNotNest) {
  set_progress([] {
    if (++calls < 10) empty_kernel(1);
  });
  empty_kernel(1);
  EXPECT_EQ(calls, 1);
  make_progress();
  EXPECT_EQ(calls, 2);
}

TEST_F(MakeProgress, GoesOnAfterAnError) {
  set_progress([] {
    ++calls;
    throw std::runtime_error("broken");
  });
  EXPECT_THROW(make_progress(), std::runtime_error);
  EXPECT_THROW(make_progress(), std::runtime_error);
  EXPECT_EQ(calls, 2);
}

// Twice what one call of the library takes on the host: 2^28 multiplications in fp64, 2^30 in fp32 where oneDNN makes
// them (and more calls where another library does).
TEST_F(MakeProgress, BetweenThePartsOfLongProducts) {
  set_gemm_threads(1);
  {
    const auto a = allocate<double>("atoll::test", 256, 1536), b = allocate<double>("atoll::test", 1536, 1536),
               c = allocate<double>("atoll::test", 256, 1536);
    gemm<double>(Exec(), Transpose::no, Transpose::no, a, b, 0, c);
    EXPECT_EQ(calls, kernels_on_host ? 2 : 1);
  }
  calls = 0;
  const auto a = allocate<float>("atoll::test", 512, 2048), b = allocate<float>("atoll::test", 2048, 2048),
             c = allocate<float>("atoll::test", 512, 2048);
  gemm<float>(Exec(), Transpose::no, Transpose::no, a, b, 0, c);
  EXPECT_GE(calls, kernels_on_host ? 2 : 1);
  calls = 0;
  const auto small = allocate<float>("atoll::test", 8, 8);
  gemm<float>(Exec(), Transpose::no, Transpose::no, small, small, 0, allocate<float>("atoll::test", 8, 8));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace atl::test
