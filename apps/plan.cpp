/// `atoll plan`: what every strategy would cost on a machine, before anything runs. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/plan_report.hpp"
#include "apps/shared_options.hpp"
#include "apps/subject.hpp"
#include "core/errors.hpp"
#include "io/data/step_schedule.hpp"
#include "io/data/text_files.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

namespace atl {

namespace {

namespace fs = std::filesystem;

struct Arguments : SubjectArguments {
  std::string system, plot, transport = "mpi", reduce_precision;
  std::int64_t nodes = 0, ranks_per_node = 0, micro_batch = 0, every = 0;
  double intra_latency = -1, inter_latency = -1, intra_bandwidth = 0, inter_bandwidth = 0;  // seconds, bytes/s
  double flops = 0, compute_seconds = 0;
  std::int64_t rows = 20;
  bool json = false, paper = false;
};

/// Profiles beside the installed program, or those of the source tree it was built from.
std::vector<std::string> profile_folders() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  std::vector<std::string> folders;
  if (!program.empty())
    folders.push_back((program.parent_path() / ATOLL_SYSTEMS_INSTALLED).lexically_normal().string());
  folders.emplace_back(ATOLL_SYSTEMS_SOURCE);
  return folders;
}

bool is_of_system(const std::string& setting) {
  const std::string table = setting.substr(0, setting.find('.'));
  return table == "system" || table == "intra" || table == "inter";
}

/// The published experiment: what is not given otherwise.
void fill_in_paper(Arguments& arguments) {
  if (arguments.subject.empty() && arguments.preset.empty()) arguments.preset = "8b";
  if (arguments.system.empty()) arguments.system = "leonardo";
  if (arguments.nodes == 0) arguments.nodes = 128;
  if (arguments.micro_batch == 0) arguments.micro_batch = 2;
  if (arguments.every == 0) arguments.every = 8;
  std::vector<std::string> first{"train.precision=bf16", "train.recompute=block", "data.sequence_length=1024"};
  first.insert(first.end(), arguments.overrides.begin(), arguments.overrides.end());
  arguments.overrides = std::move(first);
}

SystemProfile profile_of(const Arguments& arguments) {
  std::vector<std::string> settings;
  const auto set = [&](const char* key, double value) { settings.push_back(fmt::format("{}={:.17g}", key, value)); };
  if (arguments.ranks_per_node > 0)
    settings.push_back(fmt::format("system.ranks_per_node={}", arguments.ranks_per_node));
  if (arguments.intra_latency >= 0) set("intra.latency", arguments.intra_latency);
  if (arguments.inter_latency >= 0) set("inter.latency", arguments.inter_latency);
  if (arguments.intra_bandwidth > 0) set("intra.bandwidth", arguments.intra_bandwidth);
  if (arguments.inter_bandwidth > 0) {
    set("inter.bandwidth", arguments.inter_bandwidth);
    set("inter.efficiency", 1);
  }
  if (arguments.flops > 0) {
    for (const char* key : {"system.fp64", "system.fp32", "system.bf16"}) set(key, arguments.flops);
    set("system.efficiency", 1);
  }
  for (const std::string& text : arguments.overrides)
    if (is_of_system(text)) settings.push_back(text);
  const std::string path = arguments.system.empty() ? "" : find_system_profile(arguments.system, profile_folders());
  return load_system_profile(path, settings);
}

PlanReport make_report(Arguments arguments) {
  if (arguments.paper) fill_in_paper(arguments);
  PlanReport report;
  report.paper = arguments.paper;
  report.profile = profile_of(arguments);
  report.system = report.profile.name.empty() ? "a system given by its figures" : report.profile.name;

  SubjectArguments question = arguments;
  std::erase_if(question.overrides, is_of_system);
  if (arguments.micro_batch > 0)
    question.overrides.push_back(fmt::format("train.micro_batch={}", arguments.micro_batch));
  if (arguments.every > 0) question.overrides.push_back(fmt::format("federation.every={}", arguments.every));
  if (!arguments.reduce_precision.empty())
    question.overrides.push_back("train.reduce_precision=" + arguments.reduce_precision);
  const Subject subject = find_subject(question);
  const RunConfig& config = subject.config;

  PlanOptions& options = report.options;
  options.model = subject.model;
  options.machine = machine_of(report.profile, config.train.precision);
  options.transport = arguments.transport == "ring" ? Transport::ring : Transport::mpi;
  const std::int64_t nodes = arguments.nodes > 0 ? arguments.nodes : report.profile.nodes;
  if (nodes == 0) throw ConfigError("--nodes is missing: the number of nodes of the run");
  if (arguments.nodes > 0 && report.profile.nodes > 0 && arguments.nodes > report.profile.nodes)
    throw ConfigError(fmt::format("--nodes {}: {} has {} nodes; give fewer, or --set system.nodes={}", arguments.nodes,
                                  report.system, report.profile.nodes, arguments.nodes));
  options.ranks = nodes * report.profile.ranks_per_node;
  if (options.ranks > std::int64_t{1} << 30)
    throw ConfigError(fmt::format("--nodes {}: more than 2^30 ranks; give fewer", nodes));
  options.memory = report.profile.memory;
  options.compute_seconds = arguments.compute_seconds;
  options.evaluates = !config.data.eval.empty();
  options.work.shape = {std::max<std::int64_t>(1, config.train.micro_batch), config.data.sequence_length,
                        config.train.recompute, config.train.loss_chunk, config.data.documents.packing};
  options.work.micro_batches = std::max<std::int64_t>(1, config.train.accumulate);
  options.work.precision = config.train.precision;
  options.work.optimizer = config.optimizer.kind;
  options.work.every = config.federation.every;
  options.work.prefetch = config.parallel.prefetch;
  if (config.train.reduce_precision == Precision::bf16) options.work.gradient_bytes = sizeof(bf16);
  const auto left_out = std::make_shared<std::size_t>(0);
  if (config.train.batch > 0)
    options.share = [train = config.train, left_out](std::int64_t ranks) -> std::optional<PlanOptions::Share> {
      try {
        const GroupShare share = group_share(train, static_cast<int>(ranks));
        return PlanOptions::Share{share.width(), share.micro_batches(), share.batch};
      } catch (const ConfigError&) {
        ++*left_out;
        return std::nullopt;
      }
    };
  report.rows = plan(options);
  report.left_out = *left_out;
  return report;
}

int run(const Arguments& arguments) {
  const PlanReport report = make_report(arguments);
  if (!arguments.plot.empty()) write_text_file(arguments.plot, plan_svg(report));
  if (arguments.json)
    fmt::print("{}\n", plan_json(report));
  else
    print_plan(report, static_cast<std::size_t>(arguments.rows));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_plan(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      program.add_subcommand("plan", "Tokens per second, bytes and memory of every strategy on a system");
  command->footer(
      "Examples: atoll plan --preset 8b --system leonardo --nodes 128 --micro-batch 2 --set train.precision=bf16\n"
      "          atoll plan run.toml --system measured.toml --nodes 2     (of atoll doctor --network measured.toml)\n"
      "          atoll plan --paper                                       the published experiment\n"
      "Systems that ship: dgx-h100, frontier, leonardo, lumi-g, marenostrum5, two-laptops. What is assumed is "
      "printed;\n"
      "docs/planner.md says how each number is made.");
  auto* subject = command->add_option("subject", arguments->subject,
                                      "A run configuration, a Hugging Face config.json, a model file, or a run folder");
  command->add_option("--preset", arguments->preset, "A preset instead: tiny, 125m, 1b, 8b or 70b")->excludes(subject);
  command->add_option("--system", arguments->system, "A system's name, or a profile of its own (a .toml file)");
  command->add_option("--nodes", arguments->nodes, "Nodes of the run; default: all of the system")->check(positive());
  command->add_option("--ranks-per-node", arguments->ranks_per_node, "Instead of the system's")->check(positive());
  const auto option = [&](const char* name, double& value, const char* text) {
    command->add_option(name, value, text)->check(not_negative());
  };
  option("--intra-latency", arguments->intra_latency, "Seconds of a short message inside a node");
  option("--intra-bandwidth", arguments->intra_bandwidth, "Bytes per second that each rank sends inside its node");
  option("--inter-latency", arguments->inter_latency, "Seconds of a short message between nodes");
  option("--inter-bandwidth", arguments->inter_bandwidth, "Bytes per second that a network card really sends");
  option("--flops", arguments->flops, "Operations per second that a rank really reaches");
  option("--compute-seconds", arguments->compute_seconds,
         "Instead of that: measured seconds of forward and backward of one micro-batch");
  command->add_option("--micro-batch", arguments->micro_batch, "Sequences a rank computes at once")->check(positive());
  command->add_option("--every", arguments->every, "H: optimizer steps between two averages")->check(positive());
  command
      ->add_option("--transport", arguments->transport,
                   "mpi: atoll's collectives over MPI; ring: rings over all network cards, as NCCL's")
      ->check(CLI::IsMember({"mpi", "ring"}));
  command
      ->add_option("--reduce-precision", arguments->reduce_precision,
                   "Of the gradients that are sent: --set train.reduce_precision")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command
      ->add_option("--set", arguments->overrides,
                   "Override a key of the run configuration or of the system: --set data.sequence_length=4096, --set "
                   "inter.cards=2; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--rows", arguments->rows, "Rows to print")->check(positive());
  command->add_flag("--paper", arguments->paper, "The experiment of arXiv:2609.20359, beside what it reports");
  command->add_option("--plot", arguments->plot, "Write a plot of the strategies' scaling to this SVG file");
  command->add_flag("--json", arguments->json, "Print all rows as JSON");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
