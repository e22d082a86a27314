/// Follows, in their order, the constructors and steps that allocate. SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.hpp"

#include "core/attention.hpp"
#include "core/gemm.hpp"
#include "core/norm.hpp"
#include "core/rms_norm.hpp"
#include "model/loss.hpp"
#include "model/parameters.hpp"
#include "parallel/federation_slices.hpp"
#include "parallel/nccl_buffers.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace atl {

namespace {

using Bytes = std::uint64_t;

constexpr std::array<std::string_view, memory_uses> use_names = {
    "master weights", "bf16 weights", "gradients",    "moments",        "gathered units",
    "full gradients", "activations",  "logits",       "workspaces",     "receive buffers",
    "federation",     "NCCL buffers", "host staging", "checkpoint copy"};

class Planner {
 public:
  Planner(const LlamaConfig& config, const MemoryOptions& options)
      : config_(config),
        options_(options),
        specs_(llama_units(config)),
        element_(options.precision == Precision::fp64   ? 8
                 : options.precision == Precision::fp32 ? 4
                                                        : 2),
        accumulator_(options.precision == Precision::fp64 ? 8 : 4),
        replicas_(static_cast<Bytes>(options.group.replicas)),
        shards_(static_cast<Bytes>(options.group.shards)),
        groups_(static_cast<Bytes>(options.groups)) {
    for (const UnitSpec& unit : specs_) units_.emplace_back(unit, options.group.shards);
    for (const auto& unit : units_) largest_shard_ = std::max<Bytes>(largest_shard_, unit.shard_size());
  }

  MemoryPlan make() {
    parameters();
    llama();
    communication();
    federation();
    saving();
    add(MemoryUse::checkpoint, "checkpoint_copy", options_.checkpoint_copy);
    return std::move(plan_);
  }

 private:
  // Types of arrays: T of gathered weights and activations, R of sums and of what the optimizer touches, 32-bit
  // integers.
  Bytes t(Bytes n) const { return n * element_; }
  Bytes r(Bytes n) const { return n * accumulator_; }
  static Bytes i32(Bytes n) { return n * sizeof(std::int32_t); }
  bool mixed() const { return element_ != accumulator_; }  ///< bf16

  void add(MemoryUse use, const std::string& label, Bytes bytes, Bytes arrays = 1) {
    if (bytes > 0 && arrays > 0) plan_.items.push_back({"atoll::" + label, use, arrays, arrays * bytes});
  }

  /// ShardedParameters, and the moments of Optimizer.
  void parameters() {
    const bool keep = options_.after == AfterForward::keep;
    std::map<std::size_t, Bytes> full, gradient;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const std::string& name = units_[i].unit().name;
      const auto buffer = static_cast<std::size_t>(units_[i].unit().buffer);
      const Bytes shard = units_[i].shard_size(), padded = units_[i].padded_size();
      add(MemoryUse::master, "master " + name, r(shard));
      if (mixed()) add(MemoryUse::weights, "weights " + name, t(shard));
      add(MemoryUse::gradients, "gradient " + name, r(shard));
      if (options_.optimizer == OptimizerOptions::Kind::adamw) {
        add(MemoryUse::moments, "moment1 " + name, r(shard));
        add(MemoryUse::moments, "moment2 " + name, r(shard));
      }
      full[keep ? i : buffer] = std::max(full[keep ? i : buffer], padded);
      gradient[buffer] = std::max(gradient[buffer], padded);
    }
    if (shards_ > 1)
      for (const auto& [slot, n] : full)
        add(MemoryUse::gathered, "gathered", t(n), keep ? 1 : needed(slot, options_.prefetch + 1));
    const int window = gradient_window(options_.prefetch, options_.group.shards, options_.micro_batches);
    for (const auto& [slot, n] : gradient) add(MemoryUse::full_gradients, "full_gradient", r(n), needed(slot, window));
  }

  Bytes needed(std::size_t buffer, int window) const {
    return buffers_needed(specs_, static_cast<int>(buffer), window);
  }

  /// Llama: residual stream, BlockActivations, BlockWorkspace, Loss, TokenIndex, RopeTable.
  void llama() {
    const auto size = [](std::int64_t n) { return static_cast<Bytes>(n); };
    const Bytes length = size(options_.shape.sequence_length), n = size(options_.shape.micro_batch) * length;
    const Bytes c = size(config_.hidden_size), f = size(config_.intermediate_size), v = size(config_.vocab_size);
    const Bytes q = size(config_.query_size()), qkv = q + 2 * size(config_.key_value_size());
    const Bytes heads = size(config_.num_attention_heads), layers = size(config_.num_hidden_layers);
    const Bytes partial = rms_norm_workspace(c);

    const MemoryUse saved = MemoryUse::activations, work = MemoryUse::workspaces;
    const Bytes kept = options_.shape.recompute == Recompute::none ? layers : 1;
    add(saved, "residual_stream", t(n * c), layers + 1);
    add(saved, "residual_middle", t(n * c), kept);
    for (const char* label : {"attention_reciprocal", "mlp_reciprocal"}) add(saved, label, r(n), kept);
    add(saved, "qkv", t(n * qkv), kept);
    add(saved, "attended", t(n * q), kept);
    add(saved, "attention_lse", r(n * heads), kept);
    add(saved, "gate_up", t(n * 2 * f), kept);

    for (const char* label : {"normed", "residual_gradient", "final_normed", "final_dnormed"})
      add(work, label, t(n * c));
    add(work, "dattended", t(n * q));
    add(work, "dqkv", t(n * qkv));
    add(work, "activated", t(n * f));
    const AttentionShape attention{1, n, heads, 1, q / heads};
    add(work, "attention_workspace",
        r(mixed() ? attention_workspace<bf16>(attention) : attention_workspace<float>(attention)));
    add(work, "gemm_workspace", gemm_workspace_bytes(mixed() ? Element::bf16 : Element::f32));
    for (const char* label : {"norm_partial", "final_norm_partial"}) add(work, label, r(partial));
    for (const char* label : {"final_reciprocal", "losses"}) add(work, label, r(n));
    for (const char* label : {"rope_cosine", "rope_sine"}) add(work, label, r(length * size(config_.head_dim) / 2));
    for (const char* label : {"tokens", "targets", "token_positions", "token_distinct"}) add(work, label, i32(n));
    add(work, "token_begins", i32(n + 1));
    add(work, "partial_sums", sum_workspace * sizeof(double), 3);  // of losses, gradients and the federation
    if (options_.shape.packing == Packing::documents) add(work, "document_starts", i32(n));

    const Bytes chunk = std::min(n, size(options_.shape.loss_chunk));
    add(MemoryUse::logits, "logits", r((mixed() ? Loss<bf16>::logit_rows(chunk) : chunk) * v));
    if (mixed()) add(MemoryUse::logits, "dlogits", t(chunk * v));
  }

  /// Terms of gradients, as they travel.
  Bytes sent(Bytes n) const { return options_.wire == Wire::bf16 ? n * sizeof(bf16) : r(n); }
  /// Elements that the m - 1 others send of the first slice in an all-reduce of n elements over m ranks.
  static Bytes received_elements(Bytes n, Bytes m) { return (m - 1) * equal_part(n, m, 0).size(); }

  /// Collectives of the shard and of the replica communicator: one workspace each, as one reduction of each is under
  /// way at a time; gathers need one only where they are staged.
  void communication() {
    library_buffers(shards_);
    library_buffers(replicas_);
    if (shards_ > 1) {
      const Bytes others = sent((shards_ - 1) * largest_shard_), whole = sent(shards_ * largest_shard_);
      add(MemoryUse::receive, "receive_workspace", others);
      if (options_.wire == Wire::bf16) add(MemoryUse::receive, "send_workspace", whole);
      stage(others, whole);
      for (int i = 0; i < options_.prefetch; ++i) stage(0, t(shards_ * largest_shard_));
    }
    if (replicas_ > 1) {
      const Bytes others = sent(received_elements(largest_shard_, replicas_));
      add(MemoryUse::receive, "receive_workspace", others);
      if (options_.wire == Wire::bf16) add(MemoryUse::receive, "send_workspace", sent(largest_shard_));
      // The federation gathers slices over the same communicator.
      stage(others, std::max(sent(largest_shard_), groups_ > 1 ? r(slice(largest_shard_) * replicas_) : 0));
    }
  }

  /// Of a communicator. No array of Kokkos, so no label of one.
  void library_buffers(Bytes ranks) {
    if (options_.nccl && ranks > 1) plan_.items.push_back({"NCCL", MemoryUse::network, 1, nccl_buffer_bytes(ranks)});
  }

  void stage(Bytes incoming, Bytes mirror) {
    if (!options_.staged) return;
    add(MemoryUse::staging, "host_incoming", incoming);
    add(MemoryUse::staging, "host_mirror", mirror);
  }

  Bytes slice(Bytes shard) const { return equal_part(shard, replicas_, 0).size(); }

  /// Elements of the first rank's slice of a unit by the set of ranks that it averages them with.
  std::map<std::vector<int>, Bytes> pieces(const ShardLayout& unit) const {
    std::map<std::vector<int>, Bytes> pieces;
    if (groups_ == 1) return pieces;
    const auto& all = options_.unequal_groups;
    if (all.empty()) return {{{}, slice(unit.shard_size())}};
    const auto mine = std::find(all.begin(), all.end(), options_.group) - all.begin();
    for (const SlicePiece& piece : pieces_of_slice(unit.size(), all, static_cast<int>(mine), 0))
      pieces[piece.owners] += piece.range.size();
    return pieces;
  }

  /// Federation: the outer optimizer's state; then average, unit by unit. Its buffers grow, and the old one is freed
  /// after the new one is there.
  void federation() {
    if (groups_ == 1 && !options_.outer.has_anchor()) return;
    Bytes own = 0, all = 0, received = 0, most = 0;
    std::map<std::vector<int>, Bytes> workspaces;  // of the collectives that join a set
    for (const auto& unit : units_) {
      const std::string& name = unit.unit().name;
      const Bytes averaged = r(slice_of(unit.size(), options_.group, 0).size());
      if (options_.outer.has_anchor()) add(MemoryUse::federation, "outer_anchor " + name, averaged);
      if (options_.outer.has_moment1()) add(MemoryUse::federation, "outer_moment1 " + name, averaged);
      if (options_.outer.has_moment2()) add(MemoryUse::federation, "outer_moment2 " + name, averaged);
      const Bytes length = slice(unit.shard_size());
      if (length > own) most = std::max(most, r(own + length + all) + received);
      own = std::max(own, length);
      for (const auto& [set, n] : pieces(unit)) {
        Bytes& workspace = workspaces[set];
        const Bytes needed = std::max(workspace, r(received_elements(n, groups_)));
        received += needed - workspace;
        workspace = needed;
      }
      if (replicas_ == 1) continue;
      if (length * replicas_ > all) most = std::max(most, r(own + all + length * replicas_) + received);
      all = std::max(all, length * replicas_);
    }
    add(MemoryUse::federation, "federation_slice", r(own));
    add(MemoryUse::federation, "federation_slices", r(all));
    for (const auto& [set, bytes] : workspaces) {
      add(MemoryUse::receive, "receive_workspace", bytes);
      library_buffers(groups_);
    }
    stage(received, r(own));
    plan_.temporaries.push_back(
        {"the first aggregation", most > r(own + all) + received ? most - r(own + all) - received : 0});
    if (!options_.evaluates || groups_ == 1) return;
    Bytes saved = 0;
    for (const auto& unit : units_) saved += r(unit.shard_size());
    plan_.temporaries.push_back({"an evaluation between aggregations", saved});
  }

  /// ShardedParameters::gather_master, in the replica that writes the model.
  void saving() {
    Bytes largest = 0;
    for (const auto& unit : units_) largest = std::max<Bytes>(largest, unit.padded_size());
    plan_.temporaries.push_back({"saving the model", r(largest)});
  }

  const LlamaConfig& config_;
  const MemoryOptions& options_;
  std::vector<UnitSpec> specs_;
  Bytes element_, accumulator_, replicas_, shards_, groups_, largest_shard_ = 0;
  std::vector<ShardLayout> units_;
  MemoryPlan plan_;
};

}  // namespace

std::string_view name_of(MemoryUse use) { return use_names[static_cast<std::size_t>(use)]; }

std::uint64_t MemoryPlan::of(MemoryUse use) const {
  std::uint64_t bytes = 0;
  for (const auto& item : items)
    if (item.use == use) bytes += item.bytes;
  return bytes;
}

std::uint64_t MemoryPlan::total() const {
  std::uint64_t bytes = 0;
  for (const auto& item : items) bytes += item.bytes;
  return bytes;
}

std::uint64_t MemoryPlan::peak() const {
  std::uint64_t largest = 0;
  for (const auto& temporary : temporaries) largest = std::max(largest, temporary.bytes);
  return total() + largest;
}

MemoryPlan plan_memory(const LlamaConfig& config, const MemoryOptions& options) {
  return Planner(config, options).make();
}

}  // namespace atl
