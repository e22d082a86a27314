/// Options that several commands have. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/config/run_config.hpp"
#include "io/data/token_array.hpp"

#include <CLI/CLI.hpp>

#include <map>
#include <optional>
#include <string>

namespace atl {

/// Names for the values of an enum; the help shows `type_name` and no more.
template <class T>
CLI::CheckedTransformer choices_of(const std::map<std::string, T>& names) {
  CLI::CheckedTransformer choices(names);
  choices.description("");
  return choices;
}

/// As data.raw_type of a run.
inline void add_raw_type(CLI::App& command, std::optional<TokenType>& type) {
  command
      .add_option_function<std::string>(
          "--raw-type",
          [&type](const std::string& name) {
            for (const auto known : {TokenType::u16, TokenType::u32, TokenType::i32, TokenType::i64})
              if (name == name_of(known)) type = known;
          },
          "Type of the tokens in files without a header; default: uint16, unless they may be wider")
      ->check(CLI::IsMember({"uint16", "uint32", "int32", "int64"}).description(""))
      ->type_name("uint16|uint32|int32|int64");
}

/// Of the computation, whatever the saved model has.
inline void add_precision(CLI::App& command, Precision& precision) {
  command.add_option("--precision", precision, "Of the computation")
      ->transform(
          choices_of<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp64", Precision::fp64}}))
      ->type_name("fp32|bf16|fp64")
      ->default_str("fp32");
}

}  // namespace atl
