/// The collectives between owners of the same elements. SPDX-License-Identifier: Apache-2.0
#include "parallel/federation_links.hpp"

#include "core/array.hpp"
#include "tests/io/scratch_folder.hpp"
#include "tests/parallel/grid_cache.hpp"

#include <gtest/gtest.h>

namespace atl {
namespace {

// Sums of ones over the pieces of units of any size, smaller than the ranks too: every element has one owner in each
// group, and nothing is summed twice.
TEST(FederationLinks, PiecesJoinOneOwnerOfEachGroup) {
  const int n = world_ranks();
  std::vector<std::vector<GroupShape>> shapes{{{1, n}}};
  if (n >= 2) shapes.push_back({{1, n / 2}, {1, n - n / 2}});
  if (n >= 3) shapes.push_back({{n - 1, 1}, {1, 1}});
  if (n >= 5) shapes.push_back({{1, 2}, {n - 3, 1}, {1, 1}});
  const std::vector<std::size_t> sizes{0, 1, 2, 7, 100, 7};
  const Exec exec;
  for (const auto& groups : shapes) {
    auto& place = GridCache::get(MPI_COMM_WORLD, grid_of(groups));
    SCOPED_TRACE(place.grid.describe());
    const auto pieces = place.links.pieces(sizes);
    ASSERT_EQ(pieces.size(), sizes.size());
    for (std::size_t u = 0; u < sizes.size(); ++u) {
      const Range slice = slice_of(sizes[u], place.grid.shape(), place.grid.rank_in_group());
      std::size_t covered = 0;
      for (const auto& piece : pieces[u]) {
        EXPECT_EQ(piece.owners->size(), place.grid.number_of_groups());
        EXPECT_EQ(piece.owners->rank(), place.grid.group());
        EXPECT_EQ(piece.range.begin, covered);
        covered = piece.range.end;
        const auto values = to_device("atoll::test", std::vector<double>(piece.range.size(), 1.0));
        piece.owners->all_reduce(values.data(), piece.range.size(), Element::f64, exec).wait();
        EXPECT_EQ(to_host(values), std::vector<double>(piece.range.size(), place.grid.number_of_groups()));
      }
      if (place.grid.equal_groups()) {
        EXPECT_GE(covered, slice.size());  // with padding
      } else {
        EXPECT_EQ(covered, slice.size());
      }
    }
    EXPECT_EQ(place.links.stats().bytes_sent > 0, place.grid.number_of_groups() > 1);
  }
}

TEST(FederationLinks, TooManySetsAreAnErrorOnEveryRank) {
  const int n = world_ranks();
  if (n < 3) GTEST_SKIP() << "on 3 ranks or more";
  auto& place = GridCache::get(MPI_COMM_WORLD, grid_of({{1, n - 1}, {1, 1}}));
  FederationLinks few(place.grid, place.communicators, 1);
  // Only the one rank of the last group has more than one set, but all must know.
  const std::string message = message_of<CollectiveError>([&] { few.pieces({100}); });
  EXPECT_EQ(message.find("rank " + std::to_string(n - 1) + " of " + std::to_string(n) +
                         " (of a group with 1 ranks) would average with " + std::to_string(n - 1)),
            0u)
      << message;
  place.communicators.world.barrier();
}

}  // namespace
}  // namespace atl
