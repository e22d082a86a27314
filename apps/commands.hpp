/// The subcommands of `atoll`: one file each. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace atl {

/// What the chosen subcommand does: returns the exit code, or throws.
using Command = std::function<int()>;

// Each adds its subcommand with its options to `program`, and sets `chosen` when it is the one on the command line.
void add_train(CLI::App& program, Command& chosen);
void add_eval(CLI::App& program, Command& chosen);
void add_generate(CLI::App& program, Command& chosen);
void add_tokenize(CLI::App& program, Command& chosen);
void add_data(CLI::App& program, Command& chosen);
void add_export(CLI::App& program, Command& chosen);
void add_import(CLI::App& program, Command& chosen);
void add_inspect(CLI::App& program, Command& chosen);
void add_plan(CLI::App& program, Command& chosen);
void add_doctor(CLI::App& program, Command& chosen);

}  // namespace atl
