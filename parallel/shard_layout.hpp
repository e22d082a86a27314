/// How a unit's tensors lie in one flat buffer, and who owns which part. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace atl {

/// Half-open range of an unpadded flat index. Ownership (shard, slice, checkpoint) is always one of these.
struct Range {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

inline Range intersect(Range a, Range b) {
  const std::size_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return begin < end ? Range{begin, end} : Range{begin, begin};
}

/// Part `index` of `parts` equal parts (the last ones shorter or empty) of [0, size).
inline Range equal_part(std::size_t size, std::size_t parts, std::size_t index) {
  const std::size_t length = (size + parts - 1) / parts;
  return {std::min(size, index * length), std::min(size, (index + 1) * length)};
}

/// A parameter tensor: Hugging Face name, and shape: (rows, columns), or (n) for a vector.
struct TensorSpec {
  std::string name;
  std::vector<std::size_t> shape;
  bool decay = true;  ///< weight decay applies (not on norms)
  std::size_t size() const {
    std::size_t n = 1;
    for (const auto extent : shape) n *= extent;
    return n;
  }
};

/// Parameters gathered and freed together: the embedding, a transformer block, final norm and head.
struct UnitSpec {
  std::string name;
  std::vector<TensorSpec> tensors;
  int buffer = 0;  ///< units that name the same full-size buffer are never needed at the same time
};

/// Flat index of a unit: its tensors one after another without gaps, then zeros up to S equal shards.
class ShardLayout {
 public:
  ShardLayout(UnitSpec unit, int shards);
  const UnitSpec& unit() const { return unit_; }
  std::size_t size() const { return size_; }              ///< unpadded
  std::size_t shard_size() const { return shard_size_; }  ///< ceil(size / S), also of the last shard (padded)
  std::size_t padded_size() const { return shard_size_ * static_cast<std::size_t>(shards_); }
  int shards() const { return shards_; }
  Range owned(int shard) const {
    return equal_part(size_, static_cast<std::size_t>(shards_), static_cast<std::size_t>(shard));
  }
  Range tensor(std::size_t index) const { return tensors_[index]; }  ///< flat range of the unit's index-th tensor

 private:
  UnitSpec unit_;
  int shards_;
  std::size_t size_ = 0, shard_size_ = 0;
  std::vector<Range> tensors_;
};

}  // namespace atl
