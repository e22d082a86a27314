/// What one rank will allocate, from the configuration alone. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/llama.hpp"
#include "model/options.hpp"
#include "parallel/outer_optimizer.hpp"
#include "parallel/process_grid.hpp"
#include "parallel/sharded_parameters.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// What memory is for. All but the last two are memory of the execution space.
enum class MemoryUse {
  master,          ///< this rank's shards of the parameters
  weights,         ///< the bf16 that they round to
  gradients,       ///< and of their gradients
  moments,         ///< and of the optimizer's moments
  gathered,        ///< buffers for units gathered from the replica
  full_gradients,  ///< buffers for full gradients of units
  activations,     ///< what backward needs of forward: residual stream, and the blocks' activations
  logits,          ///< of one chunk of tokens
  workspaces,      ///< of backward, of the loss and of the embedding
  receive,         ///< contributions of other ranks, before they are summed; and the rank's own, where rounded
  federation,      ///< slices of the average
  network,         ///< NCCL's own buffers, estimated (nccl_buffer_bytes)
  staging,         ///< host memory, where MPI does not reach the device's
  checkpoint       ///< host memory: the copy that an asynchronous save is written from
};
inline constexpr int memory_uses = 14;
std::string_view name_of(MemoryUse use);

/// Arrays of one label, as Kokkos Tools reports them.
struct MemoryItem {
  std::string label;
  MemoryUse use = MemoryUse::workspaces;
  std::uint64_t arrays = 0;
  std::uint64_t bytes = 0;  ///< of all of them together
};

/// Memory that exists for a moment, beside all items. No two of these exist together.
struct TemporaryMemory {
  std::string what;
  std::uint64_t bytes = 0;
};

struct MemoryOptions {
  LlamaShape shape;                        ///< micro_batch: the largest that a rank holds
  GroupShape group;                        ///< R replicas of S shards
  int groups = 1;                          ///< G
  std::vector<GroupShape> unequal_groups;  ///< where they differ: those of all groups; `group` is one of them
  OuterOptions outer;
  AfterForward after = AfterForward::reshard;
  int prefetch = 1;                ///< as of ShardedParameters
  std::int64_t micro_batches = 1;  ///< of a rank in a step, the most
  Precision precision = Precision::fp32;
  Wire wire = Wire::exact;  ///< how gradients travel
  OptimizerOptions::Kind optimizer = OptimizerOptions::Kind::adamw;
  bool nccl = !kernels_on_host && nccl_built_in();     ///< arrays move by NCCL
  bool staged = !kernels_on_host && !nccl_built_in();  ///< communicated from copies in host memory
  bool evaluates = true;                               ///< evaluations inside the run
  std::uint64_t checkpoint_copy = 0;                   ///< bytes of a rank's part of an asynchronous checkpoint
};

/// Memory of the rank that needs most (ranks differ by the last, shorter slices only), once a training step, an
/// aggregation, an evaluation and the saving of the model have happened: everything that the run allocates through
/// Kokkos, and the buffers of NCCL, which are estimated. Not in it: code and libraries (a device's context too), MPI's
/// own buffers, the data set, and a threaded Kokkos' own scratch memory.
struct MemoryPlan {
  std::vector<MemoryItem> items;
  std::vector<TemporaryMemory> temporaries;

  std::uint64_t of(MemoryUse use) const;
  std::uint64_t total() const;  ///< of all items
  std::uint64_t peak() const;   ///< with the largest temporary
};

/// `config` is complete (complete_and_check). Allocates nothing.
MemoryPlan plan_memory(const LlamaConfig& config, const MemoryOptions& options);

}  // namespace atl
