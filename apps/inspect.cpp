/// `atoll inspect`: parameters, units and memory of a configuration, without allocating any of it.
/// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/inspect_checkpoint.hpp"
#include "apps/shared_options.hpp"
#include "apps/subject.hpp"
#include "io/checkpoint/reader.hpp"
#include "io/checkpoint/run_checkpoints.hpp"
#include "io/data/step_schedule.hpp"
#include "io/report/progress.hpp"
#include "model/memory_plan.hpp"
#include "model/parameters.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments : SubjectArguments {
  int ranks = 0;
  bool json = false, verify = false;
};

/// The fewest ranks that the keys of [parallel] allow.
int fewest_ranks(const ParallelOptions& parallel) {
  if (!parallel.group_sizes.empty())
    return std::accumulate(parallel.group_sizes.begin(), parallel.group_sizes.end(), 0);
  return std::max(1, parallel.groups) * std::max({1, parallel.group_size, parallel.shard_size});
}

struct Inspection {
  Subject subject;
  ProcessGrid grid;
  LlamaShape shape;
  std::int64_t accumulate = 1;
  MemoryPlan memory;
  std::uint64_t checkpoint = 0, checkpoint_in_round = 0;  ///< bytes of a save at the end of a round, and inside one
};

/// What ranks of the group of `grid` need.
Inspection inspect_group(const Subject& subject, const ProcessGrid& grid) {
  const RunConfig& config = subject.config;
  const StepSchedule schedule(grid, config.train);
  MemoryOptions options;
  options.shape = {schedule.width(), config.data.sequence_length, config.train.recompute, config.train.loss_chunk,
                   config.data.documents.packing};
  options.group = grid.shape();
  options.groups = grid.number_of_groups();
  if (!grid.equal_groups()) options.unequal_groups = grid.groups();
  options.outer = outer_options(config.federation);
  options.after = config.parallel.reshard_after_forward ? AfterForward::reshard : AfterForward::keep;
  options.prefetch = config.parallel.prefetch;
  options.micro_batches = schedule.micro_batches();
  if (!kernels_on_host && config.parallel.collectives.backend == Backend::mpi) {
    options.staged = true;
    options.nccl = false;
  }
  options.precision = config.train.precision;
  options.wire = config.train.reduce_precision == Precision::bf16 ? Wire::bf16 : Wire::exact;
  options.optimizer = config.optimizer.kind;
  options.evaluates = !config.data.eval.empty();
  const std::uint64_t element = config.train.precision == Precision::fp64 ? 8 : 4;
  const auto parameters = static_cast<std::uint64_t>(parameter_count(subject.model));
  const auto contents = [&](bool in_round) {
    return checkpoint_contents(config.federation, config.optimizer.kind, grid.number_of_groups(), in_round,
                               config.checkpoint.moments);
  };
  const bool federated = is_federated(config.parallel.strategy);
  options.checkpoint_copy = checkpoint_copy_bytes(config, subject.model, grid);
  return {subject,
          grid,
          options.shape,
          schedule.micro_batches(),
          plan_memory(subject.model, options),
          element * checkpoint_elements(contents(false), parameters),
          element * checkpoint_elements(contents(federated), parameters)};
}

/// Of the group whose ranks need the most memory, where groups differ.
Inspection inspect(const Arguments& arguments) {
  const Subject subject = find_subject(arguments);
  const ParallelOptions& parallel = subject.config.parallel;
  if (parallel.group_by == ParallelOptions::GroupBy::node || !parallel.group_file.empty())
    throw ConfigError(
        "the groups of parallel.group_by and parallel.group_file follow from where a job runs; for inspect give the "
        "ranks of a node or cell instead, as in --set parallel.group_by= --set parallel.group_size=4");
  const int ranks = arguments.ranks > 0 ? arguments.ranks : fewest_ranks(parallel);
  const ProcessGrid grid(parallel, ranks, 0);
  Inspection most = inspect_group(subject, grid);
  std::vector<GroupShape> seen{grid.shape()};
  for (int g = 1; g < grid.number_of_groups() && !grid.equal_groups(); ++g) {
    const GroupShape& shape = grid.groups()[static_cast<std::size_t>(g)];
    if (std::find(seen.begin(), seen.end(), shape) != seen.end()) continue;
    seen.push_back(shape);
    Inspection other = inspect_group(subject, ProcessGrid(parallel, ranks, grid.first_rank(g)));
    if (other.memory.peak() > most.memory.peak()) most = std::move(other);
  }
  return most;
}

// --- output

/// "8,030,261,248".
std::string grouped(std::uint64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string_view name_of(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : precision == Precision::bf16 ? "bf16" : "fp64";
}

/// Parameters of embedding, one block, and head with the final norm.
struct Counts {
  std::uint64_t embedding, block, head, final_norm, total;
};

Counts count(const LlamaConfig& model) {
  const auto c = static_cast<std::uint64_t>(model.hidden_size), v = static_cast<std::uint64_t>(model.vocab_size);
  const auto total = static_cast<std::uint64_t>(parameter_count(model));
  const std::uint64_t embedding = v * c, head = model.tie_word_embeddings ? 0 : v * c;
  return {embedding, (total - embedding - head - c) / static_cast<std::uint64_t>(model.num_hidden_layers), head, c,
          total};
}

/// A unit, or neighbours of equal size.
struct UnitRow {
  std::string name;
  std::uint64_t parameters, padded, shard;
};

std::vector<UnitRow> unit_rows(const Inspection& inspection) {
  std::vector<UnitRow> rows;
  for (const UnitSpec& unit : llama_units(inspection.subject.model)) {
    const ShardLayout layout(unit, inspection.grid.shape().shards);
    rows.push_back({unit.name, layout.size(), layout.padded_size(), layout.shard_size()});
  }
  return rows;
}

// Of a rank on a CPU: the program, its libraries and MPI's own buffers. 57 to 75 MiB were seen with MPICH and oneDNN.
constexpr std::uint64_t program_bytes = 64 << 20;
std::uint64_t process_bytes(const MemoryPlan& memory) { return memory.peak() + program_bytes; }

void print(const Inspection& inspection) {
  const LlamaConfig& model = inspection.subject.model;
  const RunConfig& config = inspection.subject.config;
  const Counts counts = count(model);
  fmt::print("model        {} blocks of {} (MLP {}), {} heads of {}, {} of them for keys and values, vocabulary {}\n",
             model.num_hidden_layers, model.hidden_size, model.intermediate_size, model.num_attention_heads,
             model.head_dim, model.num_key_value_heads, model.vocab_size);
  fmt::print("parameters   {} = {} (embedding) + {} x {} (blocks) + {} (head{}) + {} (final norm)\n",
             grouped(counts.total), grouped(counts.embedding), model.num_hidden_layers, grouped(counts.block),
             grouped(counts.head), model.tie_word_embeddings ? ", tied" : "", grouped(counts.final_norm));
  if (inspection.subject.file)
    fmt::print("trained      {} optimizer steps, {} tokens\n",
               grouped(static_cast<std::uint64_t>(inspection.subject.file->step)),
               grouped(static_cast<std::uint64_t>(inspection.subject.file->tokens)));
  fmt::print("grid         {} ({})\n", inspection.grid.describe(), name_of(config.parallel.strategy));
  fmt::print("micro-batch  {} x {} tokens a rank, {} of them a step; {}, recompute {}{}\n\n",
             inspection.shape.micro_batch, inspection.shape.sequence_length, inspection.accumulate,
             name_of(config.train.precision), config.train.recompute == Recompute::none ? "none" : "block",
             inspection.shape.packing == Packing::documents ? ", attention inside documents" : "");

  const std::vector<UnitRow> rows = unit_rows(inspection);
  fmt::print("{:<16}{:>18}{:>18}{:>18}\n", "unit", "parameters", "padded", "shard of a rank");
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].parameters == rows[begin].parameters &&
           rows[end].name.substr(0, 5) == rows[begin].name.substr(0, 5))
      ++end;
    const std::string name = end == begin + 1 ? rows[begin].name : fmt::format("{} .. {}", rows[begin].name, end - 2);
    fmt::print("{:<16}{:>18}{:>18}{:>18}\n", name, grouped(rows[begin].parameters), grouped(rows[begin].padded),
               grouped(rows[begin].shard));
  }

  const MemoryPlan& memory = inspection.memory;
  fmt::print("\nmemory of a rank\n");
  for (int i = 0; i < memory_uses; ++i) {
    const auto use = static_cast<MemoryUse>(i);
    if (memory.of(use) > 0) fmt::print("  {:<16}{:>12}\n", name_of(use), human_bytes(memory.of(use)));
  }
  fmt::print("  {:<16}{:>12}\n", "total", human_bytes(memory.total()));
  const auto largest = std::max_element(memory.temporaries.begin(), memory.temporaries.end(),
                                        [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  fmt::print("  {:<16}{:>12}  with {}\n", "peak", human_bytes(memory.peak()), largest->what);
  if (kernels_on_host)
    fmt::print("  {:<16}{:>12}  with the program, its libraries and MPI's own buffers, about {}\n", "process",
               human_bytes(process_bytes(memory)), human_bytes(program_bytes));
  fmt::print("\ncheckpoint   {} a save{}\n", human_bytes(inspection.checkpoint),
             inspection.checkpoint_in_round == inspection.checkpoint
                 ? ""
                 : fmt::format(" at the end of a round, {} inside one", human_bytes(inspection.checkpoint_in_round)));
  fmt::print("{}Not counted: the data set{}.\n",
             memory.of(MemoryUse::network) > 0 ? "NCCL's buffers are an estimate. " : "",
             kernels_on_host ? "" : ", and what the device's libraries and MPI take themselves");
}

Json to_json(const Inspection& inspection) {
  const Subject& subject = inspection.subject;
  const Counts counts = count(subject.model);
  const ProcessGrid& grid = inspection.grid;
  Json out;
  out["model"] = Json::parse(to_hugging_face_json(subject.model));
  out["parameters"] = {{"total", counts.total}, {"embedding", counts.embedding},
                       {"block", counts.block}, {"blocks", subject.model.num_hidden_layers},
                       {"head", counts.head},   {"final_norm", counts.final_norm}};
  if (subject.file) out["trained"] = {{"step", subject.file->step}, {"tokens", subject.file->tokens}};
  out["grid"] = {{"ranks", grid.world_size()},
                 {"strategy", name_of(subject.config.parallel.strategy)},
                 {"groups", grid.number_of_groups()},
                 {"replicas", grid.shape().replicas},
                 {"shards", grid.shape().shards}};
  out["micro_batch"] = {{"sequences", inspection.shape.micro_batch},
                        {"sequence_length", inspection.shape.sequence_length},
                        {"accumulate", inspection.accumulate},
                        {"packing", inspection.shape.packing == Packing::documents ? "documents" : "concatenate"}};
  out["units"] = Json::array();
  for (const UnitRow& row : unit_rows(inspection))
    out["units"].push_back(
        Json{{"name", row.name}, {"parameters", row.parameters}, {"padded", row.padded}, {"shard", row.shard}});
  Json& memory = out["memory"];  // bytes of one rank
  for (int i = 0; i < memory_uses; ++i) {
    std::string name(name_of(static_cast<MemoryUse>(i)));
    std::replace(name.begin(), name.end(), ' ', '_');
    memory[name] = inspection.memory.of(static_cast<MemoryUse>(i));
  }
  memory["total"] = inspection.memory.total();
  memory["peak"] = inspection.memory.peak();
  if (kernels_on_host) memory["process"] = process_bytes(inspection.memory);
  out["checkpoint"] = {{"bytes", inspection.checkpoint}, {"bytes_in_round", inspection.checkpoint_in_round}};
  return out;
}

int run(const Arguments& arguments) {
  if (const std::string folder = checkpoint_of(arguments.subject); !arguments.subject.empty() && !folder.empty())
    return inspect_checkpoint(folder, arguments.verify, arguments.json);
  if (arguments.verify)
    throw ConfigError(fmt::format("--verify checks a checkpoint; \"{}\" is none (no COMMIT and MANIFEST.json in it)",
                                  arguments.subject));
  const Inspection inspection = inspect(arguments);
  if (arguments.json)
    fmt::print("{}\n", to_json(inspection).dump(2));
  else
    print(inspection);
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_inspect(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      program.add_subcommand("inspect", "Parameters, units and memory per rank, without allocating any of it");
  command->footer(
      "Examples: atoll inspect run.toml --ranks 64\n"
      "          atoll inspect run/checkpoints/latest --verify\n"
      "          atoll inspect --preset 8b --ranks 512 --set data.sequence_length=8192 --set train.recompute=block");
  auto* subject = command->add_option(
      "subject", arguments->subject,
      "A run configuration, a Hugging Face config.json, a model file, a run folder, or a checkpoint");
  command->add_option("--preset", arguments->preset, "A preset instead: tiny, 125m, 1b, 8b or 70b")->excludes(subject);
  command->add_option("--ranks", arguments->ranks, "Ranks of the run; default: the fewest that [parallel] allows")
      ->check(positive());
  command
      ->add_option("--set", arguments->overrides,
                   "Override a key of the run configuration: --set train.batch=64; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--verify", arguments->verify, "Of a checkpoint: read and check every byte");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
