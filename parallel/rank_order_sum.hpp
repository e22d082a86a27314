/// The sum of a reduce-scatter, in rank order. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/element.hpp"

#include <cstddef>

namespace atl {

/// out[i] = x_0[i] + x_1[i] + .. + x_{ranks-1}[i], added from the left, in fp64 for fp64, else in fp32; with accumulate
/// out[i] += that sum. `element`: of the terms; out is fp32 where they are bf16. x_rank is `own`; the others lie in
/// `others`, one after another in rank order, count elements each. All in Memory. `out` may be `own` unless the types
/// differ. Starts on exec, does not wait.
void sum_in_rank_order(const void* own, const void* others, void* out, std::size_t count, int ranks, int rank,
                       Element element, bool accumulate, const Exec& exec);

/// Wire::bf16: terms, and sums that are gathered, before and after they travel. Start on exec, do not wait.
void round_to_bf16(const float* from, std::size_t count, bf16* to, const Exec& exec);
void widen_from_bf16(const bf16* from, std::size_t count, float* to, const Exec& exec);

}  // namespace atl
