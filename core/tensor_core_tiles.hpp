/// Products of bf16 tiles in shared memory by tensor cores, for blocks of four warps. SPDX-License-Identifier:
/// Apache-2.0
///
/// Written against a `Block`, which stands for one thread of a block of threads:
///   int thread()                               its number, 0 to threads - 1
///   char* shared()                             the block's shared memory, aligned to 16 bytes
///   void barrier()                             of all threads of the block
///   void copy(to, from, known)                 8 elements into shared memory, or zeros; complete after wait
///   void commit(); void wait<n>()              a group of copies ends; all but the last n groups are complete
///   void copy_out(to, from)                    8 elements out of shared memory
///   void store_pair(to, pair)                  2 elements into shared memory
///   void load_matrices(r, row)                 PTX ldmatrix.m8n8.x4: four 8 x 8 matrices, a row from each lane
///   void load_matrices_transposed(r, row)      the same with .trans
///   void multiply(c, a, b0, b1)                PTX mma.m16n8k16.row.col.f32.bf16.bf16.f32: c += a b
///   float shuffle_xor(value, mask)             PTX shfl.bfly: the value of the lane with number ^ mask
///   std::uint32_t pack(low, high)              two numbers rounded to bf16
///   float exp2(x)
/// Fragments are those of the PTX ISA's description of mma.m16n8k16: of a 16 x 8 sum c, lane 4 g + t holds c[0], c[1]
/// at row g and columns 2 t, 2 t + 1, and c[2], c[3] in row g + 8. CudaBlock (attention_cuda.cpp) runs on a device;
/// tests/core has one that runs on a host.
#pragma once

#include "core/element.hpp"

#include <cstddef>
#include <cstdint>

// Arrays of sums stay in registers only where the loops over them are unrolled.
#ifdef __CUDA_ARCH__
#define ATOLL_UNROLL _Pragma("unroll")
#else
#define ATOLL_UNROLL
#endif

namespace atl::tensor_cores {

inline constexpr int threads = 128, warps = 4;
/// Rows of a block's tiles: 16 for each warp.
inline constexpr int block_rows = 16 * warps;

/// Elements from row to row of a tile in shared memory: the 8 rows of a matrix lie in different banks.
template <int columns>
inline constexpr int pitch = columns + 8;

/// Where this thread is.
struct Place {
  int warp, lane;
  template <class Block>
  KOKKOS_INLINE_FUNCTION explicit Place(const Block& block) : warp(block.thread() / 32), lane(block.thread() % 32) {}
  KOKKOS_INLINE_FUNCTION int row() const { return 16 * warp + lane / 4; }  ///< of c[0] in a tile of block_rows
  KOKKOS_INLINE_FUNCTION int column() const { return lane % 4 * 2; }       ///< of c[0] in a tile of 8 columns
};

/// Starts to copy `rows` rows of one head, `stride` elements apart, into a tile: zeros beyond the known rows and
/// columns.
template <int columns, class Block>
KOKKOS_INLINE_FUNCTION void copy_rows(Block& block, int rows, int known_rows, int known_columns, const bf16* from,
                                      std::size_t stride, bf16* tile) {
  constexpr int parts = columns / 8;
  for (int i = block.thread(); i < rows * parts; i += threads) {
    const int row = i / parts, column = i % parts * 8;
    const bool known = row < known_rows && column < known_columns;
    block.copy(tile + row * pitch<columns> + column,
               known ? from + static_cast<std::size_t>(row) * stride + static_cast<std::size_t>(column) : from, known);
  }
}

/// f(i, stage) for i = first, first + step, ... below end, with the tiles that load(i, stage) copies: those of the next
/// i are on their way meanwhile, into the other of two stages. Copies started before are complete as well.
template <class Block, class Load, class F>
KOKKOS_INLINE_FUNCTION void in_turns(Block& block, int first, int end, int step, const Load& load, const F& f) {
  load(first, 0);
  block.commit();
  for (int i = first, stage = 0; i < end; i += step, stage ^= 1) {
    if (i + step < end) load(i + step, stage ^ 1);
    block.commit();
    block.template wait<1>();
    block.barrier();
    f(i, stage);
    block.barrier();  // before these tiles are overwritten
  }
}

/// The known rows and columns of a tile of block_rows into global memory.
template <int columns, class Block>
KOKKOS_INLINE_FUNCTION void copy_rows_out(Block& block, int known_rows, int known_columns, const bf16* tile, bf16* to,
                                          std::size_t stride) {
  constexpr int parts = columns / 8;
  for (int i = block.thread(); i < block_rows * parts; i += threads) {
    const int row = i / parts, column = i % parts * 8;
    if (row < known_rows && column < known_columns)
      block.copy_out(to + static_cast<std::size_t>(row) * stride + static_cast<std::size_t>(column),
                     tile + row * pitch<columns> + column);
  }
}

/// The warp's 16 rows of sums, times a factor for each of the thread's two rows, into a tile of block_rows.
template <int columns, class Block>
KOKKOS_INLINE_FUNCTION void round_to_tile(Block& block, const float (&sums)[columns / 8][4], float low, float high,
                                          bf16* tile) {
  const Place place(block);
  bf16* const to = tile + place.row() * pitch<columns> + place.column();
  ATOLL_UNROLL
  for (int j = 0; j < columns / 8; ++j) {
    block.store_pair(to + 8 * j, block.pack(sums[j][0] * low, sums[j][1] * low));
    block.store_pair(to + 8 * j + 8 * pitch<columns>, block.pack(sums[j][2] * high, sums[j][3] * high));
  }
}

/// sums (16, n) += a b^T: `a` the warp's 16 rows of a tile, b (n, k) a tile, both with `k` columns.
template <int k, int n, class Block>
KOKKOS_INLINE_FUNCTION void multiply_by_transposed(Block& block, const bf16* a, const bf16* b,
                                                   float (&sums)[n / 8][4]) {
  const int lane = Place(block).lane;
  const bf16* const a_row = a + lane % 16 * pitch<k> + lane / 16 * 8;
  const bf16* const b_row = b + (lane % 8 + lane / 16 * 8) * pitch<k> + lane / 8 % 2 * 8;
  ATOLL_UNROLL
  for (int l = 0; l < k; l += 16) {
    std::uint32_t left[4];
    block.load_matrices(left, a_row + l);
    ATOLL_UNROLL
    for (int j = 0; j < n; j += 16) {
      std::uint32_t right[4];
      block.load_matrices(right, b_row + j * pitch<k> + l);
      block.multiply(sums[j / 8], left, right[0], right[1]);
      block.multiply(sums[j / 8 + 1], left, right[2], right[3]);
    }
  }
}

/// sums (16, n) += a b: a (16, k) as sums of an earlier product, rounded to bf16; b (k, n) a tile.
template <int k, int n, class Block>
KOKKOS_INLINE_FUNCTION void multiply(Block& block, const float (&a)[k / 8][4], const bf16* b, float (&sums)[n / 8][4]) {
  const int lane = Place(block).lane;
  const bf16* const b_row = b + lane % 16 * pitch<n> + lane / 16 * 8;
  ATOLL_UNROLL
  for (int l = 0; l < k; l += 16) {
    const float(&near)[4] = a[l / 8], (&far)[4] = a[l / 8 + 1];
    const std::uint32_t left[4] = {block.pack(near[0], near[1]), block.pack(near[2], near[3]),
                                   block.pack(far[0], far[1]), block.pack(far[2], far[3])};
    ATOLL_UNROLL
    for (int j = 0; j < n; j += 16) {
      std::uint32_t right[4];
      block.load_matrices_transposed(right, b_row + l * pitch<n> + j);
      block.multiply(sums[j / 8], left, right[0], right[1]);
      block.multiply(sums[j / 8 + 1], left, right[2], right[3]);
    }
  }
}

}  // namespace atl::tensor_cores
