"""A file that is named as output is written whole or not at all; a device, a pipe or a stream is
written into.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from abuse import forked
from abuse.test_environments import full_output
from litebert.cli import main
from toys.refusals import names

pytestmark = pytest.mark.skipif(
    not Path("/dev/full").is_char_device(), reason="the system has no full device"
)

WRITERS = {
    "predict": ("predict classifier --input table.csv --keep text --out {}", ".csv"),
    "predict as JSONL": ("predict classifier --input table.csv --keep text --out {}", ".jsonl"),
    "embed": ("embed run --input table.csv --out {}", ".npy"),
    "embed as Parquet": ("embed run --input table.csv --out {}", ".parquet"),
    "embed as JSONL": ("embed run --input table.csv --out {}", ".jsonl"),
    "compare": ("compare run --page {}", ".html"),
    "analyze": ("analyze run --shards data --no-control --sequences 4 --out {}", ".html"),
}


@pytest.fixture
def current_folder(good: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the good things, which is the current one."""
    monkeypatch.chdir(good)
    return good


def words(verb: str, place: Path) -> list[str]:
    """The command of a writer, for an output beside `place` that has the writer's suffix."""
    return WRITERS[verb][0].format(place.with_suffix(WRITERS[verb][1])).split()


@pytest.mark.thorough
@pytest.mark.parametrize("verb", WRITERS)
def test_a_full_device_is_named_and_stays_a_device(
    verb: str, current_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / f"full{WRITERS[verb][1]}"
    place.symlink_to("/dev/full")
    assert main(words(verb, place)) == 2
    message = capfd.readouterr().err
    names(message.splitlines()[-1], place)
    assert "kept" not in message
    assert "wrote" not in message
    assert Path("/dev/full").is_char_device()
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    assert place.is_symlink()


@pytest.mark.parametrize("verb", WRITERS)
def test_the_null_device_takes_everything_and_stays_a_device(
    verb: str, current_folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / f"null{WRITERS[verb][1]}"
    place.symlink_to(os.devnull)
    assert main(words(verb, place)) == 0
    assert Path(os.devnull).is_char_device()
    assert place.is_symlink()


@pytest.mark.parametrize("verb", WRITERS)
def test_a_full_disk_is_named_and_leaves_what_was_there(
    verb: str, good: Path, tmp_path: Path
) -> None:
    place = (tmp_path / "old").with_suffix(WRITERS[verb][1])
    place.write_text("before")
    place.chmod(0o640)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1500, 1500))
    ended = forked.run(words(verb, place), good, before=limit)
    assert ended.status == 2, ended.err
    assert str(place) in ended.err.replace("\n", "")
    assert "kept" not in ended.err
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("before", 0o640)
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    shutil.rmtree(good / "out", ignore_errors=True)


@pytest.mark.parametrize("verb", WRITERS)
def test_a_pipe_gives_what_a_file_would_hold(
    verb: str, current_folder: Path, tmp_path: Path
) -> None:
    suffix = WRITERS[verb][1]
    pipe, file, read = tmp_path / f"pipe{suffix}", tmp_path / f"file{suffix}", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert main(words(verb, pipe)) == 0
    reader.join(20)
    assert main(words(verb, file)) == 0
    assert read[0].replace(str(pipe).encode(), b"") == file.read_bytes().replace(
        str(file).encode(), b""
    )
    assert pipe.is_fifo()
    if suffix == ".npy":
        assert len(np.load(file)) == 60


def test_standard_output_by_its_name_goes_where_it_is_pointed(good: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = "predict classifier --input table.csv --quiet --out"
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        ended = forked.run([*command.split(), name], good, before=partial(_begin, log))
        assert ended.status == 0, ended.err
        rows = log.read_text().splitlines()
        assert (rows[0], len(rows)) == ("before", 62)
        assert rows[1].startswith("prediction,")


def _begin(log: Path) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.write(1, b"before\n")


# ------------------------------------------------------------------------------------------ streams


def full_errors() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


def full_streams() -> None:
    full_output()
    full_errors()


COMMANDS = {
    "recipes": 0,
    "recipes --help": 0,
    "evaluate classifier --data table.csv": 0,
    "completion zsh": 0,
    "predict classifier --input table.csv": 0,
    "dance": 2,
    "plan albert-tinny": 2,
    "compare": 2,
}
"""Commands, and how they end where all can be written."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("before", "loses"), [(full_errors, False), (full_streams, True)])
def test_the_status_says_whether_the_result_was_written(
    command: str, before: Callable[[], object], loses: bool, good: Path
) -> None:
    ended = forked.run(command.split(), good, before=before)
    assert ended.status == (2 if loses else COMMANDS[command]), ended.err
    assert "Traceback" not in ended.err
    if before is full_errors and COMMANDS[command] == 0:
        assert ended.out


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals of pipes")
def test_a_reader_that_leaves_early_is_no_fault(good: Path) -> None:
    for command in ("recipes", "predict classifier --input table.csv", "--help"):
        ended = forked.run(command.split(), good, before=_without_reader)
        assert (ended.status, "Traceback" in ended.err) == (0, False), ended.err


def _without_reader() -> None:
    read, write = os.pipe()
    sys.stdout.close()  # a stream that thinks of a place in a file
    os.dup2(write, 1)
    os.close(read)
    os.close(write)
    sys.stdout = open(1, "w")  # noqa: SIM115 - one that knows of no place in a file


def test_vectors_and_their_scale_change_together(good: Path, tmp_path: Path) -> None:
    place = tmp_path / "vectors.npy"
    command = f"embed run --input table.csv --vector-dtype int8 --out {place}".split()
    assert forked.run(command, good).status == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["vectors.npy", "vectors.scale.npy"]
    command[1:4] = ["run", "--input", "rows.jsonl"]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (400, 400))
    ended = forked.run(command, good, before=limit)
    assert ended.status == 2
    names(ended.err.splitlines()[-1], place)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
