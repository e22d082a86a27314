/// SPDX-License-Identifier: Apache-2.0
#include "io/report/run_log.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <sys/resource.h>

namespace atl {

void start_logging(int rank, const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    throw ConfigError(
        fmt::format("log.level = \"{}\" is unknown; one of trace, debug, info, warning, error, off", level));
  auto logger = std::make_shared<spdlog::logger>("atoll", std::make_shared<spdlog::sinks::stderr_color_sink_st>());
  logger->set_pattern(rank == 0 ? "%^%L%$ %H:%M:%S  %v" : fmt::format("%^%L%$ %H:%M:%S  [rank {}] %v", rank));
  logger->set_level(rank == 0 ? parsed : spdlog::level::err);
  spdlog::set_default_logger(std::move(logger));
}

std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

RunLog::Mark RunLog::Mark::of(const Traffic& traffic, double seconds) {
  const CommunicationStats s = traffic.shard.stats(), r = traffic.replica.stats(), f = traffic.federation.stats();
  const Communicators& c = traffic.communicators;
  const double small = c.shard.seconds_waited() + c.replica.seconds_waited() + c.group.seconds_waited() +
                       c.federation.seconds_waited() + c.world.seconds_waited();
  return {seconds, s.seconds_waited + r.seconds_waited + f.seconds_waited + small, s.bytes_sent, r.bytes_sent,
          f.bytes_sent};
}

RunLog::RunLog(const Options& options, const Traffic& traffic)
    : options_(options), traffic_(traffic), tokens_(options.tokens) {
  if (options_.rank != 0) return;
  const std::string path = options_.folder + "/metrics.jsonl";
  if (options_.first > 0) MetricsFile::drop_after(path, options_.first);
  metrics_ =
      std::make_unique<MetricsFile>(path, options_.first > 0 ? MetricsFile::Mode::append : MetricsFile::Mode::create);
}

void RunLog::start(const RunRecord& record) {
  if (metrics_) metrics_->write(record);
  if (metrics_ && Progress::Output::standard().terminal) progress_.emplace(options_.steps, "steps");
  skip_time();
}

void RunLog::language(const LanguageFacts& facts) {
  if (metrics_) metrics_->write("language", {{"floor_perplexity", facts.floor}, {"bigram_perplexity", facts.bigram}});
}

void RunLog::step(std::int64_t step, std::int64_t round, const StepResult& result, double lr) {
  const Mark now = Mark::of(traffic_, clock_.seconds());
  StepRecord record;
  record.step = step;
  record.round = round;
  record.loss = result.loss;
  record.tokens = result.tokens;
  record.lr = lr;
  record.grad_norm = result.gradient_norm;
  record.step_seconds = now.seconds - mark_.seconds;
  record.exposed_comm_seconds = now.waited - mark_.waited;
  record.compute_seconds = record.step_seconds - record.exposed_comm_seconds;
  record.bytes_shard = now.shard_since(mark_);
  record.bytes_replica = now.replica_since(mark_);
  record.bytes_federation = now.federation_since(mark_);
  record.memory_bytes = peak_memory();
  training_seconds_ += record.step_seconds;
  mark_ = now;
  pending_.push_back(record);
  losses_.push_back(result.loss);
  weights_.push_back(static_cast<double>(result.tokens));

  if (!metrics_) return;
  if (progress_)
    progress_->update(step, progress_text(record));
  else if (step % options_.every == 0 || step == options_.steps || step == options_.first + 1)
    spdlog::info("step {}/{}  {}  time left {}", step, options_.steps, progress_text(record),
                 human_duration(training_seconds_ / static_cast<double>(step - options_.first) *
                                static_cast<double>(options_.steps - step)));
}

std::string RunLog::progress_text(const StepRecord& record) const {
  // All groups are assumed to take as long for a step as this one until the exchange says what they did.
  const double rate = static_cast<double>(record.tokens) * options_.world_per_group / record.step_seconds;
  return fmt::format("loss {:.4f}  {}/s  comm {:.0f} %", record.loss, human_count(rate, "tokens"),
                     100 * record.exposed_comm_seconds / record.step_seconds);
}

template <class T>
void RunLog::flush(const Federation<T>& federation) {
  const auto means = federation.mean_over_groups(losses_, weights_);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    StepRecord& record = pending_[i];
    tokens_ += static_cast<std::int64_t>(means[i].tokens);
    record.loss = means[i].mean;
    record.tokens = tokens_;
    record.tokens_per_second = means[i].tokens / record.step_seconds;
    if (metrics_) metrics_->write(record);
  }
  pending_.clear();
  losses_.clear();
  weights_.clear();
}

void RunLog::round(const RoundReport& report, std::int64_t step) {
  const Mark now = Mark::of(traffic_, clock_.seconds());
  RoundRecord record;
  record.round = report.round;
  record.step = step;
  record.tokens.assign(report.tokens.begin(), report.tokens.end());
  record.bytes_shard = now.shard_since(mark_);
  record.bytes_replica = now.replica_since(mark_);
  record.bytes_federation = now.federation_since(mark_);
  record.bytes = record.bytes_shard + record.bytes_replica + record.bytes_federation;
  record.seconds = now.seconds - mark_.seconds;
  record.exposed_comm_seconds = now.waited - mark_.waited;
  record.drift = report.drift;
  training_seconds_ += now.seconds - mark_.seconds;
  mark_ = now;
  if (metrics_) metrics_->write(record);
}

void RunLog::eval(std::int64_t step, const Evaluation& evaluation) {
  if (metrics_) {
    metrics_->write(EvalRecord{step, evaluation.loss, evaluation.perplexity(), evaluation.tokens});
    if (progress_) progress_->clear();
    spdlog::info("step {}/{}  evaluation: perplexity {:.4f}  (loss {:.5f} over {} tokens)", step, options_.steps,
                 evaluation.perplexity(), evaluation.loss, evaluation.tokens);
  }
  skip_time();
}

void RunLog::checkpoint(const SaveReport& report) {
  if (!metrics_) return;
  nlohmann::ordered_json fields{{"step", report.step},
                                {"bytes", report.bytes},
                                {"seconds", report.seconds},
                                {"stall_seconds", report.stall_seconds}};
  if (progress_) progress_->clear();
  if (!report.error.empty()) {
    fields["error"] = report.error;
    spdlog::error("the checkpoint of step {} failed: {}; training goes on, earlier checkpoints are untouched",
                  report.step, report.error);
  } else {
    spdlog::info("checkpoint {}  {} in {:.2f} s, of which training waited {:.2f} s", report.path,
                 human_bytes(report.bytes), report.seconds, report.stall_seconds);
  }
  if (!report.warning.empty()) spdlog::warn("{}", report.warning);
  metrics_->write("checkpoint", fields);
}

void RunLog::resumed(const std::string& path, const std::string& changes) {
  if (metrics_) metrics_->write("resume", {{"step", options_.first}, {"path", path}, {"changes", changes}});
}

void RunLog::finish() {
  if (progress_) progress_->finish();
}

template void RunLog::flush<float>(const Federation<float>&);
template void RunLog::flush<double>(const Federation<double>&);
template void RunLog::flush<bf16>(const Federation<bf16>&);

}  // namespace atl
