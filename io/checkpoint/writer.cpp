/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/writer.hpp"

#include "core/timer.hpp"
#include "io/pending_file.hpp"
#include "parallel/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <tuple>

namespace atl {

namespace {

using Json = nlohmann::ordered_json;
using Hashes = std::vector<std::vector<std::uint64_t>>;

template <class Result>
bool ready(const std::future<Result>& future) {
  return future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw DataError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  file.close();
  flush_to_disk(path);
}

using HostBytes = Kokkos::View<char*, Kokkos::LayoutRight, Kokkos::HostSpace>;

void copy_to_host(const Exec& exec, const View1<const char>& from, const HostBytes& to) {
  Kokkos::deep_copy(exec, to, from);
  exec.fence();
}

/// Bytes of a part for PartFile, straight from where they are if the host can read them there.
PartFile::Fetch fetch_from(const Exec& exec, const View1<const char>& bytes, HostBytes& staging) {
  return [&exec, &staging, bytes](std::uint64_t begin, std::uint64_t count) -> const void* {
    if constexpr (std::is_same_v<Memory, Kokkos::HostSpace>) {
      exec.fence();
      return bytes.data() + begin;
    } else {
      if (staging.extent(0) < count) staging = HostBytes("atoll::checkpoint_staging", segment_bytes);
      copy_to_host(exec, part(bytes, begin, count), HostBytes(staging.data(), count));
      return staging.data();
    }
  };
}

/// What a rank tells rank 0 at the end of its writing.
std::string message_of(const std::string& error, const std::vector<StoredPart>& parts,
                       const std::optional<CheckpointFile>& file) {
  Json message{{"error", error}, {"parts", Json::array()}};
  for (const StoredPart& part : parts) message["parts"].push_back(to_json(part));
  if (file) message["file"] = to_json(*file);
  return message.dump();
}

Json to_json(const SaveReport& report) {
  return {{"step", report.step},       {"path", report.path},   {"bytes", report.bytes},
          {"seconds", report.seconds}, {"error", report.error}, {"stall_seconds", report.stall_seconds},
          {"warning", report.warning}};
}

SaveReport report_from(const Json& json) {
  return {json.at("step"),          json.at("path"),  json.at("bytes"),  json.at("seconds"),
          json.at("stall_seconds"), json.at("error"), json.at("warning")};
}

}  // namespace

struct CheckpointWriter::Save {
  SaveReport report;
  Stopwatch watch;
  std::string temporary;
  CheckpointManifest manifest;  ///< rank 0 collects files and parts
  std::vector<StoredPart> mine;
  std::optional<CheckpointFile> file;  ///< of the rank that made it
  std::future<Hashes> writing;
  std::future<void> publishing;
  int reports = 0;  ///< that rank 0 has
  bool sent = false, ended = false, told = false;
};

CheckpointWriter::CheckpointWriter(const Options& options, const ProcessGrid& grid, const Communicator& world)
    : options_(options),
      grid_(grid),
      world_(world),
      files_(files_of_ranks(options.writers, world.size())),
      file_(world, files_[static_cast<std::size_t>(world.rank())], world.rank()),
      mailbox_(world),
      store_(options.folder) {
  if (options.async) copy_ = decltype(copy_)("atoll::checkpoint_copy", options.copy_bytes);
  places_.resize(static_cast<std::size_t>(world.size()));
  for (int g = 0; g < grid.number_of_groups(); ++g)
    for (int r = 0; r < grid.groups()[static_cast<std::size_t>(g)].ranks(); ++r)
      places_[static_cast<std::size_t>(grid.world_rank(g, r))] = {g, r};
}

CheckpointWriter::~CheckpointWriter() = default;

std::vector<CheckpointPart> CheckpointWriter::parts_of(int rank, const Save& save,
                                                       const std::vector<CheckpointArray>& arrays) const {
  const auto [group, rank_in_group] = places_[static_cast<std::size_t>(rank)];
  return parts_of_rank(arrays, save.manifest.unit_sizes, grid_.groups(), group, rank_in_group);
}

/// Folder and HDF5 files, and where each part of this rank goes.
void CheckpointWriter::lay_out(Save& save, const std::vector<UnitSpec>& units, const ModelInfo& model,
                               const std::vector<CheckpointArray>& arrays) {
  const Element element = save.manifest.element;
  collectively(world_, [&] {
    if (world_.rank() != 0) return;
    std::uint64_t elements = 0;
    for (const std::size_t size : save.manifest.unit_sizes) elements += arrays.size() * size;
    save.temporary = store_.begin(random_id(), elements * size_of(element));
    std::vector<ModelPart> parts;
    for (int rank = 0; rank < world_.size(); ++rank)
      for (const CheckpointPart& part : parts_of(rank, save, {CheckpointArray{}}))
        parts.push_back({part, data_file_name(files_[static_cast<std::size_t>(rank)])});
    save.manifest.files.resize(static_cast<std::size_t>(*std::max_element(files_.begin(), files_.end())) + 2);
    save.manifest.files.front() = create_model_file(save.temporary, parts, units, element, model);
  });
  save.temporary = world_.broadcast(save.temporary);

  const int file = files_[static_cast<std::size_t>(world_.rank())];
  Json offsets = Json::array();
  std::size_t first = 0;  // of this rank's parts among those of the file
  std::vector<CheckpointPart> all;
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (files_[static_cast<std::size_t>(rank)] != file) continue;
    if (rank == world_.rank()) first = all.size();
    const auto parts = parts_of(rank, save, arrays);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  collectively(world_, [&] {
    if (file_.rank() != 0) return;
    DataFile made = create_data_file(save.temporary, data_file_name(file), all, units, element);
    offsets = made.offsets;
    save.file = std::move(made.file);
  });
  offsets = Json::parse(file_.broadcast(offsets.dump()));
  for (StoredPart& part : save.mine) {
    part.file = static_cast<std::size_t>(file) + 1;  // model.h5 is the first of all files
    part.offset = offsets.at(first++);
  }
}

std::optional<SaveReport> CheckpointWriter::save(const Exec& exec, const CheckpointManifest& head,
                                                 const ModelInfo& model, const std::vector<UnitSpec>& units,
                                                 const std::vector<CheckpointArray>& arrays,
                                                 const std::vector<PartSource>& mine) {
  auto before = finish();
  save_ = std::make_unique<Save>();
  Save& save = *save_;
  save.manifest = head;
  save.report.step = head.position.step;
  save.report.path = store_.path_of(head.position.step);
  for (const PartSource& source : mine) {
    save.mine.emplace_back();
    static_cast<CheckpointPart&>(save.mine.back()) = source.part;
  }
  try {
    lay_out(save, units, model, arrays);
  } catch (const CollectiveError& error) {
    save.report.error = error.what();
    save.ended = true;
    std::error_code ignored;
    if (world_.rank() == 0 && !save.temporary.empty()) std::filesystem::remove_all(save.temporary, ignored);
    return before;
  }

  const std::string path = save.temporary + "/" + data_file_name(files_[static_cast<std::size_t>(world_.rank())]);
  const auto write = [&save, path](const std::function<PartFile::Fetch(std::size_t)>& source) {
    Hashes hashes;
    PartFile file(path);
    for (std::size_t i = 0; i < save.mine.size(); ++i)
      hashes.push_back(
          file.write(save.mine[i].offset, save.mine[i].range.size() * size_of(save.manifest.element), source(i)));
    file.flush();
    return hashes;
  };
  try {
    if (options_.async) {
      std::vector<std::uint64_t> begins{0};
      for (const PartSource& source : mine) begins.push_back(begins.back() + source.bytes.extent(0));
      if (copy_.extent(0) < begins.back())
        copy_ =
            decltype(copy_)(Kokkos::view_alloc("atoll::checkpoint_copy", Kokkos::WithoutInitializing), begins.back());
      for (std::size_t i = 0; i < mine.size(); ++i)
        Kokkos::deep_copy(exec, HostBytes(copy_.data() + begins[i], mine[i].bytes.extent(0)), mine[i].bytes);
      exec.fence();
      save.writing = std::async(std::launch::async, [write, begins, copy = copy_.data()] {
        return write([&](std::size_t i) -> PartFile::Fetch {
          return [bytes = copy + begins[i]](std::uint64_t begin, std::uint64_t) { return bytes + begin; };
        });
      });
    } else {
      HostBytes staging;
      const Hashes hashes = write([&](std::size_t i) { return fetch_from(exec, mine[i].bytes, staging); });
      save.writing = std::async(std::launch::deferred, [hashes] { return hashes; });
    }
  } catch (const std::exception& error) {
    save.writing =
        std::async(std::launch::deferred, [text = std::string(error.what())]() -> Hashes { throw DataError(text); });
  }
  if (!options_.async) save.writing.wait();
  save.report.stall_seconds = save.watch.seconds();
  return before;
}

/// Everything that can go on without waiting.
void CheckpointWriter::collect(Save& save) {
  if (!save.sent && ready(save.writing)) {
    std::string error;
    try {
      const Hashes hashes = save.writing.get();
      for (std::size_t i = 0; i < hashes.size(); ++i) save.mine[i].hashes = hashes[i];
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    mailbox_.send(message_of(error, save.mine, save.file));
    save.sent = true;
  }
  if (world_.rank() != 0) {
    save.ended = save.sent && mailbox_.empty();
    return;
  }
  while (save.reports < world_.size()) {
    const auto mail = mailbox_.receive();
    if (!mail) return;
    ++save.reports;
    const Json message = Json::parse(mail->second);
    const std::string error = message.at("error");
    if (!error.empty() && save.report.error.empty()) save.report.error = fmt::format("rank {}: {}", mail->first, error);
    for (const Json& part : message.at("parts")) save.manifest.parts.push_back(part_from(part));
    if (message.contains("file"))
      save.manifest.files[static_cast<std::size_t>(files_[static_cast<std::size_t>(mail->first)]) + 1] =
          file_from(message["file"]);
  }
  if (!save.publishing.valid()) save.publishing = std::async(std::launch::async, [this, &save] { publish(save); });
  if (!ready(save.publishing)) return;
  save.publishing.get();
  save.ended = true;
}

/// Rank 0, when all parts are on the disk. Never throws.
void CheckpointWriter::publish(Save& save) {
  std::error_code ignored;
  if (save.report.error.empty()) {
    try {
      auto& parts = save.manifest.parts;
      std::sort(parts.begin(), parts.end(), [](const StoredPart& a, const StoredPart& b) {
        return std::tuple(a.array.group, a.array.quantity, a.unit, a.range.begin) <
               std::tuple(b.array.group, b.array.quantity, b.unit, b.range.begin);
      });
      const std::string text = to_text(save.manifest);
      flush_to_disk(save.temporary + "/model.h5");
      write_file(save.temporary + "/MANIFEST.json", text);
      write_file(save.temporary + "/COMMIT", commit_text(text));
      store_.publish(save.temporary, save.report.step);
      save.report.bytes = save.manifest.bytes();
    } catch (const std::exception& error) {
      save.report.error = error.what();
    }
  }
  save.report.seconds = save.watch.seconds();
  if (!save.report.error.empty()) {
    std::filesystem::remove_all(save.temporary, ignored);
    return;
  }
  try {
    store_.remove_old(options_.keep, options_.keep_every);
  } catch (const std::exception& error) {
    save.report.warning = error.what();
  }
}

std::optional<SaveReport> CheckpointWriter::poll() {
  if (!save_ || save_->told) return std::nullopt;
  if (!save_->ended) collect(*save_);
  if (!save_->ended || world_.rank() != 0) return std::nullopt;
  save_->told = true;
  return save_->report;
}

std::optional<SaveReport> CheckpointWriter::finish() {
  if (!save_) return std::nullopt;
  wait_until([&] {
    if (!save_->ended) collect(*save_);
    return save_->ended;
  });
  const bool told = save_->told;
  SaveReport report = report_from(Json::parse(world_.broadcast(to_json(save_->report).dump())));
  save_.reset();
  report.told = told;
  return report;
}

}  // namespace atl
