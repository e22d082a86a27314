/// The option --raw-type, as data.raw_type of a run. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_array.hpp"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace atl {

inline void add_raw_type(CLI::App& command, std::optional<TokenType>& type) {
  command
      .add_option_function<std::string>(
          "--raw-type",
          [&type](const std::string& name) {
            for (const auto known : {TokenType::u16, TokenType::u32, TokenType::i32, TokenType::i64})
              if (name == name_of(known)) type = known;
          },
          "Type of the tokens in files without a header; default: uint16, unless they may be wider")
      ->check(CLI::IsMember({"uint16", "uint32", "int32", "int64"}))
      ->type_name("uint16|uint32|int32|int64");
}

}  // namespace atl
