/// One pass over all contributions. SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_order_sum.hpp"

#include "core/errors.hpp"
#include "core/launch.hpp"

#include <cstdint>

namespace atl {

namespace {

// On the host an iteration adds a block that stays in the first-level cache, in loops that vectorise over elements; on
// a device neighbouring threads take neighbouring elements. The order of additions of an element is the same.
constexpr std::int64_t block = vector_kernels ? 512 : 1;

template <class T, class R>
void sum(const T* own, const T* others, R* out, std::int64_t count, int ranks, int rank, bool accumulate,
         const Exec& exec) {
  const std::int64_t blocks = (count + block - 1) / block;
  Kokkos::parallel_for(
      "atoll::sum_in_rank_order", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, blocks),
      KOKKOS_LAMBDA(const std::int64_t b) {
        const std::int64_t begin = b * block;
        const std::int64_t n = block == 1 || count - begin >= block ? block : count - begin;
        R total[block];
        // The first is copied, not added to zero, which would turn -0 into 0.
        const T* const first = begin + (rank == 0 ? own : others);
        for (std::int64_t i = 0; i < n; ++i) total[i] = first[i];
        for (int r = 1; r < ranks; ++r) {
          const T* const x = begin + (r == rank ? own : others + (r < rank ? r : r - 1) * count);
          for (std::int64_t i = 0; i < n; ++i) total[i] += R(x[i]);
        }
        R* const to = out + begin;
        if (accumulate) {
          for (std::int64_t i = 0; i < n; ++i) to[i] += total[i];
        } else {
          for (std::int64_t i = 0; i < n; ++i) to[i] = total[i];
        }
      });
}

}  // namespace

void sum_in_rank_order(const void* own, const void* others, void* out, std::size_t count, int ranks, int rank,
                       Element element, bool accumulate, const Exec& exec) {
  if (count == 0 || (ranks == 1 && !accumulate && own == out)) return;
  const auto n = static_cast<std::int64_t>(count);
  if (element == Element::f64) {
    sum(static_cast<const double*>(own), static_cast<const double*>(others), static_cast<double*>(out), n, ranks, rank,
        accumulate, exec);
  } else if (element == Element::bf16) {
    sum(static_cast<const bf16*>(own), static_cast<const bf16*>(others), static_cast<float*>(out), n, ranks, rank,
        accumulate, exec);
  } else {
    ATOLL_REQUIRE(element == Element::f32);
    sum(static_cast<const float*>(own), static_cast<const float*>(others), static_cast<float*>(out), n, ranks, rank,
        accumulate, exec);
  }
}

void round_to_bf16(const float* from, std::size_t count, bf16* to, const Exec& exec) {
  for_each(
      "atoll::round_terms", exec, count, KOKKOS_LAMBDA(const std::int64_t i) { to[i] = bf16(from[i]); });
}
void widen_from_bf16(const bf16* from, std::size_t count, float* to, const Exec& exec) {
  for_each(
      "atoll::widen_sums", exec, count, KOKKOS_LAMBDA(const std::int64_t i) { to[i] = from[i]; });
}

}  // namespace atl
