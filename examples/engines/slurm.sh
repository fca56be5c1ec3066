#!/bin/bash
# Prepare a corpus in parts, each a task of a Slurm job array, and merge them:
#
#     job=$(sbatch --parsable --array=1-32 slurm.sh CORPUS TOKENIZER OUT 32)
#     sbatch --dependency=afterok:$job --mem=8G --wrap "litebert merge OUT"
#
# All paths lie on a disk that every machine reaches. CORPUS and OUT may be in a store instead, such
# as s3://bucket/text and s3://bucket/data (pip install 'litebert[train,remote]'): sbatch hands
# AWS_ACCESS_KEY_ID and the other variables of its shell to the tasks. A task that was killed
# continues when it is given again, such as with sbatch --array=3. `predict`, `embed` and `evaluate`
# take --part too.
#SBATCH --job-name=prepare
#SBATCH --array=1-4
#SBATCH --cpus-per-task=2
#SBATCH --mem=2G
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail
parts=${4:-4}  # as many as the array has

exec litebert prepare "$1" --tokenizer "$2" --out "$3" \
    --part "$SLURM_ARRAY_TASK_ID/$parts" --processes "${SLURM_CPUS_PER_TASK:-2}"
