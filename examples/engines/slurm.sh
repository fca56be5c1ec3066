#!/bin/bash
# Prepare a corpus in four parts, each a task of a Slurm job array, and merge them:
#
#     job=$(sbatch --parsable slurm.sh CORPUS TOKENIZER OUT)
#     sbatch --dependency=afterok:$job --wrap "litebert merge OUT"
#
# All paths lie on a disk that every machine reaches. A task that was killed continues when it is
# given again, such as with sbatch --array=3. `predict`, `embed` and `evaluate` take --part too.
#SBATCH --job-name=prepare
#SBATCH --array=1-4
#SBATCH --cpus-per-task=2
#SBATCH --mem=2G
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail
parts=4  # as many as the array has

exec litebert prepare "$1" --tokenizer "$2" --out "$3" \
    --part "$SLURM_ARRAY_TASK_ID/$parts" --processes "${SLURM_CPUS_PER_TASK:-2}"
