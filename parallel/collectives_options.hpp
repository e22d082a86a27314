/// What the table [parallel] of the run configuration says of communication. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace atl {

enum class Backend { automatic, mpi, nccl };

/// rank: pairwise exchange and a sum in rank order, the same bits as over MPI. library: NCCL's own reductions, which
/// send as many bytes but cross node boundaries in rings or trees; NCCL promises no order of additions, so bits may
/// change with its version, its settings and the placing of ranks. MPI always adds in rank order, and so do terms that
/// travel as bf16 (the library would add them in bf16).
enum class SumOrder { rank, library };

struct CollectivesOptions {
  Backend backend = Backend::mpi;
  SumOrder sums = SumOrder::rank;
  double time_out = 1800;  ///< seconds that a rank waits for one NCCL operation before it ends the job
};

}  // namespace atl
