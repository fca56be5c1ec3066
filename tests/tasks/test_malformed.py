"""Every reader against every defect: what cannot be read is one sentence with the line, what is
mended is counted, and all else of the file is there, unchanged.

The matrix is the readers of toy_readers.py by the defects below. Cells that make no sense are left
out: GLUE and RACE have files of fixed names, so none is compressed; SQuAD and RACE have no columns
(missing fields are in their own tests); SQuAD, the diagnostic set of GLUE and texts to be answered
have no labels to be unseen; of a plain text cut short, or of a table cut in the last cell of a row,
nothing tells. Parquet has tests of its own.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from litebert.answer.model import load
from litebert.base.errors import DataError
from litebert.config import EncoderConfig
from litebert.model.task_model import TaskModel
from litebert.tasks.glue import GLUE
from litebert.tokenizer import Tokenizer
from toys.finetuning import recipe_file
from toys.folders import save_litebert
from toys.readers import (
    CHOICES,
    LENGTH,
    RACE,
    READERS,
    TAGGED,
    TAGS,
    TEXTS,
    Reader,
    lines,
    one_line,
    place_of,
)
from toys.refusals import names, refused
from toys.tasks import Table

Run = Callable[..., tuple[int, str, str]]
JSON = [name for name, reader in READERS.items() if reader.content[:1] == b"{"]
SCORED = [name for name in READERS if name.partition(".")[0] != "predict"]


def every(names: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "reader", [pytest.param(READERS[name], id=name) for name in names]
    )


def places_in(sentence: str) -> list[str]:
    """The file with its line, and the numbers, of what a reader is expected to say."""
    return re.findall(r"FILE(?::\d+)?|\d+", sentence)


# ------------------------------------------------------------------------------ what cannot be read


@every(READERS)
@pytest.mark.parametrize(
    "content", [b"", b"\xef\xbb\xbf", b"\r\n"], ids=["nothing", "a mark", "a line end"]
)
def test_empty(reader: Reader, content: bytes, tmp_path: Path) -> None:
    if (
        content and reader.file.endswith(".txt") and not reader.cut
    ):  # plain text has a row for every line
        (note,) = reader.read(tmp_path, content)[1]
        names(note, 1)
    else:
        names(reader.fails(tmp_path, content), *places_in(reader.empty))


@every(name for name, reader in READERS.items() if reader.cut)
def test_cut_short(reader: Reader, tmp_path: Path) -> None:
    content = reader.content[: reader.content.index(b"shut") + 2]
    if reader.file == "QQP/dev.tsv":  # the published files have such rows
        examples, notes, _ = reader.read(tmp_path, content)
        assert examples == reader.read(tmp_path, reader.content)[0][:2]
        (note,) = notes
        names(note, "columns", 1)
    else:
        names(reader.fails(tmp_path, content), *places_in(reader.cut))


@every(name for name, reader in READERS.items() if reader.packs)
def test_a_compressed_file(reader: Reader, tmp_path: Path) -> None:
    wanted = reader.read(tmp_path, reader.content)[:2]
    packed = Reader(f"{reader.file}.gz", reader.content, reader.task)
    whole = gzip.compress(reader.content)
    assert packed.read(tmp_path, whole)[:2] == wanted
    for content in (whole[:-12], whole[:5]):
        names(packed.fails(tmp_path, content), "FILE")


@every(READERS)
def test_encodings(reader: Reader, tmp_path: Path) -> None:
    text = reader.content.decode()
    mixed = reader.content.replace("café".encode(), "café".encode("latin-1"))
    line, before = place_of(mixed, b"\xe9")
    names(reader.fails(tmp_path, mixed), f"FILE:{line}", "UTF-8", "0xe9", before)
    names(
        reader.fails(tmp_path, b"\xff\xfe" + text.encode("utf-16-le")), "FILE:1", "UTF-8", "0xff", 0
    )
    for unmarked in (
        "utf-16-le",
        "utf-16-be",
    ):  # which is UTF-8 too, with a NUL beside every letter
        names(
            reader.fails(tmp_path, text.replace("café", "cafe").encode(unmarked)),
            "FILE:1",
            "UTF-8",
            "UTF-16",
        )


@every(name for name in READERS if name in GLUE or name.endswith(("csv", "tsv")))
def test_a_wrong_number_of_columns(reader: Reader, tmp_path: Path) -> None:
    comma = reader.file.endswith("csv")
    separator = b"," if comma else b"\t"
    rows = reader.content.splitlines(keepends=True)
    width = rows[0].count(separator) + 1
    for wrong, columns in (
        (rows[-2].replace(b"\n", separator + b"x\n"), width + 1),
        (rows[-2].split(separator, 1)[1], width - 1),
    ):
        content = b"".join([*rows[:-2], wrong, rows[-1]])
        if reader.file == "QQP/dev.tsv":
            examples, notes, _ = reader.read(tmp_path, content)
            assert [example.text for example in examples] == ["one two", "shut"]
            (note,) = notes
            names(note, "columns", 1)
            continue
        names(reader.fails(tmp_path, content), f"FILE:{len(rows) - 1}", columns, width)


@pytest.mark.parametrize(
    "wrong", [b"four five NN\tB-loc\tx\nx\tO\n", b"fourfive\nx\n", b"four\0five B-loc\n"]
)
def test_a_wrong_number_of_columns_of_tags(wrong: bytes, tmp_path: Path) -> None:
    """A NUL is a space, and between spaces that is one column more."""
    content = (
        b"one B-per\n\n" + wrong
        if b"\0" in wrong
        else TAGGED.replace(b"four five\tB-loc\nx\tO\n", wrong)
    )
    columns = 3 if b"\0" in wrong else wrong.split(b"\n")[0].count(b"\t") + 1
    names(READERS["tagging"].fails(tmp_path, content), "FILE:3", columns, 2)


# -------------------------------------------------------------------- labels never seen in training


@every(name for name in READERS if name in GLUE and name != "ax")
def test_labels_that_a_benchmark_has_not(reader: Reader, tmp_path: Path) -> None:
    *rows, last = reader.content.splitlines(keepends=True)
    spec = next(spec for spec in GLUE.values() if spec.folder == Path(reader.file).parent.name)
    cells = last.removesuffix(b"\n").split(b"\t")
    for label in ("maybe", "", "-", "nan"):
        cells[spec.label] = label.encode()
        wrong = b"\t".join(cells) + b"\n"
        message = reader.fails(tmp_path, b"".join([*rows, wrong]))
        names(message, f"FILE:{len(rows) + 1}", f"'{label}'", *(spec.labels or (0, 5)))


@every(["table.csv", "table.tsv", "table.jsonl"])
def test_labels_that_a_table_has_not(reader: Reader, tmp_path: Path) -> None:
    *head, tail = reader.content.rsplit(b"no", 1)
    line = place_of(reader.content, b"shut")[0]
    for label, spelt in (
        ("maybe", "'maybe'"),
        ("a long label " * 20, f"'{('a long label ' * 3)[:36]}..."),
    ):
        content = head[0] + label.encode() + tail
        chosen = Reader(reader.file, content, lambda path: Table(path, path, labels=("no", "yes")))
        names(chosen.fails(tmp_path, content), f"FILE:{line}", spelt)
        examples, notes, _ = reader.read(tmp_path, content)  # what is scored only
        assert [example.label for example in examples].count(-1) == 1
        assert any("missed" in note for note in notes)


def test_one_of_several_labels_that_a_table_has_not(tmp_path: Path) -> None:
    content = lines({"text": "a", "label": ["no"]}, {"text": "b", "label": ["no", "sun\nday"]})
    named: Any = {"target": "labels", "labels": ("no", "yes")}
    reader = Reader("a.jsonl", b"", lambda path: Table(path, path, **named))
    names(reader.fails(tmp_path, content), "FILE:2", r"'sun\nday'")
    scored = Reader("a.jsonl", b"", lambda path: Table(dev=path, **named))
    examples, _, _ = scored.read(tmp_path, content)
    assert [example.label for example in examples] == [(1, 0), (1, 0, 1)]


def test_answers_that_no_choice_has(tmp_path: Path) -> None:
    wrong = CHOICES[:-4] + CHOICES[-4:].replace(b"B", b"E")
    names(READERS["choices"].fails(tmp_path, wrong), "FILE:3", "label", "'E'")
    wrong = RACE[:-6] + RACE[-6:].replace(b"B", b"E")
    names(READERS["race"].fails(tmp_path, wrong), "FILE:3", "answers[0]", "'E'", "A", "B")


# ----------------------------------------------------------------------------------- what is mended


@every(READERS)
def test_nul_bytes(reader: Reader, tmp_path: Path) -> None:
    reader.mends(tmp_path, reader.content.replace(b"four five", b"four\0five"), "NUL", 1)


@every(JSON)
def test_nul_and_half_characters_that_are_spelt(reader: Reader, tmp_path: Path) -> None:
    reader.mends(tmp_path, reader.content.replace(b"four five", rb"four\u0000five"), "NUL", 1)
    reader.mends(
        tmp_path, reader.content.replace(b"four five", rb"four\ud83dfive"), 1, text="four\ufffdfive"
    )


@every(READERS)
def test_byte_order_marks(reader: Reader, tmp_path: Path) -> None:
    """One at the start is how some programs begin a text; others come from files that were
    joined."""
    mark, head = b"\xef\xbb\xbf", reader.content.index(b"four")
    start = reader.content.rfind(b"\n", 0, head) + 1
    reader.mends(tmp_path, mark + reader.content)
    joined = reader.content[:start] + mark + reader.content[start:]
    reader.mends(tmp_path, joined, "byte-order", 1)


@every(SCORED)
def test_texts_longer_than_the_maximum(
    reader: Reader, tmp_path: Path, tiny_tokenizer: Path
) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer)
    whole, usual, task = reader.read(tmp_path, reader.content)
    wanted = task.encode(whole, tokenizer, LENGTH)
    assert list(task.notes) == usual
    assert {item.example for item in wanted} == {0, 1, 2}
    examples, _, task = reader.read(
        tmp_path, reader.content.replace(b"four five", b"four five" + reader.longer)
    )
    assert [examples[0], examples[2]] == [whole[0], whole[2]]
    items = task.encode(examples, tokenizer, LENGTH)
    notes = list(task.notes)
    assert notes[: len(usual)] == usual
    assert len(notes) == len(usual) + bool(reader.long)  # SQuAD reads all of it in windows
    for note in notes[len(usual) :]:
        names(note, *places_in(reader.long))
    assert max(len(row.ids) for item in items for row in item.rows) == LENGTH
    for before, after in zip(
        [item for item in wanted if item.example != 1],
        [item for item in items if item.example != 1],
        strict=True,
    ):
        assert [row.ids.tolist() for row in before.rows] == [row.ids.tolist() for row in after.rows]
        assert np.array_equal(before.target, after.target)


# ------------------------------------------------------------- Parquet: no lines, so rows are named


def parquet(texts: Any) -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.table({"text": texts, "label": ["no", "yes", "no"][: len(texts)]}), held)
    return held.getvalue()


@pytest.mark.parametrize(
    "task", [READERS["table.csv"].task, READERS["predict.csv"].task], ids=["table", "predict"]
)
def test_parquet(task: Callable[[Path], Any], tmp_path: Path) -> None:
    reader = Reader("a.parquet", b"", task)
    wanted = [example.text for example in reader.read(tmp_path, parquet(TEXTS))[0]]
    assert wanted == list(TEXTS)
    examples, notes, _ = reader.read(tmp_path, parquet([TEXTS[0], "four\0five", TEXTS[2]]))
    assert [example.text for example in examples] == wanted
    (note,) = notes
    names(note, "NUL", 1)
    names(reader.fails(tmp_path, parquet(pa.array([], pa.string()))), *places_in(reader.empty))
    for content in (b"", parquet(TEXTS)[:-9], parquet(TEXTS)[:9]):
        names(reader.fails(tmp_path, content), "FILE", "Parquet")
    raw = [text.encode() for text in TEXTS[:2]] + [TEXTS[2].encode("latin-1")]
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int32)
    mixed = pa.StringArray.from_buffers(
        3, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(raw))
    )
    names(reader.fails(tmp_path, parquet(mixed)), "FILE:3", "UTF-8", "0xe9")


# -------------------------------------------------------------------------------------- first lines


@pytest.mark.parametrize(
    ("content", "places"),
    [
        (
            '"a text of\ntwo lines, and long",b\nx,no\n',
            ["'text'", "a text of two lines, and long", "b"],
        ),
        ("text,text,label\n", ["'text'"]),
    ],
)
def test_headers(content: str, places: list[str], tmp_path: Path) -> None:
    reader = READERS["table.csv"]
    names(reader.fails(tmp_path, content.encode()), "FILE", *places)
    reader.mends(tmp_path, b"\n\n" + reader.content, 2)


# --------------------------------------------------------------------------------- the command line

KINDS = {
    "table": "table.csv",
    "sst2": "sst2",
    "stsb": "stsb",
    "squad": "squad1",
    "race": "race",
    "choices": "choices",
    "tagging": "tagging",
}


@pytest.mark.parametrize("part", ["train", "dev"])
@pytest.mark.parametrize("kind", KINDS)
def test_finetune_says_one_line_and_leaves_no_folder(
    kind: str, part: str, tmp_path: Path, tiny_tokenizer: Path, run: Run
) -> None:
    reader, data, paths = READERS[KINDS[kind]], tmp_path / "data", {}
    for name in ("train", "dev"):
        paths[name] = data / reader.file.replace("dev", name)
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        paths[name].write_bytes(reader.content)
    paths[part].write_bytes(reader.content[: reader.content.index(b"shut") + 2])
    files = (
        ("--data", data)
        if kind in (*GLUE, "race")
        else ("--data", paths["train"], "--dev", paths["dev"])
    )
    status, out, err = run(
        "finetune",
        recipe_file(tmp_path),
        "--task",
        kind,
        *files,
        "--tokenizer",
        tiny_tokenizer,
        "--out",
        tmp_path / "out",
        "--length",
        48,
    )
    assert (status, out) == (2, "")
    *remarks, last = err.splitlines()
    names(one_line(last, paths[part]), "litebert finetune", *places_in(reader.cut))
    usual = {
        "table": ("train (train.csv)", "target=class", 2),
        "race": ("train (train)", "middle", 1),
    }
    assert len(remarks) == (part == "dev" and kind in usual)  # about the training file
    for remark in remarks:
        names(remark, *usual[kind])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "small.toml"]


@pytest.fixture(scope="module")
def models(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model folders with random weights, by what they answer."""
    folder = tmp_path_factory.mktemp("models")
    words = Tokenizer.load(tiny_tokenizer)
    wanted = {
        "sequence": (2, ("no", "yes")),
        "tokens": (5, TAGS),
        "span": (2, ()),
        "choice": (1, ()),
    }
    for kind, (classes, labels) in wanted.items():
        shape = EncoderConfig(
            vocab_size=words.vocab_size,
            embedding_size=8,
            hidden_size=16,
            layers=1,
            heads=2,
            intermediate_size=16,
            max_positions=LENGTH,
            pooler=kind in ("sequence", "choice"),
        )
        about = {"kind": kind, "length": LENGTH}
        save_litebert(
            TaskModel(shape, shape.pooler, classes), words, folder / kind, labels=labels, task=about
        )
    return {kind: folder / kind for kind in wanted}


PREDICTED = {
    "csv": "sequence",
    "tsv": "sequence",
    "jsonl": "tokens",
    "choices": "choice",
    "questions": "span",
}


@pytest.mark.parametrize("name", PREDICTED)
def test_predict_names_the_line_and_keeps_the_answers_before_it(
    name: str, tmp_path: Path, models: dict[str, Path], run: Run
) -> None:
    reader = READERS[f"predict.{name}"]
    path = tmp_path / reader.file
    path.write_bytes(reader.content[: reader.content.index(b"shut") + 2])
    status, out, err = run(
        "predict", models[PREDICTED[name]], "--input", path, "--out", tmp_path / "answers.csv"
    )
    assert (status, out) == (2, "")
    *remarks, last = lines_without_coverage(err)
    names(one_line(last, path).removesuffix("\n"), "litebert predict", *places_in(reader.cut))
    files = {file.name for file in tmp_path.iterdir()} - {path.name}
    assert files == ({"answers.csv"} if remarks else set())
    for line in remarks:
        names(line, tmp_path / "answers.csv")


@pytest.mark.parametrize(
    ("kind", "row", "places"),
    [
        ("span", {"question": 7, "context": "a"}, ["question", 7]),
        ("span", {"question": "a", "context": None}, ["context", None]),
        ("choice", {"context": "a", "choices": "ab"}, ["choices", "'ab'"]),
        ("choice", {"context": "a", "choices": ["a"]}, ["choices", "['a']"]),
        ("choice", {"context": "a", "choices": ["a", 1]}, ["choices[1]", 1]),
    ],
)
def test_predict_names_the_line_of_what_it_cannot_ask(
    kind: str, row: Any, places: list[Any], models: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "new.jsonl"
    path.write_bytes(lines({"question": "a", "context": "b", "choices": ["c", "d"]}, row))
    status, out, err = run("predict", models[kind], "--input", path)
    assert (status, len(out.splitlines())) == (2, 2), "what stands before it is answered"
    (line,) = lines_without_coverage(err)
    names(one_line(line, path).removesuffix("\n"), "litebert predict", "FILE:2", *places)
    inputs = tuple(row.values()) if kind == "span" else (row["context"], "", row["choices"])
    with refused(DataError, "input 1", repr(inputs)):
        load(models[kind]).predict([inputs])


def lines_without_coverage(err: str) -> list[str]:
    """The lines but the warning that the toy tokenizer does not cover the text."""
    return [line for line in err.splitlines(keepends=True) if "tokens are unknown" not in line]


LONG = " ".join(["bado"] * 300)


@pytest.mark.parametrize(
    ("kind", "row", "length", "count"),
    [
        ("sequence", {"text": LONG}, LENGTH, 1),
        ("tokens", {"text": LONG}, LENGTH, 1),
        ("span", {"question": LONG, "context": "a"}, 14, 1),
        ("choice", {"context": LONG, "choices": ["a", "b"]}, LENGTH, 2),
    ],
)
def test_predict_says_what_is_too_long(
    kind: str, row: Any, length: int, count: int, models: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "new.jsonl"
    path.write_bytes(lines(row))
    status, _, err = run(
        "predict", models[kind], "--input", path, "--out", tmp_path / "answers.jsonl"
    )
    assert status == 0
    note, answers = err.splitlines()
    names(note, length, count)
    names(answers, 1)


@pytest.mark.parametrize("kind", ["sequence", "tokens"])
def test_predict_says_what_it_mends(
    kind: str, models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of nothing has an answer too, so that answers stand beside the lines."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\0two\n\nfour\n")))
    status, out, err = run("predict", models[kind])
    assert (status, len(out.splitlines())) == (0, 4)
    taken, nul, empty = lines_without_coverage(err)
    names(taken, "standard input")
    names(nul, "NUL", 1)
    names(empty, 1)
