/// `atoll eval`: perplexity of a saved model. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/parallel_command.hpp"
#include "apps/shared_options.hpp"
#include "io/data/batch_source.hpp"
#include "io/data/data_sets.hpp"
#include "io/data/token_file.hpp"
#include "io/report/run_log.hpp"
#include "io/saved_model.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"
#include "model/evaluate.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace atl {

namespace {

struct Arguments {
  std::string path;
  std::string data;
  std::optional<TokenType> raw_type;
  std::int64_t sequence_length = 0, micro_batch = 0, stride = 0, batches = 0;
  std::optional<Packing> packing;
  std::optional<std::int64_t> end_of_document;
  Precision precision = Precision::fp32;
  bool json = false;
};

/// The model file, and what to evaluate it on: as its run did, which the file remembers, or as the arguments say.
struct Subject {
  std::string model;
  RunConfig config;
  ModelInfo info;
};

Subject find_subject(const Arguments& arguments) {
  Subject subject;
  subject.model = find_saved_model(arguments.path);
  subject.info = read_model_info(subject.model);
  RunConfig& config = subject.config;
  config.data.eval = subject.info.eval;
  config.data.sequence_length = subject.info.sequence_length;
  config.data.synthetic_eval_tokens = subject.info.synthetic_eval_tokens;
  config.run.seed = subject.info.seed;
  config.data.raw_type = arguments.raw_type;
  if (!arguments.data.empty()) config.data.eval = arguments.data;
  config.data.documents = subject.info.documents;
  if (arguments.packing && *arguments.packing != config.data.documents.packing)
    config.data.documents = {*arguments.packing, std::nullopt};
  if (arguments.end_of_document) config.data.documents.end_of_document = arguments.end_of_document;
  if (arguments.sequence_length > 0) config.data.sequence_length = arguments.sequence_length;
  if (arguments.stride > config.data.sequence_length && config.data.sequence_length > 0)
    throw ConfigError(
        fmt::format("--stride {}: larger than the windows of {} tokens, so that tokens would be left out; "
                    "give a smaller one, or a larger --sequence-length",
                    arguments.stride, config.data.sequence_length));
  if (config.data.eval.empty())
    throw ConfigError(
        fmt::format("{} does not say what its run was evaluated on (data.eval); give --data FILE", subject.model));
  if (config.data.sequence_length == 0)
    throw ConfigError(
        fmt::format("{} does not say what its run's data.sequence_length was; give --sequence-length", subject.model));
  check_documents(config.data.documents, config.data.eval == synthetic_data);
  if (config.data.eval == synthetic_data && config.data.synthetic_eval_tokens == 0)
    throw ConfigError(
        fmt::format("{} does not say which synthetic language it learnt; give --data FILE", subject.model));
  return subject;
}

/// Bytes of the text that the counted targets are, or why they are not known.
struct TextBytes {
  std::int64_t bytes = 0;
  std::string unknown;
};

/// Marks of documents count as targets, and have no bytes.
TextBytes bytes_of(const RunConfig& config, const TokenSource& source, std::int64_t byte_tokens, std::int64_t targets) {
  if (config.data.eval == synthetic_data) return {0, "the synthetic language has no bytes"};
  const auto* const file = dynamic_cast<const TokenFile*>(&source);
  if (file == nullptr) return {0, "the data do not say the bytes of these tokens"};
  if (file->tokenizer() == ByteTokenizer::name) return {byte_tokens, ""};
  // Then the first token of each document is not a target.
  const bool confined = config.data.documents.packing == Packing::documents;
  if (targets != file->tokens() - (confined ? file->documents() : 1))
    return {0, "only a part of the data was evaluated"};
  if (!confined) return {file->source_bytes(), ""};
  if (!file->first_token_bytes())
    return {0, "the data do not say the bytes of the documents' first tokens, which do not count; tokenize them again"};
  return {file->source_bytes() - *file->first_token_bytes(), ""};
}

template <class T>
int evaluate_model(const Arguments& arguments, const Subject& subject, const Runtime& runtime) {
  const Exec exec;
  const RunConfig& config = subject.config;
  const ProcessGrid grid(ParallelOptions{}, runtime.size(), runtime.rank());  // one group, sharded over all ranks
  const Communicators communicators(runtime.world(), grid);
  const Communicator& world = communicators.world;
  const CollectivesOptions collectives = choose_backend(config.parallel.collectives, world);
  const auto shard = make_collectives(communicators.shard, collectives);
  const auto replica = make_collectives(communicators.replica, collectives);

  const auto source = open_source(config.data.eval, config, subject.info.config.vocab_size, false, world);
  ShardedParameters<T> parameters(llama_units(subject.info.config), *shard, *replica, AfterForward::reshard);
  collectively(world, [&] { load_model(subject.model, parameters); });
  const std::int64_t step = arguments.stride > 0 ? arguments.stride : config.data.sequence_length;
  const std::int64_t windows = source->tokens() / step + 1;  // at most
  const std::int64_t micro_batch =
      std::min(windows, arguments.micro_batch > 0 ? arguments.micro_batch
                                                  : std::max<std::int64_t>(1, 4096 / config.data.sequence_length));
  const std::int64_t limit = arguments.batches < windows ? arguments.batches * micro_batch : 0;
  Llama<T> model(subject.info.config,
                 {micro_batch, config.data.sequence_length, Recompute::block, config.train.loss_chunk,
                  config.data.documents.packing},
                 parameters);
  std::optional<EvaluationSource> evaluation;
  collectively(world, [&] {
    evaluation.emplace(source, config.data.sequence_length, world.size(), world.rank(), micro_batch, limit,
                       arguments.stride, config.data.documents);
  });
  std::int64_t byte_tokens = 0;  // targets that are a byte, where tokens are bytes
  const Evaluation result = evaluate<T>(exec, model, world, evaluation->micro_batches(), [&](std::int64_t i) {
    Batch batch = evaluation->batch(i);
    for (const std::int32_t target : batch.targets) byte_tokens += target >= 0 && target < 256;
    return batch;
  });
  byte_tokens = world.sum(byte_tokens);
  if (!std::isfinite(result.loss))
    throw CollectiveError(fmt::format("{}: its loss on {} is {}: it has weights that are not finite, or far too large",
                                      subject.model, config.data.eval, result.loss),
                          ExitCode::data);
  const auto [bytes, unknown] = bytes_of(config, *source, byte_tokens, result.tokens);

  if (world.rank() == 0) {
    std::optional<LanguageFacts> language;
    if (config.data.eval == synthetic_data) language = language_facts(config, *source);
    if (arguments.json) {
      nlohmann::ordered_json out{
          {"model", subject.model}, {"step", subject.info.step},         {"data", config.data.eval},
          {"loss", result.loss},    {"perplexity", result.perplexity()}, {"tokens", result.tokens}};
      out["bytes"] = bytes > 0 ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json();
      if (bytes > 0) {
        out["bits_per_byte"] = result.total / std::log(2.0) / static_cast<double>(bytes);
        out["byte_perplexity"] = std::exp(result.total / static_cast<double>(bytes));
      }
      if (language) out["floor_perplexity"] = language->floor;
      fmt::print("{}\n", out.dump());
    } else {
      fmt::print("perplexity {:.4f}  loss {:.5f} nats  {:.4f} bits per token  ({} tokens of {})\n", result.perplexity(),
                 result.loss, result.loss / std::log(2.0), result.tokens, config.data.eval);
      if (bytes > 0)
        fmt::print("per byte   {:.4f}  {:.4f} bits per byte  ({} bytes of text)\n",
                   std::exp(result.total / static_cast<double>(bytes)),
                   result.total / std::log(2.0) / static_cast<double>(bytes), bytes);
      else
        fmt::print("per byte   not known: {}\n", unknown);
      if (language) fmt::print("floor      {:.4f}  (best possible for this language)\n", language->floor);
    }
  }
  return static_cast<int>(ExitCode::done);
}

int run(const Arguments& arguments) {
  return on_all_ranks([&](const Runtime& runtime) {
    Subject subject;
    {
      const Communicator world(runtime.world());
      collectively(world, [&] {
        start_logging(world.rank(), "info");
        subject = find_subject(arguments);
      });
    }
    switch (arguments.precision) {
      case Precision::fp64:
        return evaluate_model<double>(arguments, subject, runtime);
      case Precision::bf16:
        return evaluate_model<bf16>(arguments, subject, runtime);
      case Precision::fp32:
        break;
    }
    return evaluate_model<float>(arguments, subject, runtime);
  });
}

}  // namespace

void add_eval(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("eval", "Perplexity of a saved model");
  command->footer(
      "Example: mpiexec -n 2 atoll eval runs/text --data tokens/eval.h5\n"
      "The number does not depend on the number of ranks.");
  command
      ->add_option("model", arguments->path, "A run folder, a checkpoint, a model file, or a folder with safetensors")
      ->required();
  command->add_option("--data", arguments->data,
                      "Token data, or \"synthetic\"; default: what the run was evaluated on");
  add_raw_type(*command, arguments->raw_type);
  command->add_option("--sequence-length", arguments->sequence_length, "Tokens of a window; default: those of the run")
      ->check(positive());
  command
      ->add_option("--stride", arguments->stride,
                   "Windows begin every so many tokens: each token is counted once, with at least the windows' length "
                   "less the stride as context; default: the length")
      ->check(positive());
  command->add_option("--packing", arguments->packing, "Where attention may go; default: as the run")
      ->transform(choices_of<Packing>({{"concatenate", Packing::concatenate}, {"documents", Packing::documents}}))
      ->type_name("concatenate|documents");
  command
      ->add_option("--end-of-document", arguments->end_of_document,
                   "Id of the token that ends each document, in data without an index; default: that of the run")
      ->check(not_negative());
  command->add_option("--batches", arguments->batches, "Only the first micro-batches; default: all data")
      ->check(positive());
  command->add_option("--micro-batch", arguments->micro_batch, "Sequences a rank evaluates at once")->check(positive());
  add_precision(*command, arguments->precision);
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace atl
