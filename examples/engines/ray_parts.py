"""Prepare a corpus in parts, each a task of Ray, and merge them.

python ray_parts.py CORPUS TOKENIZER OUT    # pip install 'litebert[train,engines]'

All paths lie on a disk that every machine reaches. The same command again continues.
"""

import sys

import ray

import litebert

PARTS = 4


def main() -> None:
    corpus, tokenizer, out = sys.argv[1:]
    prepare = ray.remote(num_cpus=1, max_retries=3)(litebert.prepare_part)
    parts = [f"{number}/{PARTS}" for number in range(1, PARTS + 1)]
    ray.get(
        [prepare.remote(part, [corpus], out, tokenizer=tokenizer, processes=1) for part in parts]
    )
    ray.shutdown()  # its processes take memory that the merge does not need
    litebert.merge(out)


if __name__ == "__main__":
    main()
