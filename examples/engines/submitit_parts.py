"""Prepare a corpus in parts, each a job of Slurm that submitit starts, and merge them.

python submitit_parts.py CORPUS TOKENIZER OUT [local|slurm]  # pip install 'litebert[train,engines]'

With `local`, the default, the jobs are processes of this machine. The same command again continues.
"""

import sys
from functools import partial

import submitit

import litebert

PARTS = 4


def main() -> None:
    corpus, tokenizer, out, cluster = [*sys.argv[1:], "local"][:4]
    executor = submitit.AutoExecutor(folder=f"{out}.jobs", cluster=cluster)
    executor.update_parameters(name="prepare", timeout_min=240, cpus_per_task=2, mem_gb=2)
    prepare = partial(
        litebert.prepare_part, sources=[corpus], out=out, tokenizer=tokenizer, processes=2
    )
    parts = [f"{number}/{PARTS}" for number in range(1, PARTS + 1)]
    for job in executor.map_array(prepare, parts):
        job.result()
    litebert.merge(out)


if __name__ == "__main__":
    main()
