/// Whether the launcher that started the program belongs to its MPI library. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/runtime.hpp"

#include <string>

namespace atl {

/// Empty, or what is wrong and the fix: somebody started several processes, but each is alone in its MPI world, since
/// the launcher is that of another MPI library. Every one of them would then do the whole work by itself, and write the
/// same files.
std::string launcher_mismatch(const Runtime& runtime);

/// True in the process that the launcher calls the first, and in one that nobody launched. For what all processes would
/// say alike while MPI is not there to ask: before its start, after its end, and in a launcher_mismatch.
bool first_of_launcher();

/// Tasks that Slurm allocated to the job, 0 outside of a job. More than are running is a hint that srun was forgotten.
int allocated_tasks();

}  // namespace atl
