#!/usr/bin/env bash
# Slurm job that trains until it is done, over as many jobs as that takes. SPDX-License-Identifier: Apache-2.0
#   sbatch examples/slurm.sh run.toml [--set key=value ...]
# Adapt the lines below to the site: nodes, ranks, cores or GPUs, account. See docs/restart.md.
#SBATCH --job-name=atoll
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
# To the ranks, 120 s before the end: enough for two steps and a save. (B:USR1 would go to this script alone.)
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -uo pipefail

if [ $# -eq 0 ]; then
  echo "usage: sbatch examples/slurm.sh run.toml [--set key=value ...]" >&2
  exit 2
fi
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

code=0
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" "${ATOLL:-atoll}" train "$@" || code=$?

# 75: stopped early on a signal or before the end of its time, with all that is needed to go on.
if [ "$code" -eq 75 ]; then
  echo "stopped early; job $SLURM_JOB_ID goes back to the queue (restart $((${SLURM_RESTART_COUNT:-0} + 1)))"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
