/// The program: picks a subcommand, and turns errors into messages and exit codes. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "core/errors.hpp"
#include "core/nearest_name.hpp"
#include "io/report/run_log.hpp"
#include "io/version.hpp"
#include "parallel/communicator.hpp"
#include "parallel/launcher.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

/// The parser would only say that a subcommand is missing.
void require_known_subcommand(const CLI::App& program, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty() || word[0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  for (const auto& name : names)
    if (name == word) return;
  throw atl::ConfigError("unknown subcommand " + word + "; did you mean " + atl::nearest_name(word, names) + "?");
}

}  // namespace

int main(int argc, char** argv) {
  using namespace atl;
  CLI::App program("atoll trains Llama-style language models: sharded inside groups of ranks, averaged across groups.");
  program.set_version_flag("--version", version_text());
  program.require_subcommand(1);
  program.footer("Start with: mpiexec -n 4 atoll train examples/quickstart.toml\nEach subcommand has its own --help.");
  program.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("atoll: error: ") + error.what() + "\nRun with --help for more information.\n";
  });
  Command chosen;
  add_train(program, chosen);
  add_eval(program, chosen);
  add_generate(program, chosen);
  add_tokenize(program, chosen);
  add_data(program, chosen);
  add_export(program, chosen);
  add_import(program, chosen);
  add_inspect(program, chosen);
  add_plan(program, chosen);
  add_doctor(program, chosen);
  // MPI does not run before and after a subcommand, so that the launcher must say who speaks for all ranks there.
  const bool speaks = first_of_launcher();
  start_logging(speaks ? 0 : 1, "info");  // warnings to stderr; commands that know their rank say so later
  const auto fail = [](const std::exception& error, ExitCode code) {
    std::fprintf(stderr, "atoll: error: %s\n", error.what());
    return static_cast<int>(code);
  };
  try {
    require_known_subcommand(program, argc, argv);
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = speaks ? program.exit(error) : error.get_exit_code();
    return static_cast<int>(code == 0 ? ExitCode::done : ExitCode::usage);
  } catch (const ConfigError& error) {
    return speaks ? fail(error, error.code()) : static_cast<int>(error.code());
  }
  try {
    return chosen();
  } catch (const CollectiveError& error) {  // MPI or Kokkos did not start, on all ranks
    return speaks ? fail(error, error.code()) : static_cast<int>(error.code());
  } catch (const Error& error) {
    return fail(error, error.code());
  } catch (const std::exception& error) {
    return fail(error, ExitCode::failure);
  }
}
