/// Products of bf16: by oneDNN where the processor has instructions for them, else block by block in fp32.
/// SPDX-License-Identifier: Apache-2.0
#include "core/gemm_backends.hpp"
#include "core/launch.hpp"

#include <algorithm>

namespace atl {

namespace {

/// Rows, columns and terms of a block: large enough for the fp32 product's rate, and converting costs a tenth of it.
constexpr std::size_t block = 1024;

/// Three blocks in fp32, allocated with the first product and freed with Kokkos.
float* blocks() {
  static View1<float> all;
  if (all.extent(0) == 0) {
    all = allocate<float>("atoll::gemm_workspace", 3 * block * block);
    Kokkos::push_finalize_hook([] { all = {}; });
  }
  return all.data();
}

/// rows x columns of a stored matrix whose rows are `stride` apart, packed.
View2<const float> widened(const Exec& exec, const bf16* from, std::size_t stride, std::size_t rows,
                           std::size_t columns, float* to) {
  const int width = static_cast<int>(columns);
  for_each_team(
      "atoll::gemm_widen", exec, rows, KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank());
        const bf16* const in = from + row * stride;
        float* const out = to + row * columns;
        team_for(member, width, [&](const int i) { out[i] = in[i]; });
      });
  return View2<const float>(to, rows, columns);
}

/// c = sums + beta c, for a block of c.
template <class C>
void store(const Exec& exec, const View2<float>& sums, float beta, C* c, std::size_t stride) {
  const int width = static_cast<int>(sums.extent(1));
  const float* const from = sums.data();
  for_each_team(
      "atoll::gemm_store", exec, sums.extent(0), KOKKOS_LAMBDA(const TeamMember& member) {
        const std::size_t row = static_cast<std::size_t>(member.league_rank());
        const float* const in = from + row * static_cast<std::size_t>(width);
        C* const out = c + row * stride;
        team_for(member, width,
                 [&](const int i) { out[i] = C(beta == 0.0f ? in[i] : in[i] + beta * static_cast<float>(out[i])); });
      });
}

template <class C>
void multiply_blocks(const Exec& exec, const GemmCall<bf16, C>& call) {
  const bool ta = call.a_op == Transpose::yes, tb = call.b_op == Transpose::yes;
  const std::size_t a_row = call.a_row, b_row = tb ? call.k : call.n;
  float *const a_room = blocks(), *const b_room = a_room + block * block, *const c_room = b_room + block * block;
  for (std::size_t i = 0; i < call.m; i += block)
    for (std::size_t j = 0; j < call.n; j += block) {
      const std::size_t m = std::min(block, call.m - i), n = std::min(block, call.n - j);
      const View2<float> sums(c_room, m, n);
      for (std::size_t l = 0; l < call.k; l += block) {
        const std::size_t k = std::min(block, call.k - l);
        const auto a = ta ? widened(exec, call.a + l * a_row + i, a_row, k, m, a_room)
                          : widened(exec, call.a + i * a_row + l, a_row, m, k, a_room);
        const auto b = tb ? widened(exec, call.b + j * b_row + l, b_row, n, k, b_room)
                          : widened(exec, call.b + l * b_row + j, b_row, k, n, b_room);
        gemm<float>(exec, call.a_op, call.b_op, a, b, l == 0 ? 0.0f : 1.0f, sums);
      }
      store(exec, sums, call.beta, call.c + i * call.n + j, call.n);
    }
}

}  // namespace

bool gemm_bf16_converts() {
#ifdef ATOLL_HAVE_ONEDNN
  return !kernels_on_host || !onednn_multiplies_bf16();
#else
  return true;
#endif
}

std::size_t gemm_bf16_workspace_bytes() { return gemm_bf16_converts() ? 3 * block * block * sizeof(float) : 0; }

template <class C>
void gemm_bf16(const Exec& exec, const GemmCall<bf16, C>& call) {
#ifdef ATOLL_HAVE_ONEDNN
  if (!gemm_bf16_converts()) {
    exec.fence();
    return in_rows(call, std::size_t(1) << 31, [](const GemmCall<bf16, C>& part) { gemm_onednn_bf16(part); });
  }
#endif
  multiply_blocks(exec, call);
}

template void gemm_bf16<bf16>(const Exec&, const GemmCall<bf16, bf16>&);
template void gemm_bf16<float>(const Exec&, const GemmCall<bf16, float>&);

}  // namespace atl
