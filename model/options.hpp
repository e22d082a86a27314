/// What the tables [train], [optimizer], [schedule] and [federation] of a run configuration hold.
/// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace atl {

enum class Precision { fp32, bf16, fp64 };
enum class Recompute { none, block };

struct TrainOptions {
  std::int64_t steps = 0;  ///< optimizer steps of each group
  std::int64_t batch =
      0;  ///< sequences of a group per optimizer step; 0: micro_batch x accumulate x ranks of the group
  std::int64_t micro_batch = 0;  ///< sequences a rank holds at once; 0: all of its share of `batch`
  std::int64_t accumulate = 0;   ///< micro-batches per optimizer step; 0: follows from batch and micro_batch
  Precision precision = Precision::fp32;
  Precision reduce_precision = Precision::fp32;  ///< in which gradients travel; bf16: half the bytes, sums in fp32
  Recompute recompute = Recompute::none;
  std::int64_t loss_chunk = 1024;  ///< tokens whose logits exist at once
  bool tf32 = false;               ///< fp32 products may round their factors to TF32
  std::string time_limit;          ///< as model/time_limit.hpp reads it; empty: not given
};

struct OptimizerOptions {
  enum class Kind { adamw, sgd };
  Kind kind = Kind::adamw;
  double lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.95;  ///< [optimizer] betas = [0.9, 0.95]
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< decoupled; not on norms
  double clip_norm = 1.0;     ///< 0: no clipping
};

struct ScheduleOptions {
  enum class Kind { cosine, linear, constant, wsd };
  Kind kind = Kind::cosine;
  double warmup = 0.1;  ///< steps where >= 1, else a fraction of all steps
  double min_lr = 0.0;
  double decay_steps =
      0;  ///< wsd: last steps that decay (fraction of all where < 1; 0: a tenth); cosine, linear: 0 = to the end
};

}  // namespace atl
