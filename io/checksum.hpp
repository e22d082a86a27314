/// XXH3-64 over bytes that arrive in pieces. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct XXH3_state_s;

namespace atl {

/// xxHash's XXH3-64: finds every flipped byte by accident, is no protection against intent.
class Checksum {
 public:
  Checksum();
  void update(const void* bytes, std::size_t count);
  std::string text() const;  ///< of all bytes so far: "xxh3-64:" and 16 hexadecimal digits

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace atl
