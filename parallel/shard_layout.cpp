/// Places the tensors of a unit in its flat index. SPDX-License-Identifier: Apache-2.0
#include "parallel/shard_layout.hpp"

#include "core/errors.hpp"

#include <utility>

namespace atl {

ShardLayout::ShardLayout(UnitSpec unit, int shards) : unit_(std::move(unit)), shards_(shards) {
  ATOLL_REQUIRE(shards >= 1);
  tensors_.reserve(unit_.tensors.size());
  for (const TensorSpec& tensor : unit_.tensors) {
    tensors_.push_back({size_, size_ + tensor.size()});
    size_ += tensor.size();
  }
  // Shard s starts at s * shard_size, so that equal counts can be gathered: only the tail of the last shards is
  // padding.
  shard_size_ = (size_ + static_cast<std::size_t>(shards) - 1) / static_cast<std::size_t>(shards);
}

}  // namespace atl
