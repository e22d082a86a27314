/// Tests of io/report/run_log.hpp: whose time is whose. SPDX-License-Identifier: Apache-2.0
#include "io/report/run_log.hpp"

#include "tests/io/scratch_folder.hpp"
#include "tests/parallel/grid_cache.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace atl {
namespace {

void pass(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// What passes between a step and the end of the aggregation after it, as waiting for slower groups, is the round's:
// steps and rounds of metrics.jsonl add up to the time of training.
TEST(RunLog, TimeBeforeAnAggregationIsItsOwn) {
  auto& place = GridCache::get(MPI_COMM_WORLD, ParallelOptions{});
  ShardedParameters<float> parameters({}, *place.shard, *place.replica, AfterForward::reshard);
  Federation<float> federation({}, 2, place.grid, place.communicators, place.links, *place.replica, parameters);
  const ScratchFolder folder;
  RunLog log({folder.path(), 2, 1, 0, 1.0, 0, 0}, {*place.shard, *place.replica, place.links, place.communicators});
  log.start({});
  pass(20);
  log.step(1, 1, {1.0, 1.0, 8, {}}, 0.1);
  log.flush(federation);
  pass(50);
  log.round({1, {8.0}, {0.0}, 0, 0.001}, 1);
  log.finish();

  std::vector<nlohmann::json> records;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) records.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(records.size(), 3u);
  const auto seconds = [&](std::size_t i, const char* key) { return records.at(i).at(key).get<double>(); };
  EXPECT_GE(seconds(1, "step_seconds"), 0.02);
  EXPECT_GE(seconds(2, "seconds"), 0.05);
  EXPECT_LE(seconds(2, "exposed_comm_seconds"), seconds(2, "seconds"));
}

}  // namespace
}  // namespace atl
