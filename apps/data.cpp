/// `atoll data`: what token data hold, and whether they can be trusted. SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/shared_options.hpp"
#include "core/errors.hpp"
#include "io/data/token_file.hpp"
#include "io/data/token_formats.hpp"
#include "io/data/token_statistics.hpp"
#include "io/data/tokenizer_of_data.hpp"
#include "io/report/progress.hpp"
#include "io/tokenizer/byte_tokenizer.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/utf8.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>
#include <optional>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;
using Source = std::shared_ptr<const TokenSource>;

struct Arguments {
  std::vector<std::string> paths;
  std::string tokenizer;
  std::optional<TokenType> raw_type;
  std::optional<std::int32_t> end_of_document;
  std::int64_t sample = 64, vocab_size = 0;
  bool json = false;
};

constexpr std::array quantiles{0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

/// As the file of a run says it, or an empty string.
std::string tokenizer_of(const TokenSource& source) {
  const auto* file = dynamic_cast<const TokenFile*>(&source);
  return file == nullptr ? "" : file->tokenizer();
}

std::string format_of(const TokenSource& source) {
  if (const auto* file = dynamic_cast<const MegatronFile*>(&source))
    return fmt::format("Megatron, {}", name_of(file->type()));
  if (const auto* file = dynamic_cast<const TokenArray*>(&source))
    return fmt::format("array of {}", name_of(file->type()));
  return dynamic_cast<const TokenFile*>(&source) != nullptr ? "token file" : "several files";
}

/// What tokens are shown as text with.
struct Decoder {
  Decoder() = default;
  /// "bytes", a path, or empty for none.
  explicit Decoder(const std::string& tokenizer) : name(tokenizer) {
    if (!name.empty() && name != ByteTokenizer::name) read.emplace(Tokenizer::read(name));
  }
  std::string name;
  std::optional<Tokenizer> read;  ///< of a path
};

/// That of the data, where it can be found.
Decoder decoder_of(const TokenSource& source) {
  try {
    return Decoder(tokenizer_of_data(source));
  } catch (const DataError& error) {
    spdlog::warn(error.what());
    return {};
  }
}

/// --tokenizer is used whatever the data say of theirs.
void warn_of_another(const TokenSource& source, const Decoder& given) {
  const std::string said = tokenizer_of(source);
  const bool other = !given.read || said == ByteTokenizer::name ? said != given.name : !is_named(*given.read, said);
  if (!said.empty() && other)
    spdlog::warn("{} was made with {}, not with --tokenizer {}", source.name(), said, given.name);
}

/// Valid UTF-8, with special tokens but for the marks of documents of bytes.
std::string decoded(const Decoder& decoder, const TokenSource& source, const std::vector<std::int32_t>& ids,
                    const LargestToken& largest) {
  const std::int64_t known = decoder.read ? decoder.read->vocab_size() : ByteTokenizer::vocab_size;
  if (largest.id >= known)
    throw ConfigError(
        fmt::format("--tokenizer {} has {} tokens, but {} has token {} at position {}: it was made with "
                    "another tokenizer",
                    decoder.name, known, source.name(), largest.id, largest.position));
  if (decoder.read) return decoder.read->decode(ids, SpecialTokens::keep);
  std::string text;
  Utf8Reader reader;
  reader.feed(ByteTokenizer::decode(ids), text);
  reader.finish(text);
  return text;
}

/// `given`: of --tokenizer.
Json inspect(const TokenSource& source, const Arguments& arguments, const Decoder& given) {
  std::optional<Progress> progress;
  const TokenStatistics found = token_statistics(source, arguments.end_of_document, [&](std::int64_t done) {
    if (!progress) progress.emplace(source.tokens(), "tokens");
    progress->update(done);
  });
  if (progress) progress->clear();
  Json out{{"path", source.name()}, {"format", format_of(source)}, {"tokens", found.tokens}};
  if (found.documents) {
    const LengthHistogram& lengths = *found.documents;
    Json table{{"count", lengths.count()}, {"least", lengths.least()}};
    for (const double q : quantiles) table[fmt::format("p{:02.0f}", 100 * q)] = lengths.quantile(q);
    table["most"] = lengths.most();
    table["mean"] = lengths.mean();
    if (found.open_end) table["open_end"] = true;
    out["documents"] = table;
  } else {
    out["documents"] = nullptr;
  }
  out["ids"] = {{"least", found.smallest},
                {"most", found.largest.id},
                {"position_of_most", found.largest.position},
                {"distinct", found.distinct}};
  if (source.vocab_size() > 0) out["vocab_size"] = source.vocab_size();
  const std::string tokenizer = tokenizer_of(source);
  if (!tokenizer.empty()) out["tokenizer"] = tokenizer;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(arguments.sample, source.tokens())));
  source.read(0, ids);
  out["sample"] = {{"ids", ids}};
  if (given.name.empty()) {
    if (const Decoder own = decoder_of(source); !own.name.empty())
      out["sample"]["text"] = decoded(own, source, ids, found.largest);
  } else {
    warn_of_another(source, given);
    out["sample"]["text"] = decoded(given, source, ids, found.largest);
  }
  return out;
}

void print(const Json& found) {
  fmt::print("{}\n  {}; {} tokens\n", found.at("path").get<std::string>(), found.at("format").get<std::string>(),
             found.at("tokens").get<std::int64_t>());
  if (const Json& documents = found.at("documents"); documents.is_null()) {
    fmt::print("  documents: not told by the format (--end-of-document ID counts them by the token that ends each)\n");
  } else {
    fmt::print("  {} documents{}; lengths in tokens:\n   ", documents.at("count").get<std::int64_t>(),
               documents.contains("open_end") ? ", the last without its end" : "");
    for (const auto& [name, value] : documents.items())
      if (name != "count" && name != "open_end")
        fmt::print(" {} {}", name, value.is_number_float() ? fmt::format("{:.1f}", value.get<double>()) : value.dump());
    fmt::print("\n");
  }
  const Json& ids = found.at("ids");
  if (found.at("tokens") == 0) return;
  fmt::print("  ids {} to {} (at position {}), {} different{}\n", ids.at("least").get<std::int64_t>(),
             ids.at("most").get<std::int64_t>(), ids.at("position_of_most").get<std::int64_t>(),
             ids.at("distinct").get<std::int64_t>(),
             found.contains("vocab_size") ? fmt::format("; vocabulary of {}", found.at("vocab_size").dump()) : "");
  if (found.contains("tokenizer")) fmt::print("  tokenizer: {}\n", found.at("tokenizer").get<std::string>());
  const Json& sample = found.at("sample");
  fmt::print("  begins with {}\n", sample.at("ids").dump());
  if (sample.contains("text"))  // escaped, so that a terminal shows it as it is, on one line
    fmt::print("  as text: {}\n", sample.at("text").dump());
  else
    fmt::print("  as text: the tokenizer is not here (--tokenizer bytes, or a tokenizer.json)\n");
}

int run_inspect(const Arguments& arguments) {
  const Decoder given(arguments.tokenizer);  // its faults, before all data are read
  Json all = Json::array();
  for (const auto& name : arguments.paths) {
    std::vector<Source> parts;
    for (const auto& path : find_token_files(name)) parts.push_back(open_tokens(path, arguments.raw_type));
    all.push_back(inspect(*join(name, std::move(parts)), arguments, given));
    if (!arguments.json) print(all.back());
  }
  if (arguments.json) fmt::print("{}\n", all.dump(2));
  return static_cast<int>(ExitCode::done);
}

Scan scan(const TokenSource& source) {
  constexpr std::int64_t piece = 1 << 28;  // tokens between two signs of life
  const std::int64_t shares = source.tokens() / piece + 1;
  std::optional<Progress> progress;
  if (shares > 1) progress.emplace(shares, "parts");
  Scan whole;
  for (std::int64_t share = 0; share < shares; ++share) {
    whole.add(source.scan(share, shares));
    if (progress) progress->update(share + 1);
  }
  if (progress) progress->clear();
  return whole;
}

int run_verify(const Arguments& arguments) {
  Json all = Json::array();
  for (const auto& name : arguments.paths) {
    for (const auto& path : find_token_files(name)) {
      const Source source = open_tokens(path, arguments.raw_type);
      const Scan whole = scan(*source);
      source->check(whole);
      if (source->tokens() == 0) throw DataError(path + ": holds no token");
      if (arguments.vocab_size > 0) require_vocabulary(*source, whole.largest, arguments.vocab_size);
      all.push_back({{"path", path},
                     {"tokens", source->tokens()},
                     {"largest_id", whole.largest.id},
                     {"fingerprint", source->fingerprint()}});
      if (!arguments.json)
        fmt::print("{}: good; {}, {} tokens, largest id {}, {}\n", path, format_of(*source), source->tokens(),
                   whole.largest.id, source->fingerprint());
    }
  }
  if (arguments.json) fmt::print("{}\n", all.dump(2));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_data(CLI::App& program, Command& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* data = program.add_subcommand("data", "Look at token data, or verify them");
  data->require_subcommand(1);
  data->footer("Example: atoll data inspect tokens/train.h5 'fineweb/*.bin'");
  const auto add = [&](const char* name, const char* what) {
    CLI::App* command = data->add_subcommand(name, what);
    command->add_option("paths", arguments->paths, "Token data of any format, and patterns in quotes: 'shards/*.bin'")
        ->required();
    command->footer(fmt::format("Example: atoll data {} tokens/train.h5 'fineweb/*.bin'", name));
    add_raw_type(*command, arguments->raw_type);
    command->add_flag("--json", arguments->json, "Print the result as JSON");
    return command;
  };
  CLI::App* inspect = add("inspect", "Counts, lengths of documents, ids, and how the tokens begin");
  inspect
      ->add_option("--end-of-document", arguments->end_of_document,
                   "Id of the token that ends a document, where the format does not tell: 50256 of GPT-2")
      ->check(not_negative());
  inspect->add_option("--tokenizer", arguments->tokenizer,
                      "bytes, or a tokenizer.json, to show tokens as text; default: that of the token file, where the "
                      "tokenizer.json that tokenize wrote lies beside it");
  inspect->add_option("--sample", arguments->sample, "Tokens to show from the start")
      ->check(not_negative())
      ->capture_default_str();
  inspect->callback([arguments, &chosen] { chosen = [arguments] { return run_inspect(*arguments); }; });
  CLI::App* verify = add("verify", "Read everything: checksums, indices, ids; exit code 3 at the first fault");
  verify->add_option("--vocab-size", arguments->vocab_size, "Ids must be below it")->check(positive());
  verify->callback([arguments, &chosen] { chosen = [arguments] { return run_verify(*arguments); }; });
}

}  // namespace atl
