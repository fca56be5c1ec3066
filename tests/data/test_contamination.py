"""`prepare --check-against`: texts that the training text holds too, beside sets of runs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import litebert
from litebert.base.errors import DataError
from litebert.cli import main
from litebert.data import contamination
from litebert.data.contamination import RUN, read_texts
from litebert.data.prepare import PrepareConfig, prepare
from litebert.data.shards import Shards, Split
from litebert.data.summary import list_rows
from litebert.text.sentences import split_sentences
from litebert.tokenizer import Tokenizer
from toys.prepare import content
from toys.refusals import refused
from toys.typed import typed


@pytest.fixture(scope="module")
def task(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Rows that stand in the corpus, rows that do not, and short ones, in three formats."""
    documents = tiny_corpus.read_text().strip().split("\n\n")
    rows = [document[9:200] for document in documents[::4]]
    rows += ["".join(reversed(document[9:200])) for document in documents[:20]]
    rows += ["gade lide."]
    folder = tmp_path_factory.mktemp("task")
    files = [folder / name for name in ("dev.tsv", "dev.jsonl", "dev.json")]
    files[0].write_text("".join(f"{number}\t{row}\t1\n" for number, row in enumerate(rows)))
    entries = [{"label": 1, "pair": [row, "no"]} for row in rows[::2]]
    files[1].write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    files[2].write_text(json.dumps({"data": {"rows": rows[1::3]}}))
    return files


def list_runs(ids: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(ids[i : i + RUN].tolist()) for i in range(len(ids) - RUN + 1)}


def list_split_runs(split: Split) -> list[set[tuple[int, ...]]]:
    return [list_runs(split.read_document(number)[0]) for number in range(split.documents)]


def encode(text: str, tokenizer: Tokenizer) -> np.ndarray:
    return tokenizer.encode_flat(split_sentences(text, "en"))[0]


def test_counts_are_those_of_sets_of_runs(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path, task: list[Path]
) -> None:
    names = ["heldout", *map(str, task)]
    config = PrepareConfig(heldout=0.2, shard_bytes=20_000, check_against=names)
    sources, out = [str(tiny_corpus)], tmp_path / "data"
    shards = prepare(sources, out, tokenizer=tiny_tokenizer, processes=1, config=config)
    train = list_split_runs(shards.train)
    every = set().union(*train)
    texts = {str(file): list(read_texts(str(file))) for file in task}
    runs = {
        name: [list_runs(encode(text, shards.tokenizer)) for text in some]
        for name, some in texts.items()
    }
    runs["heldout"] = list_split_runs(shards.heldout)
    sought = {run for sets in runs.values() for some in sets for run in some}
    contamination = shards.index["contamination"]
    assert contamination["documents"] == sum(bool(some & sought) for some in train)
    assert list(contamination["files"]) == names
    for name, counts in contamination["files"].items():
        assert counts["texts"] == len(runs[name])
        assert counts["short"] == sum(not some for some in runs[name])
        assert counts["found"] == sum(bool(some & every) for some in runs[name])
        assert len(counts["examples"]) == min(3, counts["found"])
    assert contamination["files"][str(task[0])]["found"] >= 20
    assert contamination["files"][str(task[0])]["short"] > 0


def test_the_table_has_it_and_parts_agree(
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    tmp_path: Path,
    task: list[Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "prepare {} --tokenizer {} --processes 1 --check-against heldout {} --out"
    words = typed(line, tiny_corpus, tiny_tokenizer, task[0])
    assert main([*words, str(tmp_path / "one")]) == 0
    out = capsys.readouterr().out
    assert "documents that hold such texts" in out
    assert "found of heldout" in out
    for number in (2, 1):
        assert main([*words, str(tmp_path / "two"), "--part", f"{number}/2"]) == 0
    litebert.merge(tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two")
    recorded = Shards.open(tmp_path / "one").index["settings"]["check_against"]
    assert recorded["heldout"] is None
    assert len(recorded[str(task[0])]) == 64
    task[0].write_text("another text\n", encoding="utf-8")
    assert main([*words, str(tmp_path / "one")]) == 2  # its report would be of the other text
    assert "check_against" in capsys.readouterr().err


def test_texts_beyond_the_limit_are_counted(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contamination, "MOST_RUNS", 20)
    monkeypatch.setattr(contamination, "_TEXTS", 2)
    lines = [line for line in tiny_corpus.read_text("utf-8").splitlines() if len(line) > 200][:9]
    (tmp_path / "check.txt").write_text("\n".join(lines), encoding="utf-8")
    check = [str(tmp_path / "check.txt")]
    sources, out = [str(tiny_corpus)], tmp_path / "data"
    config = PrepareConfig(check_against=check)
    shards = prepare(sources, out, tokenizer=tiny_tokenizer, processes=1, config=config)
    counts = shards.index["contamination"]["files"][check[0]]
    assert counts["texts"] == len(lines)
    assert counts["left_out"] == len(lines) - 2
    assert "not looked for" in str(list_rows(shards.index))


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "right"}\n{"text": wrong}\n')
    with refused(DataError, f"{tmp_path / 'a.jsonl'}:2"):
        list(read_texts(str(tmp_path / "a.jsonl")))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with refused(DataError, tmp_path / "none.tsv", "heldout"):
        PrepareConfig(check_against=[str(tmp_path / "none.tsv")])
    (tmp_path / "rows.parquet").write_bytes(b"")
    with refused(DataError, tmp_path / "rows.parquet", "Parquet"):
        list(read_texts(str(tmp_path / "rows.parquet")))
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": \n')
    with refused(DataError, tmp_path / "bad.jsonl", "JSON"):
        list(read_texts(str(tmp_path / "bad.jsonl")))


def test_rows_of_tables_as_every_verb_reads_them(tmp_path: Path) -> None:
    rows = [{"text": 'two\nlines, "quoted"', "label": "a"}, {"text": "b;c", "label": "d"}]
    wanted = ["\n".join(row.values()) for row in rows]
    for delimiter in ",;\t":
        held = io.StringIO()
        csv.writer(held, delimiter=delimiter).writerows([[*rows[0]], *(r.values() for r in rows)])
        (tmp_path / "a.csv").write_text(held.getvalue())
        assert list(read_texts(str(tmp_path / "a.csv"))) == wanted
    (tmp_path / "a.jsonl").write_text(json.dumps(rows, indent=1))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        assert list(read_texts(str(tmp_path / name))) == wanted
