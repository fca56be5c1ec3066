"""Preparing that is killed, damaged or begun with something else: the same bytes in the end, or a
refusal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import DataError
from litebert.data import shard_files
from litebert.data import shards as disk
from litebert.data.building import Journal
from toys.prepare import (
    RUN_UNTIL_KILLED,
    SHARD_BYTES,
    Interrupted,
    Prepare,
    content,
    is_alive,
    needs_proc,
    start,
    tree,
    wait_for,
)
from toys.refusals import refused

KILLED_WHILE_WRITING = f"""{RUN_UNTIL_KILLED}
from litebert.data.prepare import PrepareConfig, prepare

corpus, folder, tokenizer, shard_bytes = *sys.argv[1:4], int(sys.argv[4])
config = PrepareConfig(heldout=0.1, shard_bytes=shard_bytes)

def make(name):
    prepare([corpus], f"{{folder}}/{{name}}", tokenizer=tokenizer, processes=1, config=config)

instants = 0
while not run(lambda: make(1 + 3 * instants), 1 + 3 * instants):
    assert run(lambda: make(1 + 3 * instants), 0)
    instants += 1
assert instants >= 6, instants
kills = 0
while not run(lambda: make("many"), 9):  # each run gets a little further
    kills += 1
assert kills >= 2, kills
"""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_killed_at_any_instant_of_writing_the_same_command_ends_with_the_same_bytes(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path
) -> None:
    arguments = [str(tiny_corpus), str(tmp_path), str(tiny_tokenizer), str(SHARD_BYTES)]
    subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_WRITING, *arguments], check=True, timeout=120
    )
    wanted = content(whole)
    for folder in sorted(tmp_path.iterdir()):
        assert content(folder) == wanted, f"killed at {folder.name}"


def test_killed_after_the_index_was_written(
    tmp_path: Path, prepare: Prepare, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = disk.write_index

    def write_and_stop(*index: Any) -> None:
        write(*index)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_index", write_and_stop)
        with pytest.raises(Interrupted):
            prepare(tmp_path / "out")
    assert (tmp_path / "out" / disk.INDEX).exists()
    prepare(tmp_path / "out")
    assert content(tmp_path / "out") == content(whole)


@pytest.mark.thorough
@needs_proc
def test_killed_with_workers_at_work(
    tmp_path: Path, prepare: Prepare, tiny_corpus: Path, tiny_tokenizer: Path, whole: Path
) -> None:
    corpus = tmp_path / "a.txt"
    texts = tiny_corpus.read_text().strip().split("\n\n")
    corpus.write_text("\n\n".join(f"Edition {i}. {text}" for i in range(20) for text in texts))
    out = tmp_path / "out"
    process = start(tmp_path, corpus, out, tiny_tokenizer, 0.1, SHARD_BYTES)
    try:
        wait_for(lambda: len(list(out.glob("*.arrow"))) >= 3)
        workers = tree(process.pid)[1:]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (out / disk.INDEX).exists()
    assert len(workers) >= 2
    wait_for(lambda: not any(is_alive(worker) for worker in workers))
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("*.arrow")}
    prepare(out, corpus)
    again = sum(
        path.stat().st_mtime_ns != times[path.name]
        for path in out.glob("*.arrow")
        if path.name in times
    )
    assert again <= 1, "finished shards are not made again; at most the one not yet in the journal"
    prepare(tmp_path / "uninterrupted", corpus)
    assert content(out) == content(tmp_path / "uninterrupted")


def test_finished_shards_are_kept(
    prepare: Prepare, unfinished_folder: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name for path in unfinished_folder.glob("*.arrow")}
    made = []
    write = shard_files.write_shard

    def note_and_write(path: Path, *rest: Any) -> None:
        made.append(path.name)
        write(path, *rest)

    monkeypatch.setattr(shard_files, "write_shard", note_and_write)
    prepare(unfinished_folder)
    assert len(before) == 2
    assert sorted(made) == sorted({path.name for path in whole.glob("*.arrow")} - before)
    assert content(unfinished_folder) == content(whole)


@pytest.mark.parametrize(
    "damage", ["flip", "truncate", "remove", "journal torn", "journal line lost"]
)
def test_what_is_damaged_meanwhile_is_made_again(
    prepare: Prepare, unfinished_folder: Path, whole: Path, damage: str
) -> None:
    path = sorted(unfinished_folder.glob("*.arrow"))[0]
    data, journal = path.read_bytes(), unfinished_folder / Journal.NAME
    if damage == "flip":
        path.write_bytes(data[:500] + bytes([data[500] ^ 1]) + data[501:])
    elif damage == "truncate":
        path.write_bytes(data[:500])
    elif damage == "remove":
        path.unlink()
    elif damage == "journal torn":
        journal.write_bytes(journal.read_bytes()[:-30])
    else:
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    prepare(unfinished_folder)
    assert content(unfinished_folder) == content(whole)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "was"),
    [
        ("heldout", 0.2, 0.1),
        ("language", "de", "en"),
        ("split", "line", "blank-line"),
        ("shard_bytes", 999, SHARD_BYTES),
        ("encoding", "latin-1", "utf-8"),
    ],
)
def test_other_settings_into_the_same_folder_are_refused(
    prepare: Prepare,
    unfinished_folder: Path,
    whole: Path,
    finished: bool,
    name: str,
    value: object,
    was: object,
) -> None:
    out = whole if finished else unfinished_folder
    before = content(out)
    with refused(DataError, out, name, value, was):
        prepare(out, **{name: value})
    assert content(out) == before, "nothing is lost"


def test_other_text_into_the_same_folder_is_refused(
    tmp_path: Path, prepare: Prepare, tiny_corpus: Path
) -> None:
    corpus = tmp_path / "a.txt"
    texts = tiny_corpus.read_text()
    corpus.write_text(texts)
    out = tmp_path / "out"
    prepare(out, corpus)
    (out / disk.INDEX).rename(tmp_path / "index.json")
    index = json.loads((tmp_path / "index.json").read_text())
    header = {"settings": index["settings"], "tokenizer": index["tokenizer"]}
    lines = [header, *index["shards"]]
    (out / Journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = texts[:-100] + texts[-100:].swapcase()  # as many bytes, other text
    times = corpus.stat().st_atime_ns, corpus.stat().st_mtime_ns
    corpus.write_text(changed)
    os.utime(corpus, ns=times)  # nothing outside the text tells
    with refused(DataError, out, "text"):
        prepare(out, corpus)
    with refused(DataError, out, "sources"):
        prepare(out)
    corpus.write_text(texts)  # at another time
    prepare(out, corpus)
    assert json.loads((out / disk.INDEX).read_text())["shards"] == index["shards"]


def test_a_whole_set_is_judged_by_the_text_of_its_sources_not_by_their_times(
    tmp_path: Path, prepare: Prepare, tiny_corpus: Path
) -> None:
    corpus, out = tmp_path / "a.txt", tmp_path / "out"
    texts = tiny_corpus.read_text()
    corpus.write_text(texts)
    prepare(out, corpus)
    before = content(out)
    last = texts.rstrip().rindex("\n\n")
    for changed in (
        texts + "\n\nMore.",
        texts[:last],
        texts[:-100] + texts[-100:].swapcase(),
        "More.",
    ):
        corpus.write_text(changed)
        with refused(DataError, out, "text"):
            prepare(out, corpus)
        assert content(out) == before, "nothing is lost"
    corpus.write_text(texts)
    os.utime(corpus, (0, 0))  # copied, or restored from a backup
    prepare(out, corpus)
    assert content(out) == before


def test_another_tokenizer_is_refused(
    prepare: Prepare, other_tokenizer: Path, unfinished_folder: Path
) -> None:
    with refused(DataError, unfinished_folder, "tokenizer"):
        prepare(unfinished_folder, tokenizer=other_tokenizer)
    prepare(unfinished_folder)


def test_a_command_may_be_corrected_while_no_shard_is_finished(
    tmp_path: Path, prepare: Prepare, other_tokenizer: Path, whole: Path
) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\xff")
    out = tmp_path / "out"
    with refused(DataError, f"{bad}:1", "0xff"):
        prepare(out, bad, other_tokenizer, heldout=0.2)
    prepare(out)
    assert content(out) == content(whole)
