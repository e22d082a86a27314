/// The program: picks a subcommand, and turns errors into messages and exit codes. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "core/errors.hpp"
#include "io/version.hpp"
#include "parallel/communicator.hpp"
#include "parallel/launcher.hpp"

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
  add_inspect(program, chosen);
  add_doctor(program, chosen);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // MPI does not run yet, so that the launcher must say who speaks for all.
    const int code = first_of_launcher() ? program.exit(error) : error.get_exit_code();
    return static_cast<int>(code == 0 ? ExitCode::done : ExitCode::usage);
  }
  try {
    return chosen();
  } catch (const CollectiveError& error) {  // of the start, on all ranks
    if (first_of_launcher()) std::fprintf(stderr, "atoll: error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fprintf(stderr, "atoll: error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "atoll: error: %s\n", error.what());
    return static_cast<int>(ExitCode::failure);
  }
}
