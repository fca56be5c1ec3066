"""Filter documents with datatrove, and write those that stay as a set of token shards.

python datatrove_shards.py FOLDER TOKENIZER OUT    # pip install 'litebert[train,engines]'

FOLDER holds files of JSON Lines with the field `text`. Each task of datatrove writes a part of the
set. The same command again does the tasks that are missing. SlurmPipelineExecutor takes the same
pipeline.
"""

import sys
from collections.abc import Iterable, Iterator

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.filters import LambdaFilter
from datatrove.pipeline.readers import JsonlReader

import litebert
from litebert.base.registry import SOURCES

TASKS = 4


class ShardWriter(PipelineStep):
    """Writes the documents of task `rank` as one of `world_size` parts of a set."""

    name, type = "litebert", "Shards"
    documents: Iterable[Document] = ()

    def __init__(self, out: str, tokenizer: str) -> None:
        super().__init__()
        self.out, self.tokenizer = out, tokenizer

    def run(self, data: Iterable[Document], rank: int = 0, world_size: int = 1) -> None:
        def read(name: str, reading: object) -> Iterator[tuple[str, str]]:
            return ((document.text, document.id) for document in ShardWriter.documents)

        ShardWriter.documents = data
        if "datatrove:" not in SOURCES:  # a process may do several tasks
            SOURCES.add("datatrove:", read)
        sources = [f"datatrove:{number}" for number in range(world_size)]
        part = f"{rank + 1}/{world_size}"
        litebert.prepare_part(part, sources, self.out, tokenizer=self.tokenizer, processes=1)


def main() -> None:
    folder, tokenizer, out = sys.argv[1:]
    pipeline = [
        JsonlReader(folder, doc_progress=False),
        LambdaFilter(lambda document: len(document.text) >= 20),
        ShardWriter(out, tokenizer),
    ]
    LocalPipelineExecutor(pipeline, tasks=TASKS, workers=2, logging_dir=f"{out}.logs").run()
    litebert.merge(out)


if __name__ == "__main__":
    main()
