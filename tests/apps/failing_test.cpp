/// A rank that fails inside a collective operation ends the whole job at once, with its message.
/// SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

namespace atl {
namespace {

class FailingRank : public ::testing::TestWithParam<const char*> {};

TEST_P(FailingRank, EndsTheJobWithItsMessage) {
  const ScratchFolder folder;
  for (const char* number : {"1", "5"}) {
    const Outcome outcome = run_command(folder, ATOLL_FAILING_RANK, 8, {GetParam(), number});
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(occurrences(outcome.err, "atoll: error on rank 1: the network card of this rank is gone"), 1u)
        << outcome.err;
    EXPECT_EQ(occurrences(outcome.err, "atoll: error"), 1u) << outcome.err;
    EXPECT_LT(outcome.seconds, 30) << "far more than it takes on shared cores, far less than a hang";
  }
}

INSTANTIATE_TEST_SUITE_P(In, FailingRank, ::testing::Values("gather", "reduction", "replica_sum", "aggregation"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace atl
