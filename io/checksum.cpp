/// Calls of xxHash. SPDX-License-Identifier: Apache-2.0
#include "io/checksum.hpp"

#include <fmt/core.h>

#include <new>
#include <xxhash.h>

namespace atl {

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Checksum::update(const void* bytes, std::size_t count) { XXH3_64bits_update(state_.get(), bytes, count); }

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

std::string Checksum::text() const { return fmt::format("xxh3-64:{:016x}", value()); }

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

std::uint64_t block_checksum(std::uint64_t index, const void* bytes, std::size_t count) {
  return XXH3_64bits_withSeed(bytes, count, index);
}

std::string block_checksum_text(std::uint64_t sum) { return fmt::format("xxh3-64-blocks:{:016x}", sum); }

}  // namespace atl
