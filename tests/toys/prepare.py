"""Preparing small folders in tests, in this process and in others."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litebert.data import shards as disk
from litebert.data.prepare import PrepareConfig, prepare, prepare_part
from litebert.data.shards import Shards
from litebert.tokenizer import Tokenizer

SHARD_BYTES = 20_000
"""Bytes of text of a shard: the 60 kB of `tiny_corpus` make several."""


def run(corpus: str | Path, out: str | Path, tokenizer: Path, **options: Any) -> Shards:
    processes = options.pop("processes", 1)
    config = PrepareConfig(**{"heldout": 0.1, "shard_bytes": SHARD_BYTES, **options})
    return prepare([str(corpus)], out, tokenizer=tokenizer, processes=processes, config=config)


Prepare = Callable[..., Shards]
"""The fixture `prepare` of tests/data: (out, corpus=tiny_corpus, tokenizer=tiny_tokenizer, ...)."""


def run_part(
    part: str, corpus: str | Path, out: str | Path, tokenizer: Path, **options: Any
) -> str | Path:
    config = PrepareConfig(**{"heldout": 0.1, "shard_bytes": SHARD_BYTES, **options})
    return prepare_part(part, [str(corpus)], out, tokenizer=tokenizer, processes=1, config=config)


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def texts_of(split: disk.Split, tokenizer: Tokenizer) -> list[str]:
    return [
        tokenizer.decode(split.read_document(number)[0].tolist())
        for number in range(split.documents)
    ]


COMMAND = """
import sys
from litebert.data.prepare import PrepareConfig, prepare
if __name__ == "__main__":
    prepare(
        sys.argv[1:2], sys.argv[2], tokenizer=sys.argv[3], processes=2,
        config=PrepareConfig(heldout=float(sys.argv[4]), shard_bytes=int(sys.argv[5])),
    )
"""


RUN_UNTIL_KILLED = """
import functools, os, signal, sys

def run(work, instant):
    '''Run in a fork, killed after so many whole writes; return whether it came to its end.'''
    process = os.fork()  # spares the imports
    if process == 0:
        calls = 0
        def counted(call):
            @functools.wraps(call)
            def deadly(*arguments):
                nonlocal calls
                result = call(*arguments)
                calls += 1
                if calls == instant:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result
            return deadly
        os.fsync, os.replace = counted(os.fsync), counted(os.replace)
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    status = os.waitpid(process, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == 0
"""
"""The start of a program that kills its work."""


def start(tmp_path: Path, *arguments: object) -> subprocess.Popen[bytes]:
    script = tmp_path / "command.py"  # a file, since spawned workers import it
    script.write_text(COMMAND)
    return subprocess.Popen([sys.executable, str(script), *map(str, arguments)])


def tree(process: int) -> list[int]:
    """The process and all below it."""
    processes = [process]
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return processes
    return processes + [below for child in children for below in tree(int(child))]


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")


def wait_for(condition: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Interrupted(BaseException):
    pass
