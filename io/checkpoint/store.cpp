/// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/store.hpp"

#include "core/errors.hpp"
#include "io/pending_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>
#include <system_error>

namespace atl {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view step_prefix = "step_", temporary_prefix = ".tmp-";

/// -1 for any other name.
std::int64_t step_of(const std::string& name) {
  if (name.rfind(step_prefix, 0) != 0) return -1;
  std::int64_t step = -1;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + step_prefix.size(), end, step);
  return error == std::errc() && last == end ? step : -1;
}

void rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw DataError(fmt::format("{}: cannot be renamed to {}: {}", from, to, error.message()));
}

}  // namespace

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

std::string CheckpointStore::path_of(std::int64_t step) const {
  return fmt::format("{}/{}{:06d}", folder_, step_prefix, step);
}

std::vector<CheckpointEntry> CheckpointStore::entries() const {
  std::vector<CheckpointEntry> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::int64_t step = step_of(entry->path().filename().string());
    if (step >= 0) found.push_back({step, entry->path().string()});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw DataError(fmt::format("{}: cannot be listed: {}", folder_, error.message()));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

bool CheckpointStore::has(std::int64_t step) const { return fs::exists(path_of(step)); }

std::string CheckpointStore::begin(const std::string& name, std::uint64_t bytes) const {
  const std::string temporary = fmt::format("{}/{}{}", folder_, temporary_prefix, name);
  std::error_code error;
  fs::create_directories(temporary + "/data", error);
  if (error) throw DataError(fmt::format("{}: cannot be made: {}", temporary, error.message()));
  const fs::space_info space = fs::space(folder_, error);
  if (!error && space.available < bytes) {
    fs::remove_all(temporary, error);
    throw DataError(fmt::format(
        "{}: the file system has {} bytes free, a checkpoint needs {}; make room, lower checkpoint.keep, or set "
        "checkpoint.moments",
        folder_, space.available, bytes));
  }
  return temporary;
}

void CheckpointStore::publish(const std::string& temporary, std::int64_t step) const {
  const std::string path = path_of(step), link = folder_ + "/latest", new_link = folder_ + "/.tmp-latest";
  flush_to_disk(temporary + "/data");
  flush_to_disk(temporary);
  if (fs::exists(path)) throw DataError(fmt::format("{}: is there already; move it away", path));
  rename(temporary, path);
  flush_to_disk(folder_);
  std::error_code error;
  fs::remove(new_link, error);
  fs::create_symlink(fs::path(path).filename(), new_link, error);
  if (error) return;  // the checkpoint is there; a file system without links has no `latest`
  rename(new_link, link);
  flush_to_disk(folder_);
}

void CheckpointStore::remove_old(std::int64_t keep, std::int64_t keep_every) const {
  if (keep <= 0) return;
  std::int64_t kept = 0;
  for (const CheckpointEntry& entry : entries()) {
    if (++kept <= keep || (keep_every > 0 && entry.step % keep_every == 0)) continue;
    // Renamed first: should the removal be cut short, what is left is no checkpoint.
    const std::string doomed = fmt::format("{}/{}old-{}", folder_, temporary_prefix, entry.step);
    std::error_code error;
    fs::remove_all(doomed, error);
    rename(entry.path, doomed);
    fs::remove_all(doomed, error);
    if (error) throw DataError(fmt::format("{}: cannot be removed: {}", doomed, error.message()));
  }
}

void CheckpointStore::remove_temporaries() const {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().rfind(temporary_prefix, 0) == 0) found.push_back(entry->path());
  for (const fs::path& path : found) fs::remove_all(path, error);
}

std::vector<std::string> CheckpointStore::set_aside_after(std::int64_t step) const {
  std::vector<std::string> moved;
  for (const CheckpointEntry& entry : entries()) {
    if (entry.step <= step) continue;
    const std::string base = fmt::format("{}/set_aside_{}", folder_, fs::path(entry.path).filename().string());
    std::string name = base;
    for (int i = 2; fs::exists(name); ++i) name = fmt::format("{}_{}", base, i);
    rename(entry.path, name);
    moved.push_back(name);
  }
  return moved;
}

}  // namespace atl
