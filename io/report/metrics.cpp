/// Writing of metrics.jsonl. SPDX-License-Identifier: Apache-2.0
#include "io/report/metrics.hpp"

#include "core/errors.hpp"
#include "io/pending_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace atl {
namespace {

using nlohmann::ordered_json;

ordered_json finite_or_null(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

/// Cuts off what follows the last line break: a line that a killed job left unfinished.
void remove_unfinished_line(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return;  // nothing there to continue
  std::uintmax_t read = 0, whole = 0;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
    for (std::size_t i = 0; i < count; ++i)
      if (buffer[i] == '\n') whole = read + i + 1;
    read += count;
  }
  std::error_code error;
  if (whole != read) std::filesystem::resize_file(path, whole, error);
  if (error) throw ConfigError(fmt::format("{}: cannot remove its unfinished last line: {}", path, error.message()));
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, Mode mode) : path_(path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    throw ConfigError(fmt::format("run folder {} cannot be made: {}; set run.dir to a folder that can be written",
                                  folder.string(), error.message()));
  if (mode == Mode::append) remove_unfinished_line(path);
  file_.reset(std::fopen(path.c_str(), mode == Mode::append ? "ab" : "wb"));
  if (!file_)
    throw ConfigError(fmt::format("{} cannot be written: {}; set run.dir to a folder that can be written", path,
                                  std::strerror(errno)));
}

void MetricsFile::drop_after(const std::string& path, std::int64_t step) {
  std::ifstream before(path, std::ios::binary);
  if (!before) return;
  PendingFile after(path);
  std::ofstream kept(after.temporary(), std::ios::binary);
  for (std::string line; std::getline(before, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    const auto at = record.find("step");
    if (at == record.end() || (at->is_number() && at->get<std::int64_t>() <= step)) kept << line << '\n';
  }
  kept.close();
  if (!kept) throw DataError(fmt::format("{}: cannot be written: {}", after.temporary(), std::strerror(errno)));
  after.publish();
}

void MetricsFile::write(const std::string& kind, const ordered_json& fields) {
  ordered_json line = {{"kind", kind}};
  if (!fields.empty()) line.update(fields);
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0)
    throw Error(fmt::format("{}: writing failed: {}", path_, std::strerror(errno)));
}

void MetricsFile::write(const RunRecord& record) {
  write("run", {{"configuration", record.configuration},
                {"grid", record.grid},
                {"versions", record.versions},
                {"git_revision", record.git_revision},
                {"seed", record.seed}});
}

void MetricsFile::write(const StepRecord& record) {
  write("step", {{"step", record.step},
                 {"round", record.round},
                 {"tokens", record.tokens},
                 {"loss", finite_or_null(record.loss)},
                 {"lr", finite_or_null(record.lr)},
                 {"grad_norm", finite_or_null(record.grad_norm)},
                 {"step_seconds", finite_or_null(record.step_seconds)},
                 {"tokens_per_second", finite_or_null(record.tokens_per_second)},
                 {"compute_seconds", finite_or_null(record.compute_seconds)},
                 {"exposed_comm_seconds", finite_or_null(record.exposed_comm_seconds)},
                 {"bytes_shard", record.bytes_shard},
                 {"bytes_replica", record.bytes_replica},
                 {"bytes_federation", record.bytes_federation},
                 {"memory_bytes", record.memory_bytes}});
}

void MetricsFile::write(const EvalRecord& record) {
  write("eval", {{"step", record.step},
                 {"loss", finite_or_null(record.loss)},
                 {"perplexity", finite_or_null(record.perplexity)},
                 {"tokens", record.tokens}});
}

void MetricsFile::write(const RoundRecord& record) {
  ordered_json drift = ordered_json::array();
  for (const double distance : record.drift) drift.push_back(finite_or_null(distance));
  write("round", {{"round", record.round},
                  {"step", record.step},
                  {"tokens", record.tokens},
                  {"bytes", record.bytes},
                  {"bytes_shard", record.bytes_shard},
                  {"bytes_replica", record.bytes_replica},
                  {"bytes_federation", record.bytes_federation},
                  {"seconds", finite_or_null(record.seconds)},
                  {"exposed_comm_seconds", finite_or_null(record.exposed_comm_seconds)},
                  {"drift", drift}});
}

}  // namespace atl
