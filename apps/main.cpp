/// The program: picks a subcommand, and turns errors into messages and exit codes. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "core/errors.hpp"
#include "io/version.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  using namespace atl;
  CLI::App program("atoll trains Llama-style language models: sharded inside groups of ranks, averaged across groups.");
  program.set_version_flag("--version", version_text());
  program.require_subcommand(1);
  program.footer("Start with: mpiexec -n 4 atoll train examples/quickstart.toml\nEach subcommand has its own --help.");
  Command chosen;
  add_train(program, chosen);
  add_eval(program, chosen);
  add_tokenize(program, chosen);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? static_cast<int>(ExitCode::done) : static_cast<int>(ExitCode::usage);
  }
  try {
    return chosen();
  } catch (const Error& error) {
    std::fprintf(stderr, "atoll: error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "atoll: error: %s\n", error.what());
    return static_cast<int>(ExitCode::failure);
  }
}
