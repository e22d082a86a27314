/// SPDX-License-Identifier: Apache-2.0
#include "core/embedding.hpp"

#include "core/launch.hpp"

namespace atl {

TokenIndex::TokenIndex(std::size_t capacity)
    : positions(allocate<std::int32_t>("atoll::token_positions", capacity)),
      begins(allocate<std::int32_t>("atoll::token_begins", capacity + 1)),
      tokens(allocate<std::int32_t>("atoll::token_distinct", capacity)) {}

void TokenIndex::assign(const std::vector<std::int32_t>& all, std::size_t vocabulary) {
  ATOLL_REQUIRE(all.size() <= positions.extent(0));
  // A counting sort over the vocabulary: stable, so positions of a token stay in order.
  std::vector<std::int32_t> begin(vocabulary + 1, 0);
  for (const auto token : all) {
    ATOLL_REQUIRE(token >= 0 && static_cast<std::size_t>(token) < vocabulary);
    ++begin[static_cast<std::size_t>(token) + 1];
  }
  std::vector<std::int32_t> sorted(positions.extent(0)), begins_host(begins.extent(0)), distinct_host(tokens.extent(0));
  distinct_ = 0;
  for (std::size_t token = 0; token < vocabulary; ++token) {
    const bool present = begin[token + 1] > 0;
    begin[token + 1] += begin[token];
    if (!present) continue;
    begins_host[distinct_] = begin[token];
    distinct_host[distinct_++] = static_cast<std::int32_t>(token);
  }
  begins_host[distinct_] = static_cast<std::int32_t>(all.size());
  for (std::size_t position = 0; position < all.size(); ++position)
    sorted[static_cast<std::size_t>(begin[static_cast<std::size_t>(all[position])]++)] =
        static_cast<std::int32_t>(position);
  copy_to_device(sorted, positions);
  copy_to_device(begins_host, begins);
  copy_to_device(distinct_host, tokens);
}

template <class T>
void embedding(const Exec& exec, View2<const T> table, View1<const std::int32_t> tokens, View2<T> x) {
  const int columns = static_cast<int>(table.extent(1));
  for_each_team(
      "atoll::embedding", exec, x.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank());
        const T* const from = table.data() + static_cast<std::size_t>(tokens(row)) * columns;
        T* const to = x.data() + row * columns;
        team_for(member, columns, [&](const int c) { to[c] = from[c]; });
      });
}

template <class T>
void embedding_backward(const Exec& exec, const TokenIndex& index, View2<const T> dx, View2<Accumulator<T>> dtable) {
  using R = Accumulator<T>;
  const int columns = static_cast<int>(dx.extent(1));
  const auto positions = index.positions, begins = index.begins, tokens = index.tokens;
  for_each_team(
      "atoll::embedding_backward", exec, index.distinct(), KOKKOS_LAMBDA(const TeamMember& member) {
        const int i = member.league_rank();
        R* const to = dtable.data() + static_cast<std::size_t>(tokens(i)) * columns;
        for (int p = begins(i); p < begins(i + 1); ++p) {
          const T* const from = dx.data() + static_cast<std::size_t>(positions(p)) * columns;
          team_for(member, columns, [&](const int c) { to[c] += R(from[c]); });
        }
      });
}

#define ATOLL_INSTANTIATE(T)                                                                    \
  template void embedding<T>(const Exec&, View2<const T>, View1<const std::int32_t>, View2<T>); \
  template void embedding_backward<T>(const Exec&, const TokenIndex&, View2<const T>, View2<Accumulator<T>>);
ATOLL_INSTANTIATE(float)
ATOLL_INSTANTIATE(double)
ATOLL_INSTANTIATE(bf16)
#undef ATOLL_INSTANTIATE

}  // namespace atl
