/// MANIFEST.json and COMMIT: what a checkpoint is, and the hash of every byte of it. SPDX-License-Identifier:
/// Apache-2.0
///
/// COMMIT holds the hash of MANIFEST.json and is written last: without it there is no checkpoint. The manifest covers
/// every byte of every file by segments of at most 16 MiB with a hash each: those of the parts, which hold the numbers,
/// and the rest (HDF5's own structures). It also holds all state that is the same on all ranks, so that one hash
/// protects it.
#pragma once

#include "core/element.hpp"
#include "io/checkpoint/layout.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

inline constexpr std::uint64_t segment_bytes = std::uint64_t{16} << 20;
/// Bytes that are hashed at once, so that they are still in a processor's cache when they are read or written.
inline constexpr std::uint64_t cached_bytes = std::uint64_t{1} << 19;
inline constexpr std::int64_t checkpoint_version = 1;

/// Half-open range of bytes of a file, and their XXH3-64.
struct Segment {
  std::uint64_t offset = 0, size = 0, hash = 0;
};

std::uint64_t hash_of_bytes(const void* bytes, std::size_t count);  ///< XXH3-64

/// Where training stands: everything that is the same on all ranks, or that groups differ in by a number.
struct TrainingPosition {
  std::int64_t step = 0;                  ///< optimizer steps done
  std::int64_t round = 0;                 ///< aggregations done
  bool in_round = false;                  ///< between two aggregations
  std::int64_t cursor = 0;                ///< sequences consumed since the start of training, over all epochs
  std::int64_t tokens = 0;                ///< target tokens of all groups since the start
  std::int64_t optimizer_steps = 0;       ///< since the moments were zero
  bool optimizer_reset = false;           ///< they were set to zero on the way
  std::vector<double> tokens_in_round;    ///< n_g so far of each group
  std::vector<double> tokens_last_round;  ///< n_g of each group in the last complete round; empty before the first
};

/// A data file, or model.h5.
struct CheckpointFile {
  std::string name;  ///< relative to the checkpoint
  std::uint64_t size = 0;
  std::vector<Segment> rest;  ///< bytes that belong to no part
};

/// A part and its place: elements in row-major order from `offset` on, in segments of 16 MiB, the last one shorter.
struct StoredPart : CheckpointPart {
  std::size_t file = 0;  ///< index
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> hashes;
};

struct CheckpointManifest {
  std::string run_id;
  std::string atoll;  ///< version of the program that wrote it
  Element element = Element::f32;
  TrainingPosition position;
  nlohmann::ordered_json configuration;  ///< to_json(RunConfig)
  std::string model;                     ///< a Hugging Face config.json
  nlohmann::ordered_json data;           ///< what identifies the training data: tokens, checksum
  std::vector<GroupShape> groups;        ///< of the grid that wrote it
  std::vector<std::string> units;        ///< names
  std::vector<std::size_t> unit_sizes;
  std::vector<CheckpointFile> files;
  std::vector<StoredPart> parts;

  std::uint64_t bytes() const;  ///< of all files
  bool has(const CheckpointArray& array) const;
};

nlohmann::ordered_json to_json(const CheckpointFile& file);
nlohmann::ordered_json to_json(const StoredPart& part);
CheckpointFile file_from(const nlohmann::ordered_json& json);  ///< throws std::exception for what is none
StoredPart part_from(const nlohmann::ordered_json& json);      ///< the same

std::string to_text(const CheckpointManifest& manifest);
/// DataError that begins with `path` where the text is no manifest that this program knows.
CheckpointManifest parse_manifest(const std::string& text, const std::string& path);

std::string commit_text(std::string_view manifest);  ///< content of COMMIT

/// Reads MANIFEST.json of a checkpoint folder, after a check against COMMIT. DataError says which of the two is missing
/// or wrong.
CheckpointManifest read_manifest(const std::string& folder);

}  // namespace atl
