"""Odd places to run in: a full disk, closed streams, strange variables, signals at any time."""

from __future__ import annotations

import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from abuse import forked
from toys.refusals import names

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform == "win32", reason="needs fork"),
]

VERBS = {
    "tokenizer": "tokenizer train text.txt --vocab-size 300 --out new",
    "prepare": "prepare text.txt --tokenizer tokenizer --out new --processes 1 --heldout 0.1",
    "pretrain": "pretrain small.toml --shards data --out new --train.batch '4 sequences' "
    "--train.save-every '1 steps' "
    "--budget '6 steps'",
    "finetune": "finetune run --task table --data table.csv --out new --steps 4 --length 32",
    "convert": "convert run --out new --to litebert",
    "predict": "predict classifier --input table.csv --out new.csv",
    "evaluate": "evaluate run --shards data",
    "evaluate a classifier": "evaluate classifier --data table.csv",
    "compare": "compare run",
    "plan": "plan albert-tiny",
}


def words_of(verb: str) -> list[str]:
    return shlex.split(VERBS[verb])


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """The good things, to write into."""
    place = tmp_path / "place"
    shutil.copytree(good, place, ignore=shutil.ignore_patterns("bad", "out", ".lock"))
    return place


# ------------------------------------------------ what is done to a process before its command runs


def little_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), used + (8 << 20)))


def full_output() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def close(stream: int) -> None:
    os.close(stream)
    setattr(
        sys, ("stdin", "stdout", "stderr")[stream], None
    )  # what Python makes of a closed stream


def know_few_letters() -> None:
    sys.stdout.reconfigure(encoding="latin-1")  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="ascii")  # type: ignore[union-attr]


def leave(place: Path) -> None:
    place.mkdir()
    os.chdir(place)
    place.rmdir()


# --------------------------------------------------------------------------------------------------


def list_leftovers(place: Path) -> list[str]:
    return [str(path.relative_to(place)) for path in place.rglob(".tmp-*")]


class TestFullDisk:
    """No file may grow past a limit, which is how a full disk looks to a program that writes
    one."""

    @pytest.mark.parametrize(
        "verb", ["tokenizer", "prepare", "pretrain", "finetune", "convert", "predict"]
    )
    def test_is_one_sentence_and_then_the_same_command_works(self, copy: Path, verb: str) -> None:
        for limit in (0, 20_000):
            small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
            ended = forked.run(words_of(verb), copy, before=small)
            # The log of this test is such a file, so what was printed may be cut, but never is a
            # traceback.
            assert "Traceback" not in ended.err
            if ended.status != 0:  # a limit above all its files is none
                assert ended.status == 2
                assert not list_leftovers(copy)
                # What the person named, or the folder of temporary files.
                assert limit == 0 or "new" in ended.err or tempfile.gettempdir() in ended.err
        again = forked.run(words_of(verb), copy)
        assert again.status == 0, again.err


class TestLimits:
    """A shared machine may allow little."""

    @pytest.mark.parametrize("verb", VERBS)
    def test_few_open_files_are_one_sentence(self, copy: Path, verb: str) -> None:
        few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (8, 8))
        ended = forked.run(words_of(verb), copy, before=few)
        assert "Traceback" not in ended.err, ended.err
        assert ended.status in (0, 2), ended.err
        assert ended.status == 0 or not list_leftovers(copy)

    @pytest.mark.parametrize("verb", VERBS)
    def test_little_memory_is_one_sentence(self, copy: Path, verb: str) -> None:
        ended = forked.run(words_of(verb), copy, before=little_memory)
        assert "Traceback" not in ended.err, ended.err
        assert ended.status in (0, 2), ended.err
        assert ended.status == 0 or not list_leftovers(copy)


# a command once did not end beside another worker; not yet repeated under load since
@pytest.mark.slow
class TestSignals:
    @pytest.mark.parametrize(
        ("verb", "number"), list(zip(VERBS, cycle([signal.SIGINT, signal.SIGTERM])))
    )
    def test_leave_at_once_and_whole(self, copy: Path, verb: str, number: signal.Signals) -> None:
        draw = random.Random(f"{verb} {number}")
        for _ in range(2):
            ended = forked.run(
                words_of(verb), copy, stop=(number, draw.uniform(0.0, 0.5)), patience=30
            )
            assert "Traceback" not in ended.err, ended.err
            assert ended.status in (0, 128 + number), ended.err
            if ended.status == 0:
                break
            assert len(ended.err.splitlines()) <= 20
        if ended.status != 0:
            again = forked.run(words_of(verb), copy)
            assert again.status == 0, again.err
        assert not list_leftovers(copy)


class TestStreams:
    @pytest.mark.parametrize(
        "command",
        [
            "recipes",
            "plan albert-tiny",
            "compare run",
            "predict classifier --input table.csv",
            "--help",
            "recipes --json",
            "evaluate run --shards data",
            "--version",
            "completion bash",
            "doctor",
            "evaluate classifier --data table.csv",
        ],
    )
    def test_a_full_output_is_one_sentence(self, copy: Path, command: str) -> None:
        ended = forked.run(command.split(), copy, before=full_output)
        assert "Traceback" not in ended.err
        assert ended.status == 2
        assert len(ended.err.splitlines()) <= 8

    @pytest.mark.parametrize("stream", [0, 1, 2])
    @pytest.mark.parametrize(
        "command",
        [
            "recipes",
            "predict classifier --input -",
            "prepare - --tokenizer tokenizer --out new",
            "tokenizer inspect - --tokenizer tokenizer",
            "compare run",
            "dance",
        ],
    )
    def test_a_closed_stream_gives_no_traceback(
        self, copy: Path, stream: int, command: str
    ) -> None:
        ended = forked.run(command.split(), copy, before=partial(close, stream))
        assert "Traceback" not in ended.err
        assert ended.status in (0, 2)

    def test_a_terminal_that_knows_few_letters(self, copy: Path) -> None:
        (copy / "greek.txt").write_text("λόγος και Ελλάδα\n" * 20, encoding="utf-8")
        for command in (
            "tokenizer inspect greek.txt --tokenizer tokenizer",
            "compare run",
            "recipes",
            "dαnce",
            "prepare λ.txt --tokenizer tokenizer --out new",
        ):
            ended = forked.run(command.split(), copy, before=know_few_letters)
            assert "Traceback" not in ended.err, ended.err
            assert ended.status in (0, 2)


class TestVariables:
    @pytest.mark.parametrize(
        ("name", "value", "place"),
        [
            ("LITEBERT_EXTENSIONS", "missing.py", "missing.py"),
            ("LITEBERT_EXTENSIONS", "bad.py", "bad.py"),
            ("LITEBERT_EXTENSIONS", "text.txt", "text.txt"),
            ("LITEBERT_EXTENSIONS", "data", "data"),
        ],
    )
    def test_an_extension_that_cannot_be_run_is_named(
        self, copy: Path, name: str, value: str, place: str
    ) -> None:
        (copy / "bad.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
        ended = forked.run(["recipes"], copy, environment={name: value})
        assert ended.status == 2
        names(" ".join(ended.err.split()), place)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("COLUMNS", "5"),
            ("COLUMNS", "none"),
            ("TERM", "dumb"),
            ("TERM", ""),
            ("NO_COLOR", "1"),
            ("LANG", "xx_YY"),
            ("LC_ALL", "C"),
            ("HOME", "/nowhere"),
            ("TMPDIR", "/nowhere"),
            ("PYTHONWARNINGS", "error"),
            ("TZ", "Nowhere"),
        ],
    )
    def test_strange_variables_change_nothing(self, copy: Path, name: str, value: str) -> None:
        for verb in ("compare", "prepare"):
            ended = forked.run(words_of(verb), copy, environment={name: value})
            assert ended.status == 0, ended.err


class TestPlaces:
    def test_a_folder_that_has_gone(self, copy: Path, tmp_path: Path) -> None:
        for command in (
            "recipes",
            "prepare text.txt --tokenizer tokenizer --out new",
            "compare run",
            "quickstart",
        ):
            ended = forked.run(command.split(), copy, before=partial(leave, tmp_path / "gone"))
            assert "Traceback" not in ended.err, ended.err
            assert ended.status in (0, 2)

    @pytest.mark.parametrize(
        "verb", ["tokenizer", "prepare", "pretrain", "finetune", "convert", "predict"]
    )
    @pytest.mark.parametrize("name", ["text.txt/new", "/proc/new", "/dev/null/new", "n" * 300])
    def test_an_output_that_cannot_be(self, copy: Path, verb: str, name: str) -> None:
        words = [name if word in ("new", "new.csv") else word for word in words_of(verb)]
        ended = forked.run(words, copy)
        assert "Traceback" not in ended.err
        assert ended.status == 2, ended.err
        assert name[:40] in ended.err.replace("\n", "")

    def test_a_name_that_is_not_utf_8(self, copy: Path) -> None:
        odd = os.fsdecode(b"caf\xe9.txt")
        shutil.copy(copy / "text.txt", copy / odd)
        ended = forked.run(
            ["prepare", odd, "--tokenizer", "tokenizer", "--out", "new", "--processes", "1"], copy
        )
        assert "Traceback" not in ended.err, ended.err
        assert ended.status in (0, 2)

    @pytest.mark.parametrize("verb", ["pretrain", "finetune"])
    def test_two_at_once_in_one_folder(self, copy: Path, verb: str) -> None:
        from filelock import FileLock

        place = copy / "new"
        place.mkdir()
        with FileLock(place / ".lock"):
            ended = forked.run(words_of(verb), copy)
        assert ended.status == 2, ended.err
        assert "new" in ended.err
