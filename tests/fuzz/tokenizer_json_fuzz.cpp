/// Any bytes as a tokenizer.json: an error or a tokenizer that works. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/tokenizer/tokenizer.hpp"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  try {
    const Tokenizer tokenizer = Tokenizer::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto tokens =
        Encoder(tokenizer).encode("Some  text, 12 na\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd\n <s> \xf0\x9f\x98\x80");
    tokenizer.decode(tokens, SpecialTokens::keep);
  } catch (const DataError&) {
  }
  return 0;
}
