/// `atoll generate`: text that a saved model writes. SPDX-License-Identifier: Apache-2.0
#include "model/generate.hpp"

#include "apps/commands.hpp"
#include "apps/parallel_command.hpp"
#include "apps/shared_options.hpp"
#include "apps/text_codec.hpp"
#include "io/config/run_config.hpp"
#include "io/data/tokenizer_of_data.hpp"
#include "io/huggingface/companion_files.hpp"
#include "io/report/run_log.hpp"
#include "io/saved_model.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

namespace atl {

namespace {

constexpr std::int64_t most_by_default = 256;

struct Arguments {
  std::string path, tokenizer;
  std::vector<std::string> prompts, prompt_files;
  std::int64_t max_tokens = 0;  ///< 0: most_by_default, or as many as the model has positions
  GenerateOptions generate;
  bool greedy = false, json = false, no_echo = false;
  Precision precision = Precision::fp32;
};

/// As --tokenizer says; else the tokenizer.json in the model's folder, or that of the token file that the run was
/// evaluated on.
std::string tokenizer_of(const Arguments& arguments, const std::string& model, const ModelInfo& info) {
  namespace fs = std::filesystem;
  if (!arguments.tokenizer.empty()) return arguments.tokenizer;
  if (const fs::path beside = fs::path(folder_of_companions(model)) / "tokenizer.json"; fs::exists(beside))
    return beside.string();
  if (const std::string name = tokenizer_of_data(info.eval); !name.empty()) return name;
  throw ConfigError(fmt::format("{} does not say its tokenizer{}; give --tokenizer bytes, a tokenizer.json, or ids",
                                model, info.eval == synthetic_data ? " (it learnt the synthetic language: ids)" : ""));
}

std::vector<std::string> read_prompts(const Arguments& arguments) {
  std::vector<std::string> prompts = arguments.prompts;
  for (const std::string& path : arguments.prompt_files) {
    if (path != "-" && std::filesystem::is_directory(path))
      throw ConfigError(fmt::format("--prompt-file {}: is a folder; name a file with a prompt", path));
    std::ifstream file;
    if (path != "-") file.open(path, std::ios::binary);
    std::istream& in = path == "-" ? std::cin : file;
    if (!in) throw ConfigError(fmt::format("--prompt-file {}: cannot be read", path));
    prompts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  if (prompts.empty()) prompts.emplace_back();  // a document from its beginning
  return prompts;
}

/// Where a sequence ends: what the files beside the model say, or those beside its tokenizer, as transformers does; or
/// else what the tokenizer itself says. --stop-token adds to it.
std::vector<std::int32_t> stop_tokens_of(const Arguments& arguments, const std::string& model,
                                         const std::string& tokenizer, const TextCodec& codec,
                                         std::int64_t vocab_size) {
  std::vector<std::int32_t> stops = arguments.generate.stop_tokens;
  for (const std::int32_t id : stops)
    if (id < 0 || id >= vocab_size)
      throw ConfigError(
          fmt::format("--stop-token {} is no token of the model; its ids are in [0, {})", id, vocab_size));
  std::vector<std::int64_t> said = end_tokens_beside(folder_of_companions(model));
  if (said.empty() && std::filesystem::is_regular_file(tokenizer))
    said = end_tokens_beside(folder_of_companions(tokenizer));
  if (said.empty()) said.assign(codec.end_tokens.begin(), codec.end_tokens.end());
  for (const std::int64_t id : said) {
    if (id >= 0 && id < vocab_size)
      stops.push_back(static_cast<std::int32_t>(id));
    else
      spdlog::warn("eos_token_id {} of {} is no token of the model, whose ids are in [0, {})", id, model, vocab_size);
  }
  return stops;
}

/// What all ranks are told by rank 0, which alone reads.
struct Task {
  std::string model;
  ModelInfo info;
  TextCodec codec;
  bool ids = false;
  std::vector<std::string> prompts;
  std::vector<std::vector<std::int32_t>> tokens;
};

/// What rank 0 prints: one sequence as it grows, others when those before them are complete.
class Printer {
 public:
  Printer(const Arguments& arguments, const Task& task)
      : arguments_(arguments), prompts_(task.prompts), ids_(task.ids) {
    for (const auto& prompt : task.tokens)
      for (std::size_t sample = 0; sample < samples(); ++sample) texts_.emplace_back(task.codec, prompt);
    if (!arguments.json) begin();
  }

  void token(std::size_t sequence, std::int32_t token, bool last) {
    Text& text = texts_[sequence];
    text.tokens.push_back(token);
    const auto& stops = arguments_.generate.stop_tokens;
    text.stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
    if (!text.stopped) text.complete += text.stream.add(token);
    if (last) text.complete += text.stream.finish();
    text.ended = last;
    while (live_ < texts_.size()) {
      Text& shown = texts_[live_];
      if (!arguments_.json) {
        std::cout << shown.complete.substr(shown.printed) << std::flush;
        shown.printed = shown.complete.size();
      }
      if (!shown.ended) return;
      end(shown);
      if (++live_ < texts_.size() && !arguments_.json) begin();
    }
  }

 private:
  struct Text {
    Text(const TextCodec& codec, const std::vector<std::int32_t>& prompt) : stream(codec, prompt) {}
    std::vector<std::int32_t> tokens;
    TextStream stream;
    std::string complete;  ///< whole characters
    std::size_t printed = 0;
    bool ended = false, stopped = false;
  };
  std::size_t samples() const { return static_cast<std::size_t>(arguments_.generate.samples); }

  void begin() const {
    if (texts_.size() > 1)
      std::cout << fmt::format("--- prompt {}, sample {} ---\n", live_ / samples() + 1, live_ % samples() + 1);
    if (!arguments_.no_echo) std::cout << prompts_[live_ / samples()] << (ids_ ? " " : "");
    std::cout << std::flush;
  }
  void end(const Text& text) const {
    if (arguments_.json) {
      const nlohmann::ordered_json out{{"prompt", prompts_[live_ / samples()]},
                                       {"sample", live_ % samples()},
                                       {"text", text.complete},
                                       {"tokens", text.tokens},
                                       {"finish", text.stopped ? "stop" : "length"}};
      std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    std::cout << std::endl;
  }

  const Arguments& arguments_;
  const std::vector<std::string>& prompts_;
  bool ids_;  // numbers, with a space between prompt and text
  std::vector<Text> texts_;
  std::size_t live_ = 0;  // the sequence that is printed now
};

template <class T>
int generate_text(const Arguments& arguments, const Task& task, const Runtime& runtime) {
  const Exec exec;
  const ProcessGrid grid(ParallelOptions{}, runtime.size(), runtime.rank());  // one group, sharded over all ranks
  const Communicators communicators(runtime.world(), grid);
  const Communicator& world = communicators.world;
  const CollectivesOptions collectives = choose_backend(ParallelOptions{}.collectives, world);
  const auto shard = make_collectives(communicators.shard, collectives);
  const auto replica = make_collectives(communicators.replica, collectives);
  ShardedParameters<T> parameters(llama_units(task.info.config), *shard, *replica,
                                  world.size() == 1 ? AfterForward::keep : AfterForward::reshard);
  collectively(world, [&] { load_model(task.model, parameters); });
  std::optional<Printer> printer;
  if (world.rank() == 0) printer.emplace(arguments, task);
  const GenerateResult result = generate<T>(exec, task.info.config, parameters, world, task.tokens, arguments.generate,
                                            [&](std::size_t sequence, std::int32_t token, bool last) {
                                              if (printer) printer->token(sequence, token, last);
                                            });
  std::size_t tokens = 0;
  for (const Generated& sequence : result.sequences) tokens += sequence.tokens.size();
  tokens -= result.sequences.size();  // the first of each follows from the prompt
  if (result.steps > 0)
    spdlog::info("prompts {:.2f} s; {:.1f} tokens/s, {:.2f} GB/s of weights", result.prefill_seconds,
                 static_cast<double>(tokens) / result.decode_seconds,
                 static_cast<double>(result.steps * parameter_count(task.info.config)) * sizeof(T) /
                     result.decode_seconds / 1e9);
  return static_cast<int>(ExitCode::done);
}

Task make_task(Arguments& arguments, const Communicator& world) {
  Task task;
  collectively(world, [&] {
    start_logging(world.rank(), "info");
    check(arguments.generate.sampling);
    task.model = find_saved_model(arguments.path);
    task.info = read_model_info(task.model);
    const std::string tokenizer = tokenizer_of(arguments, task.model, task.info);
    task.ids = tokenizer == "ids";
    task.codec = make_text_codec(tokenizer, task.info.config.vocab_size);
    arguments.generate.stop_tokens =
        stop_tokens_of(arguments, task.model, tokenizer, task.codec, task.info.config.vocab_size);
  });
  nlohmann::json read = nlohmann::json::array();
  collectively(world, [&] {
    if (world.rank() != 0) return;
    for (const std::string& prompt : read_prompts(arguments)) {
      const auto tokens = task.codec.encode(prompt);
      const auto n = static_cast<std::int64_t>(tokens.size());
      if (n == 0) throw ConfigError("the prompt has no token; with --tokenizer ids give --prompt at least one id");
      const std::int64_t positions = task.info.config.max_position_embeddings;
      if (n + std::max<std::int64_t>(arguments.max_tokens, 1) > positions)
        throw ConfigError(
            fmt::format("a prompt of {} tokens and {} new ones (--max-tokens) are more than the {} positions of the "
                        "model (max_position_embeddings)",
                        n, std::max<std::int64_t>(arguments.max_tokens, 1), positions));
      task.prompts.push_back(prompt);
      read.push_back(tokens);
    }
  });
  task.tokens = nlohmann::json::parse(world.broadcast(read.dump())).get<std::vector<std::vector<std::int32_t>>>();
  std::size_t longest = 0;
  for (const auto& prompt : task.tokens) longest = std::max(longest, prompt.size());
  const auto used = static_cast<std::int64_t>(longest);
  std::int64_t& most = arguments.generate.max_tokens;
  most = arguments.max_tokens > 0 ? arguments.max_tokens
                                  : std::min(most_by_default, task.info.config.max_position_embeddings - used);
  if (task.info.sequence_length > 0 && used + most > task.info.sequence_length)
    spdlog::warn("the model learnt sequences of {} tokens; what comes after them may be worse",
                 task.info.sequence_length);
  return task;
}

int run(Arguments arguments) {
  return on_all_ranks([&](const Runtime& runtime) {
    Task task;
    {
      const Communicator world(runtime.world());
      if (arguments.greedy) arguments.generate.sampling.temperature = 0;
      task = make_task(arguments, world);
    }
    switch (arguments.precision) {
      case Precision::fp64:
        return generate_text<double>(arguments, task, runtime);
      case Precision::bf16:
        return generate_text<bf16>(arguments, task, runtime);
      case Precision::fp32:
        break;
    }
    return generate_text<float>(arguments, task, runtime);
  });
}

}  // namespace

void add_generate(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("generate", "Text that a saved model writes");
  command->footer(
      "Example: atoll generate runs/text --prompt 'It was' --temperature 0.8\n"
      "The text depends on model, prompt and seed, not on the number of ranks, which share the weights.");
  SamplingOptions& sampling = arguments->generate.sampling;
  command
      ->add_option("model", arguments->path, "A run folder, a checkpoint, a model file, or a folder with safetensors")
      ->required();
  command->add_option("--prompt", arguments->prompts, "What to continue; may be given several times")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  command->add_option("--prompt-file", arguments->prompt_files, "A file that is a prompt; - for standard input")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  command->add_option(
      "--tokenizer", arguments->tokenizer,
      "bytes, a tokenizer.json, or ids (numbers); default: that in the model's folder, or of the data that "
      "the run was evaluated on");
  command
      ->add_option("--max-tokens", arguments->max_tokens,
                   "New tokens at most; default: 256, or as many as the model has positions")
      ->check(positive());
  command->add_option("--samples", arguments->generate.samples, "Continuations of each prompt")
      ->capture_default_str()
      ->check(positive());
  command->add_option("--temperature", sampling.temperature, "Divides the logits; 0 is greedy")->capture_default_str();
  command->add_flag("--greedy", arguments->greedy, "Always the most probable token");
  command->add_option("--top-k", sampling.top_k, "Draw from the k most probable tokens; 0: all")->capture_default_str();
  command->add_option("--top-p", sampling.top_p, "Draw from the fewest tokens that have this probability together")
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "Of the draws")->check(not_negative())->capture_default_str();
  command->add_option("--stop-token", arguments->generate.stop_tokens, "Also end at this token id")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  command->add_flag("--no-echo", arguments->no_echo, "Print only what is new");
  add_precision(*command, arguments->precision);
  command->add_flag("--json", arguments->json, "A line of JSON for each continuation");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
