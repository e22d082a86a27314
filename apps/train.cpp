/// `atoll train`: from a run configuration to a trained model. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/parallel_command.hpp"
#include "apps/stop_signal.hpp"
#include "io/checkpoint/run_checkpoints.hpp"
#include "io/data/batch_source.hpp"
#include "io/data/data_sets.hpp"
#include "io/data/step_schedule.hpp"
#include "io/pending_file.hpp"
#include "io/report/run_log.hpp"
#include "io/saved_model.hpp"
#include "io/version.hpp"
#include "model/initialise.hpp"
#include "model/lr_schedule.hpp"
#include "model/time_limit.hpp"
#include "parallel/stop_agreement.hpp"
#include "parallel/topology.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unistd.h>

namespace atl {

namespace {

struct Arguments {
  std::string path;
  std::vector<std::string> overrides;
  bool show_config = false;
};

/// StopWish::reason of a time limit; signals have their numbers.
constexpr int time_is_over = -1;

std::string tell(const StopWish& wish) {
  return fmt::format("{} on rank {}", wish.reason == time_is_over ? "the time limit" : name_of_signal(wish.reason),
                     wish.rank);
}

std::string model_path(const RunConfig& config) { return config.run.dir + "/model.h5"; }

/// Makes the run's folder where it is missing; what an earlier run left there stays until nothing can be wrong any
/// more.
void require_folder(const RunConfig& config) {
  std::error_code error;
  std::filesystem::create_directories(config.run.dir, error);
  if (!error && ::access(config.run.dir.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error)
    throw ConfigError(fmt::format("run.dir = \"{}\": cannot write there ({}); choose a folder that you may write to",
                                  config.run.dir, error.message()));
  if (!config.model.init_from.empty() &&
      std::filesystem::equivalent(find_saved_model(config.model.init_from), model_path(config), error))
    throw ConfigError(
        fmt::format("model.init_from = \"{}\" is the model of run.dir = \"{}\" itself, which this run would replace; "
                    "choose another run.dir",
                    config.model.init_from, config.run.dir));
}

/// Leaves the configuration in force in the run's folder, for people and to run it again. The model of an earlier run
/// goes: it would stand beside a configuration that did not make it.
void start_folder(const RunConfig& config) {
  std::filesystem::remove(model_path(config));
  PendingFile file(config.run.dir + "/run.toml");
  std::ofstream text(file.temporary());
  text << show(config) << std::flush;
  if (!text) throw Error(fmt::format("{}: cannot be written: {}", file.path(), std::strerror(errno)));
  file.publish();
}

RunRecord run_record(const RunConfig& config, const ProcessGrid& grid, const Runtime& runtime) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const GroupShape& group : grid.groups())
    groups.push_back(nlohmann::ordered_json{{"replicas", group.replicas}, {"shards", group.shards}});
  return {to_json(config),
          {{"ranks", grid.world_size()}, {"groups", groups}},
          versions(runtime.mpi_version()),
          git_revision(),
          config.run.seed};
}

template <class T>
int train(const RunConfig& config, const LlamaConfig& llama, const Runtime& runtime, const StopSignal& signal,
          TimeLimit& limit) {
  const Exec exec;
  const Communicator world(runtime.world());
  const std::vector<int> nodes = find_nodes(world);
  const ProcessGrid grid = make_grid(config.parallel, world, nodes);
  std::optional<StepSchedule> made_schedule;
  collectively(world, [&] {
    made_schedule.emplace(grid, config.train);
    schedule_phases(config.schedule, config.train.steps);
    if (world.rank() == 0) require_folder(config);
  });
  const StepSchedule& schedule = *made_schedule;
  const Communicators communicators(runtime.world(), grid);
  const CollectivesOptions collectives = choose_backend(config.parallel.collectives, world);
  const auto shard = make_collectives(communicators.shard, collectives);
  const auto replica = make_collectives(communicators.replica, collectives);
  FederationLinks links(grid, communicators, FederationLinks::most_sets, collectives);
  StopAgreement agreement(grid, communicators);
  if (grid.number_of_groups() > 1) limit.allow_steps(3);

  const DataSets data = open_data_sets(config, llama.vocab_size, world);
  std::optional<BatchSource> made_source;
  std::optional<EvaluationSource> evaluation;
  collectively(world, [&] {
    made_source.emplace(data.train, config.data.sequence_length, static_cast<std::uint64_t>(config.run.seed),
                        config.data.documents);
    made_source->require_sequences(schedule.world_batch());
    if (data.eval)
      evaluation.emplace(data.eval, config.data.sequence_length, world.size(), world.rank(), schedule.least_width(),
                         config.eval.batches * schedule.world_batch(), 0, config.data.documents);
  });
  const BatchSource& source = *made_source;

  ShardedParameters<T> parameters(llama_units(llama), *shard, *replica,
                                  config.parallel.reshard_after_forward ? AfterForward::reshard : AfterForward::keep,
                                  config.parallel.prefetch,
                                  config.train.reduce_precision == Precision::bf16 ? Wire::bf16 : Wire::exact);
  if (config.model.init_from.empty())
    initialise(exec, llama, static_cast<std::uint64_t>(config.run.seed), parameters);
  else
    collectively(world, [&] { load_model(config.model.init_from, parameters); });
  Llama<T> model(llama,
                 {schedule.width(), config.data.sequence_length, config.train.recompute, config.train.loss_chunk,
                  config.data.documents.packing},
                 parameters);
  Optimizer<T> optimizer(config.optimizer, parameters, communicators.shard);
  Federation<T> federation(config.federation, config.train.steps, grid, communicators, links, *replica, parameters);
  const TrainingState<T> state{parameters, optimizer, federation};
  RunCheckpoints<T> checkpoints(config, llama, data.train, grid, communicators);
  const TrainingPosition start = checkpoints.resume(exec, state);
  limit.expect_save(checkpoints.expected_bytes());

  std::optional<RunLog> made_log;
  collectively(world, [&] {
    if (world.rank() == 0) {
      start_folder(config);
      checkpoints.start_folder();
    }
    made_log.emplace(
        RunLog::Options{config.run.dir, config.train.steps, config.log.every, world.rank(),
                        static_cast<double>(schedule.world_batch()) / static_cast<double>(schedule.group_batch()),
                        start.step, start.tokens},
        RunLog::Traffic{*shard, *replica, links, communicators});
  });
  RunLog& log = *made_log;
  const auto run_evaluation = [&](std::int64_t step) {
    // At the start and after an aggregation all groups are equal already: averaging them again would send the model
    // across groups for nothing, and round what is evaluated away from what is saved.
    std::optional<TemporaryAverage<T>> average;
    if (step > 0 && !federation.due(step)) average.emplace(exec, federation, parameters);
    log.eval(step, evaluate<T>(exec, model, world, evaluation->micro_batches(),
                               [&](std::int64_t i) { return evaluation->batch(i); }));
  };
  spdlog::info("{} parameters; {}; {} sequences of {} tokens a step; {} steps", parameters.parameter_count(),
               grid.describe(), schedule.world_batch(), config.data.sequence_length, config.train.steps);
  if (source.sources() > 1)
    for (const auto& line : source.describe(config.train.steps * schedule.world_batch())) spdlog::info("{}", line);
  if (!kernels_on_host) spdlog::info("communication: {}", describe(collectives));
  if (const std::string warning = node_warning(config.parallel, grid, nodes); !warning.empty()) spdlog::warn(warning);
  if (data.language)
    spdlog::info("synthetic language: floor perplexity {:.4f} with the context of a sequence, {:.4f} from one token",
                 data.language->floor, data.language->bigram);
  if (const std::string warning = gemm_warning(element_of<T>()); !warning.empty()) spdlog::warn(warning);
  log.start(run_record(config, grid, runtime));
  if (data.language) log.language(*data.language);
  if (start.step > 0) log.resumed(checkpoints.resumed_from(), checkpoints.changes());
  if (evaluation && start.step == 0) run_evaluation(0);

  const auto stop_wish = [&] {
    StopWish mine{signal.received(), world.rank()};
    if (!mine && limit.reached()) mine.reason = time_is_over;
    return agreement.with_told(mine);
  };
  std::vector<Batch> batches(static_cast<std::size_t>(schedule.micro_batches()));
  std::int64_t cursor = start.cursor;  // sequences consumed
  for (std::int64_t step = start.step + 1; step <= config.train.steps; ++step) {
    const Stopwatch watch;
    for (std::size_t m = 0; m < batches.size(); ++m)
      source.fill(schedule.positions(cursor, static_cast<std::int64_t>(m)), batches[m]);
    cursor += schedule.world_batch();
    const double lr = learning_rate(config.schedule, config.optimizer.lr, step - 1, config.train.steps);
    const StepResult result = training_step(exec, model, optimizer, communicators.group, batches, lr, stop_wish);
    federation.count_tokens(result.tokens);
    log.step(step, federation.round() + 1, result, lr);

    const bool round_ends = federation.due(step), last = step == config.train.steps;
    const bool evaluates = evaluation && (last || (config.eval.every > 0 && step % config.eval.every == 0));
    const bool saves = checkpoints.due(step);
    agreement.end_step(step, result.stop_wish, round_ends || evaluates || saves);
    // Several groups exchange their losses with the aggregation; one alone has nobody to wait for.
    if (round_ends || (!federation.several_groups() && step % config.log.every == 0)) log.flush(federation);
    if (round_ends) {
      log.round(federation.aggregate(exec, parameters), step);
      if (config.federation.inner_state == FederationOptions::InnerState::reset) optimizer.reset(exec);
    }
    if (evaluates) run_evaluation(step);
    if (saves) checkpoints.save(exec, state, step, cursor, log);
    checkpoints.poll(log);
    limit.step(watch.seconds());
    limit.save(checkpoints.longest_save());
    if (agreement.stops_after(step) && !last) {
      checkpoints.save(exec, state, step, cursor, log);
      checkpoints.finish(log);
      log.finish();
      spdlog::warn("stopped after step {} of {}: {}", step, config.train.steps, tell(agreement.reason()));
      spdlog::info("the same command goes on from there");
      return static_cast<int>(ExitCode::stopped);
    }
  }
  log.finish();
  const std::string path = model_path(config);
  save_model(exec, path, model_info(config, llama, config.train.steps, log.tokens()), parameters, grid, communicators);
  spdlog::info("model saved as {}", path);
  checkpoints.finish(log);
  return static_cast<int>(ExitCode::done);
}

int run(const Arguments& arguments) {
  if (arguments.show_config) {
    fmt::print("{}", show(load_run_config(arguments.path, arguments.overrides)));
    return static_cast<int>(ExitCode::done);
  }
  return on_all_ranks([&](const Runtime& runtime) {
    const StopSignal signal;
    TimeLimit limit;  // rank 0 alone has one
    RunConfig config;
    LlamaConfig llama;
    {
      const Communicator world(runtime.world());
      collectively(world, [&] {
        config = load_run_config(arguments.path, arguments.overrides);
        llama = resolve_model(config);
        start_logging(world.rank(), config.log.level);
        if (world.rank() == 0) limit = TimeLimit(config.train.time_limit);
        set_gemm_tf32(config.train.tf32);
      });
      require_equal(world, std::to_string(hash_of(config)), "the run configuration");
    }
    switch (config.train.precision) {
      case Precision::fp64:
        return train<double>(config, llama, runtime, signal, limit);
      case Precision::bf16:
        return train<bf16>(config, llama, runtime, signal, limit);
      case Precision::fp32:
        break;
    }
    return train<float>(config, llama, runtime, signal, limit);
  });
}

}  // namespace

void add_train(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("train", "Train a model as a run configuration says");
  command->footer(
      "Start it with one rank a GPU, or a core: mpiexec -n 4 atoll train run.toml, or srun atoll train run.toml\n"
      "Writes metrics.jsonl, run.toml, model.h5 and checkpoints into run.dir, and goes on from the newest of them.");
  command->add_option("config", arguments->path, "Run configuration (TOML); see docs/configuration.md")->required();
  command->add_option("--set", arguments->overrides, "Override a key: --set train.steps=100; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option_function<std::string>(
      "--init-from",
      [arguments](const std::string& path) {
        arguments->overrides.push_back("model.init_from=" + nlohmann::json(path).dump());
      },
      "Start a new run from a saved model, a checkpoint or safetensors: as --set model.init_from=...");
  command
      ->add_option_function<std::string>(
          "--time-limit",
          [arguments](const std::string& text) { arguments->overrides.push_back("train.time_limit=" + text); },
          "How long the run may take, as 1h30m: the same as --set train.time_limit")
      ->type_name("TIME");
  command->add_flag("--show-config", arguments->show_config, "Print every value in force, as TOML, and stop");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
