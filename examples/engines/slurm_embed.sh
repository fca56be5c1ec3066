#!/bin/bash
# Vectors of many files, by the tasks of a Slurm job array:
#
#     sbatch --array=1-32 slurm_embed.sh MODEL LIST OUT 32
#
# LIST has the name of an input file on each line, here or in a store, such as s3://bucket/a.jsonl.
# The vectors of line 7 are OUT/00007.npy, and OUT may be in a store too. A file is computed whole or
# not at all, so let each take about an hour. LIST.done/ remembers the lines that are done: a task
# that was killed goes on with its next line when it is given again.
# DTYPE=int8 is the fastest.
#SBATCH --job-name=embed
#SBATCH --array=1-4
#SBATCH --cpus-per-task=2
#SBATCH --mem=2G
#SBATCH --requeue
set -euo pipefail
model=$1 list=$2 out=${3%/} tasks=${4:-4}  # as many as the array has
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-2}
mkdir -p "$list.done"
case $out in *://*) ;; *) mkdir -p "$out" ;; esac

number=0
while IFS= read -r input; do
    number=$((number + 1))
    name=$(printf %05d "$number")
    if (((number - SLURM_ARRAY_TASK_ID) % tasks == 0)) && [ ! -e "$list.done/$name" ]; then
        litebert embed "$model" ${DTYPE:+--dtype "$DTYPE"} --input "$input" --out "$out/$name.npy" < /dev/null
        touch "$list.done/$name"
    fi
done < "$list"
