/// SPDX-License-Identifier: Apache-2.0
#include "parallel/launcher.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace atl {

namespace {

/// How a launcher tells processes how many it started, and which of them each is.
struct Launcher {
  const char* size;
  const char* rank;
  const char* name;
  const char* fix;
};
// SLURM_NTASKS is that of the allocation, of which a batch script may well use one task: only a step counts.
constexpr const char* of_that_library = "start the program by the mpiexec of that library";
constexpr Launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpiexec", of_that_library},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MVAPICH2's mpiexec", of_that_library},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun",
     "choose srun's interface to it (srun --mpi=list names those there are; --mpi=pmix or --mpi=pmi2 mostly), or start "
     "the program by the mpiexec of that library"},
    {"FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux", "load flux's plugin for it, or start the program by its mpiexec"},
    {"PMI_SIZE", "PMI_RANK", "the mpiexec of MPICH or of a relative (Intel MPI, Cray MPICH)", of_that_library}};

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtol(text, nullptr, 10);
}

/// Who says that it started several processes; null where nobody does.
const Launcher* launcher_of_several() {
  for (const Launcher& launcher : launchers)
    if (from_environment(launcher.size, 1) > 1) return &launcher;
  return nullptr;
}

}  // namespace

std::string launcher_mismatch(const Runtime& runtime) {
  const Launcher* const launcher = runtime.size() == 1 ? launcher_of_several() : nullptr;
  if (launcher == nullptr) return "";
  return fmt::format(
      "{} started {} processes ({} = {}), but each is alone in its MPI world: the launcher does not work with this "
      "program's MPI library, {}; {}",
      launcher->name, from_environment(launcher->size, 1), launcher->size, from_environment(launcher->size, 1),
      runtime.mpi_version(), launcher->fix);
}

bool first_of_launcher() {
  const Launcher* const launcher = launcher_of_several();
  return launcher == nullptr || from_environment(launcher->rank, 0) == 0;
}

int allocated_tasks() {
  // In a step of its own the step's tasks are what counts.
  return static_cast<int>(from_environment("SLURM_STEP_NUM_TASKS", from_environment("SLURM_NTASKS", 0)));
}

}  // namespace atl
