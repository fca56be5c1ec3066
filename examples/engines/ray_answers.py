"""Answer the rows of a table, or embed them, with Ray Data: two processes, each with the model.

python ray_answers.py MODEL TABLE OUT [predict|embed]    # pip install 'litebert[engines]'

TABLE is a file or a folder of Parquet with the column `text`, and OUT a folder of Parquet. Rows may
change their order: give them a column `id`, which stays.
"""

import sys

import ray

import litebert


def main() -> None:
    model, table, out, verb = [*sys.argv[1:], "predict"][:4]
    ray.data.read_parquet(table).map_batches(
        litebert.BatchFunction,
        fn_constructor_args=(model, verb),
        batch_size=1024,
        compute=ray.data.ActorPoolStrategy(size=2),
        num_cpus=0.5,  # reading and writing need a core too; take num_gpus=1 where there are GPUs
    ).write_parquet(out)


if __name__ == "__main__":
    main()
