/// What NCCL itself keeps on a device. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace atl {

/// Bytes of device memory for one communicator: an estimate, as NCCL tells no number and settles most of it by
/// topology. Each rank has for each other rank of its node, on each of up to 16 channels, a buffer of NCCL_BUFFSIZE (4
/// MiB unless the environment says otherwise: NCCL's documentation, environment variables), and one more for all ranks
/// of other nodes. Nodes are taken to have up to 8 devices.
constexpr std::uint64_t nccl_buffer_bytes(std::uint64_t ranks) {
  constexpr std::uint64_t channels = 16, buffer = std::uint64_t{4} << 20, most_peers = 8;
  return ranks < 2 ? 0 : std::min(ranks - 1, most_peers) * channels * buffer;
}

}  // namespace atl
