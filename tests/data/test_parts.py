"""Parts of a corpus: every document in exactly one, and merged what one machine writes."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import litebert
from litebert.base.errors import ConfigError, DataError
from litebert.base.storage import lock_folder
from litebert.data import dealing, shard_files
from litebert.data import prepare as preparing
from litebert.data import shards as disk
from litebert.data.shards import Shards
from litebert.parts import MARKER, Part
from litebert.text.sources import Document, Reading, read_documents
from toys.prepare import RUN_UNTIL_KILLED, SHARD_BYTES, Interrupted, content, run, run_part
from toys.refusals import refused

SETTINGS = {"heldout": 0.1, "processes": 1, "shard_bytes": SHARD_BYTES}


@pytest.fixture(scope="module")
def corpus(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all kinds, with duplicates near and far and documents without a token."""
    folder = tmp_path_factory.mktemp("kinds") / "text"
    folder.mkdir()
    texts = tiny_corpus.read_text().strip().split("\n\n")
    (folder / "a.txt").write_text("\n\n".join([*texts[:90], "\x01", *texts[20:30]]))
    with gzip.open(folder / "b.txt.gz", "wt") as file:
        file.write("\n\n".join(texts[80:110]))
    rows = [{"text": text, "other": 1} for text in [*texts[100:140], " ", texts[0], "half \ud800"]]
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    quoted = "".join('"' + text.replace('"', '""') + '",1\n' for text in texts[130:160])
    (folder / "d.csv").write_text("text,n\n" + quoted)
    pq.write_table(pa.table({"text": [*texts[150:], None, "\x02"]}), folder / "e.parquet")
    (folder / "f.txt").write_text("")
    return folder


@pytest.fixture(scope="module")
def single(corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine writes."""
    folder = tmp_path_factory.mktemp("single") / "data"
    run(corpus, folder, tiny_tokenizer)
    return folder


def make(part: str, corpus: Path, out: Path, tokenizer: Path, **options: Any) -> Path:
    folder = run_part(part, corpus, out, tokenizer, **options)
    assert isinstance(folder, Path)
    return folder


def make_all(count: int, corpus: Path, out: Path, tokenizer: Path) -> None:
    for number in random.Random(count).sample(range(1, count + 1), count):
        make(f"{number}/{count}", corpus, out, tokenizer)


@pytest.fixture
def parts(corpus: Path, tiny_tokenizer: Path, tmp_path: Path) -> Path:
    """Three finished parts; the name of their set."""
    make_all(3, corpus, tmp_path / "data", tiny_tokenizer)
    return tmp_path / "data"


# --------------------------------------------------------------------------------------- the cut


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 9))
def test_every_byte_is_in_exactly_one_part(sizes: list[int], count: int) -> None:
    covered: dict[int, list[tuple[int, int]]] = {}
    for number in range(1, count + 1):
        for index, stretch in Part(number, count).choose_stretches(sizes).items():
            covered.setdefault(index, []).append(stretch)
    for index, size in enumerate(sizes):
        stretches = covered[index]
        assert stretches[0][0] == 0
        assert stretches[-1][1] == max(1, size)
        assert all(a[1] == b[0] for a, b in pairwise(stretches))


def test_every_document_is_in_exactly_one_part_and_counts_add_up(corpus: Path) -> None:
    def read(part: Part | None) -> tuple[list[Document], Reading]:
        reading = Reading()
        return list(read_documents([str(corpus)], reading, part)), reading

    whole, reading = read(None)
    expected = reading.tally.to_dict()
    for count in (1, 2, 3, 4, 5, 8, 13, 60):
        documents: list[Document] = []
        tally = Reading().tally
        for number in range(1, count + 1):
            some, counted = read(Part(number, count))
            documents += some
            if number > 1:
                counted.tally.files.clear()
            tally.add(counted.tally)
        assert documents == whole
        assert tally.to_dict() == expected


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.text("ab \n\r.", max_size=30), min_size=1, max_size=4),
    st.integers(1, 6),
    st.sampled_from(["blank-line", "line", "file"]),
)
def test_any_text_is_cut_without_loss(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], count: int, split: Any
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for number, text in enumerate([*texts, "The end."]):
        (folder / f"{number}.txt").write_text(text, newline="")
    whole = list(read_documents([str(folder)], Reading(split=split)))
    every = [
        document
        for number in range(1, count + 1)
        for document in read_documents([str(folder)], Reading(split=split), Part(number, count))
    ]
    assert every == whole


@pytest.mark.parametrize("option", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", ""])
def test_what_is_no_part_is_refused(
    corpus: Path, tmp_path: Path, tiny_tokenizer: Path, option: str
) -> None:
    with refused(ConfigError, f"--part is '{option}'", "1/4"):
        make(option, corpus, tmp_path / "data", tiny_tokenizer)


def test_standard_input_cannot_be_divided(tmp_path: Path, tiny_tokenizer: Path) -> None:
    with refused(ConfigError, "standard input", "file"):
        make("1/2", Path("-"), tmp_path / "data", tiny_tokenizer)


# ----------------------------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_merged_parts_are_what_one_machine_writes(
    tmp_path: Path, corpus: Path, tiny_tokenizer: Path, single: Path, count: int
) -> None:
    out = tmp_path / "data"
    make_all(count, corpus, out, tiny_tokenizer)
    litebert.merge(out)
    assert content(out) == content(single)
    assert Shards.open(out, verify=True).index["documents"]["duplicates"] > 10
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    litebert.merge(out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_more_parts_than_documents(tmp_path: Path, tiny_tokenizer: Path) -> None:
    (tmp_path / "a.txt").write_text("Some of it.\n\nMore of it.\n\nSome of it.")
    make_all(12, tmp_path / "a.txt", tmp_path / "data", tiny_tokenizer)
    litebert.merge(tmp_path / "data")
    run(tmp_path / "a.txt", tmp_path / "single", tiny_tokenizer)
    assert content(tmp_path / "data") == content(tmp_path / "single")


def test_a_small_chunk_of_many_rows(
    tmp_path: Path, corpus: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks decide where record batches end, so they must be those of one machine."""
    monkeypatch.setattr(dealing, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(shard_files, "BATCH_TOKENS", 1000)
    run(corpus, tmp_path / "single", tiny_tokenizer)
    make_all(3, corpus, tmp_path / "data", tiny_tokenizer)
    litebert.merge(tmp_path / "data")
    assert content(tmp_path / "data") == content(tmp_path / "single")
    blocks = shard_files.read_blocks(tmp_path / "data" / "train-00000.arrow")
    assert len(blocks) > 2


def test_a_finished_part_returns_at_once(
    parts: Path, corpus: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **options: object) -> Iterator[Document]:
        yield from ()
        raise AssertionError("the text is read again")

    monkeypatch.setattr(preparing, "read_documents", never)
    before = content(parts.with_name("data.parts"))
    make("2/3", corpus, parts, tiny_tokenizer)
    assert content(parts.with_name("data.parts")) == before


def test_a_finished_part_notices_other_text(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    corpus = tmp_path / "a.txt"
    text = tiny_corpus.read_text()
    corpus.write_text(text)
    folder = make("1/2", corpus, tmp_path / "data", tiny_tokenizer)
    corpus.write_text(text[:100].swapcase() + text[100:])
    os.utime(corpus, (1, 1))
    with refused(ConfigError, folder, "another input"):
        make("1/2", corpus, tmp_path / "data", tiny_tokenizer)
    corpus.write_text(text)
    os.utime(corpus, (2, 2))
    make("1/2", corpus, tmp_path / "data", tiny_tokenizer)


def test_a_merge_that_is_interrupted_continues(
    parts: Path, single: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    write = shard_files.write_shard

    def write_two(path: Path, *rest: Any) -> None:
        if len(made) == 2:
            raise Interrupted
        made.append(path.name)
        write(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "write_shard", write_two)
        with pytest.raises(Interrupted):
            litebert.merge(parts)
    assert not (parts / disk.INDEX).exists()
    litebert.merge(parts)
    assert content(parts) == content(single)


def test_a_merge_of_other_parts_takes_their_tokenizer(
    parts: Path, single: Path, tiny_tokenizer: Path
) -> None:
    """A merge that was killed before its first shard left that of the parts before."""
    (parts / disk.TOKENIZER).mkdir(parents=True)
    (parts / disk.TOKENIZER / "tokenizer.json").write_text("of other parts")
    (parts / "unfinished.jsonl").write_text("")
    litebert.merge(parts)
    assert content(parts) == content(single)


def test_parts_on_a_disk_that_is_only_read(
    parts: Path, corpus: Path, tiny_tokenizer: Path, tmp_path: Path, single: Path
) -> None:
    make("1/1", corpus, tmp_path / "near", tiny_tokenizer, near_duplicates=0.9)
    for name in ("data", "near"):
        folder = tmp_path / f"{name}.parts"
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        for path in (*before, folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        litebert.merge(tmp_path / name)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        lock = folder / ".lock"  # for who may write in spite of the mode
        assert {
            path: path.stat().st_mtime_ns for path in folder.rglob("*") if path != lock
        } == before
        assert os.access(tmp_path / name / disk.TOKENIZER, os.W_OK)
        assert (tmp_path / name / disk.TOKENIZER).stat().st_mode & 0o200
    assert content(parts) == content(single)


def test_a_merge_without_room_for_signatures_is_refused(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**options: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    make("1/1", corpus, tmp_path / "data", tiny_tokenizer, near_duplicates=0.9)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with refused(DataError, tmp_path, "Read-only"):
        litebert.merge(tmp_path / "data")


def test_two_merges_at_once_are_refused(parts: Path) -> None:
    folder = parts.with_name("data.parts")
    with lock_folder(folder, DataError), refused(DataError, folder, os.getpid()):
        litebert.merge(parts)


@pytest.mark.parametrize("verb", ["embed", "predict", "evaluate"])
def test_a_part_whose_verb_was_changed(parts: Path, verb: str) -> None:
    for path in parts.with_name("data.parts").rglob(MARKER):
        path.write_text(path.read_text().replace('"verb": "prepare"', f'"verb": "{verb}"'))
    with refused(DataError, verb, parts.with_name("data.parts") / "1-of-3" / MARKER):
        litebert.merge(parts)


@pytest.mark.parametrize("out", ["", ".", "..", "/", "a/..", "s3://bucket", "s3://bucket/"])
def test_an_output_without_a_name_is_refused(
    corpus: Path, tiny_tokenizer: Path, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(ConfigError, "has no name"):
        litebert.merge(out)
    with refused(ConfigError, "has no name"):
        make("1/2", corpus, out, tiny_tokenizer)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{}, {"near_duplicates": 0.8}])
def test_an_output_in_its_source_is_no_source(
    corpus: Path, tiny_tokenizer: Path, single: Path, tmp_path: Path, options: Any
) -> None:
    """Neither the set, nor its parts, nor what a killed process left of them."""
    for name in ("plain", "within"):
        shutil.copytree(corpus, tmp_path / name)
    run(tmp_path / "plain", tmp_path / "out", tiny_tokenizer, **options)
    for _ in range(2):
        run(tmp_path / "within", tmp_path / "within" / "data", tiny_tokenizer, **options)
    wanted, found = (content(folder) for folder in (tmp_path / "out", tmp_path / "within" / "data"))
    assert found.keys() == wanted.keys()
    assert all(found[name] == wanted[name] for name in wanted if name != disk.INDEX)
    for number in (1, 2):
        make(f"{number}/2", tmp_path / "within", tmp_path / "within" / "b", tiny_tokenizer)
    litebert.merge(tmp_path / "within" / "b")


KILLED = f"""{RUN_UNTIL_KILLED}
import random
import litebert
from litebert.data.prepare import PrepareConfig, prepare_part

corpus, folder, tokenizer, shard_bytes = *sys.argv[1:4], int(sys.argv[4])
config = PrepareConfig(heldout=0.1, shard_bytes=shard_bytes)
draw = random.Random(7)
kills = 0

def make(number, count):
    out = f"{{folder}}/{{count}}"
    options = {{"tokenizer": tokenizer, "processes": 1, "config": config}}
    prepare_part(f"{{number}}/{{count}}", [corpus], out, **options)

for count in (2, 3, 5):
    waiting = list(range(1, count + 1))
    while waiting:
        number = draw.choice(waiting)
        if run(lambda: make(number, count), draw.randint(1, 40)):
            waiting.remove(number)
        else:
            kills += 1
    while not run(lambda: litebert.merge(f"{{folder}}/{{count}}"), draw.randint(1, 30)):
        kills += 1
assert kills >= 10, kills
"""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_parts_and_merges_killed_at_any_instant_end_with_the_same_bytes(
    tmp_path: Path, corpus: Path, tiny_tokenizer: Path, single: Path
) -> None:
    arguments = [str(corpus), str(tmp_path), str(tiny_tokenizer), str(SHARD_BYTES)]
    subprocess.run([sys.executable, "-c", KILLED, *arguments], check=True, timeout=240)
    for count in (2, 3, 5):
        assert content(tmp_path / str(count)) == content(single)


# -------------------------------------------------------------------------------- what is refused


def test_a_part_that_is_missing_or_unfinished(parts: Path) -> None:
    folder = parts.with_name("data.parts")
    (folder / "2-of-3" / MARKER).unlink()
    with refused(DataError, "part 2/3", "unfinished", folder / "2-of-3" / MARKER, "--part 2/3"):
        litebert.merge(parts)
    shutil.rmtree(folder / "2-of-3")
    with refused(DataError, "part 2/3", "missing", folder / "2-of-3" / MARKER, "--part 2/3"):
        litebert.merge(parts)
    with refused(DataError, folder.with_name("other.parts"), "--part"):
        litebert.merge(parts.with_name("other"))
    assert not parts.exists()


def test_a_part_that_is_doubled(parts: Path, corpus: Path, tiny_tokenizer: Path) -> None:
    folder = parts.with_name("data.parts")
    shutil.copytree(folder / "2-of-3", folder / "copy")
    with refused(DataError, "part 2/3", "twice", folder / "2-of-3", folder / "copy"):
        litebert.merge(parts)
    shutil.rmtree(folder / "copy")
    make("1/2", corpus, parts, tiny_tokenizer)
    with refused(DataError, folder / "1-of-2", "1/2", "1/3"):
        litebert.merge(parts)


def test_a_part_of_another_tokenizer(parts: Path, corpus: Path, other_tokenizer: Path) -> None:
    with refused(ConfigError, "2-of-3", "another tokenizer"):
        make("2/3", corpus, parts, other_tokenizer)
    folder = parts.with_name("data.parts") / "2-of-3"
    shutil.rmtree(folder)
    make("2/3", corpus, parts, other_tokenizer)
    with refused(DataError, "part 2/3", folder, "another tokenizer"):
        litebert.merge(parts)


def test_a_part_of_another_input_or_with_other_settings(
    tmp_path: Path, parts: Path, corpus: Path, tiny_tokenizer: Path
) -> None:
    folder = parts.with_name("data.parts") / "3-of-3"
    with refused(ConfigError, folder, "heldout=0.1", "0.2"):
        make("3/3", corpus, parts, tiny_tokenizer, heldout=0.2)
    shutil.rmtree(folder)
    make("3/3", corpus, parts, tiny_tokenizer, heldout=0.2)
    with refused(DataError, "part 3/3", folder, "heldout=0.2", "0.1"):
        litebert.merge(parts)
    shutil.rmtree(folder)
    changed = corpus / "a.txt"
    before = changed.read_bytes()
    try:
        changed.write_bytes(before + b"\n\nMore.")
        make("3/3", corpus, parts, tiny_tokenizer)
    finally:
        changed.write_bytes(before)
    with refused(DataError, "part 3/3", folder, "another input", "bytes"):
        litebert.merge(parts)


def test_a_part_of_another_version(parts: Path) -> None:
    markers = [parts.with_name("data.parts") / f"{number}-of-3" / MARKER for number in range(1, 4)]
    for index, path in enumerate(markers):
        marker = json.loads(path.read_text())
        marker["identity"]["version"] = "0.0.7"
        path.write_text(json.dumps(marker))
        if index == 0:
            with refused(DataError, "part 1/3", "0.0.7", path.parent):
                litebert.merge(parts)
    with refused(DataError, "part 1/3", "0.0.7", markers[0]):
        litebert.merge(parts)


@pytest.mark.parametrize("damage", ["flip", "remove", "marker", "format", "field"])
def test_a_part_that_is_damaged(parts: Path, damage: str) -> None:
    folder = parts.with_name("data.parts") / "2-of-3"
    path = folder / (MARKER if damage in ("marker", "format", "field") else "documents-00000.arrow")
    data = path.read_bytes()
    if damage == "flip":
        path.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    elif damage == "remove":
        path.unlink()
    elif damage == "marker":
        path.write_bytes(data[:300])
    elif damage == "format":
        path.write_bytes(data.replace(b'"format": 1', b'"format": 9'))
    else:
        path.write_bytes(data.replace(b'"fingerprint"', b'"fingerprin"'))
    with refused(DataError, path, folder):
        litebert.merge(parts)
    assert not (parts / disk.INDEX).exists()


def test_a_part_is_no_set(parts: Path) -> None:
    with refused(DataError, "2-of-3", "litebert merge"):
        Shards.open(parts.with_name("data.parts") / "2-of-3")


def test_a_slash_at_the_end_of_a_source_changes_nothing(
    corpus: Path, single: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    for number, source in enumerate((f"{corpus}", f"{corpus}/", f"{corpus.parent}/./text"), 1):
        for spelling in (source, f"{corpus}/"):  # the second time the part is finished
            run_part(f"{number}/3", spelling, tmp_path / "data", tiny_tokenizer)
    litebert.merge(tmp_path / "data")
    made, expected = (
        {path.name: path.read_bytes() for path in folder.glob("*.arrow")}
        for folder in (tmp_path / "data", single)
    )
    assert made == expected


def test_a_part_of_text_of_the_same_size_is_of_another_input(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    source = tmp_path / "text.txt"
    source.write_text("toto bado kumi\n\n" * 9)
    make("1/2", source, tmp_path / "data", tiny_tokenizer)
    source.write_text("toto kumi bado\n\n" * 9)
    make("2/2", source, tmp_path / "data", tiny_tokenizer)
    with refused(DataError, "part 2/2", "another input", "contents"):
        litebert.merge(tmp_path / "data")
