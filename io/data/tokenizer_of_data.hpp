/// Which tokenizer made token data. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_source.hpp"

#include <string>

namespace atl {

/// The tokenizer that a token file was made with: "bytes", or the path of the tokenizer.json beside it. Empty where
/// none lies there, and for data of other formats. DataError where another tokenizer lies there.
std::string tokenizer_of_data(const TokenSource& data);

}  // namespace atl
