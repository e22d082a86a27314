/// XXH3-64 over bytes that arrive in pieces, or in blocks. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct XXH3_state_s;

namespace atl {

/// xxHash's XXH3-64: finds every flipped byte by accident, is no protection against intent.
class Checksum {
 public:
  Checksum();
  void update(const void* bytes, std::size_t count);
  std::uint64_t value() const;  ///< of all bytes so far
  std::string text() const;     ///< of all bytes so far: "xxh3-64:" and 16 hexadecimal digits

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// Checksum of blocks in any order, so that several processes can read one file: the sum modulo 2^64 of XXH3-64(block,
/// seed = index of the block). Sums of disjoint sets of blocks add up. As good as Checksum against accidents.
std::uint64_t block_checksum(std::uint64_t index, const void* bytes, std::size_t count);
std::string block_checksum_text(std::uint64_t sum);  ///< "xxh3-64-blocks:" and 16 hexadecimal digits

}  // namespace atl
