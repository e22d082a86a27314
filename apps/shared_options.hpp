/// Options that several commands have. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/config/run_config.hpp"
#include "io/data/token_array.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace atl {

/// The parser's own validators of ranges and names print limits of 300 digits, and numbers of enums.
namespace detail {
inline CLI::Validator number_that(bool (*holds)(double), const char* wanted, const char* name) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && holds(value);
        return good ? std::string() : fmt::format("{} is not {}", text, wanted);
      },
      name);
}
}  // namespace detail
inline CLI::Validator positive() {
  return detail::number_that([](double value) { return value > 0; }, "a number above 0", "POSITIVE");
}
inline CLI::Validator not_negative() {
  return detail::number_that([](double value) { return value >= 0; }, "a number from 0 on", "NONNEGATIVE");
}

/// Names for the values of an enum.
template <class T>
CLI::Validator choices_of(std::vector<std::pair<std::string, T>> names) {
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        std::vector<std::string> known;
        for (const auto& [name, value] : names) {
          if (name == text) {
            text = std::to_string(static_cast<std::underlying_type_t<T>>(value));
            return std::string();
          }
          known.push_back(name);
        }
        return fmt::format("{} is none of {}", text, fmt::join(known, ", "));
      },
      "");
}

/// Bytes, as 5GB or 500MiB.
inline CLI::Validator size_in_bytes() {
  return CLI::Validator(
      [size = CLI::AsSizeValue(true)](std::string& text) {
        return text.find('-') == std::string::npos ? size(text) : fmt::format("{} is not a size above 0", text);
      },
      "");
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
