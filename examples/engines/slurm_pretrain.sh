#!/bin/bash
# Pretrain on the GPUs of two machines with torchrun, which Slurm starts once on each machine:
#
#     sbatch slurm_pretrain.sh RECIPE SHARDS OUT BUDGET    # such as albert-base data run '100k steps'
#
# SHARDS and OUT lie on a disk that every machine reaches; SHARDS may be in a store, such as
# s3://bucket/data. Two minutes before the time is over, Slurm sends SIGTERM and the run saves. The
# same command again continues the run. Nothing here has run on a GPU or on several real machines.
#SBATCH --job-name=pretrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

exec srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-8}" \
    --rdzv-backend c10d --rdzv-endpoint "$first:29500" --rdzv-id "$SLURM_JOB_ID" --max-restarts 3 \
    -m litebert pretrain "$1" --shards "$2" --out "$3" --budget "$4"
