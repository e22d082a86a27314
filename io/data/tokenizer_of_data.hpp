/// Which tokenizer made token data. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_source.hpp"
#include "io/tokenizer/tokenizer.hpp"

#include <string>

namespace atl {

/// The tokenizer that a token file was made with: "bytes", or the path of the tokenizer.json beside it. Empty where
/// none lies there, and for data of other formats. DataError where another tokenizer lies there.
std::string tokenizer_of_data(const TokenSource& data);
/// The same for data.eval of a run, which a saved model tells; empty also where that is synthetic or no longer there.
std::string tokenizer_of_data(const std::string& eval);

/// Whether it is the one that a token file names as its tokenizer (TokenFile::tokenizer).
bool is_named(const Tokenizer& tokenizer, const std::string& name_in_token_file);

}  // namespace atl
