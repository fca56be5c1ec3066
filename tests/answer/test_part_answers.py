"""Answers and vectors in parts: merged, the file that one run writes, bit for bit."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

import litebert
from litebert.answer import predicting, vectors
from litebert.answer.files import predict_file
from litebert.answer.inputs import Columns
from litebert.answer.model import load
from litebert.answer.vector_files import embed_file
from litebert.base.errors import ConfigError, DataError, LitebertError
from litebert.kernels.network import list_dtypes
from litebert.parts import MARKER, Part, find_parts
from litebert.parts.windows import FILE
from toys.answers import made
from toys.refusals import refused

Run = Callable[..., tuple[int, str, str]]
WORDS = ["bado", "toto", "kumi", "mimi", "lala", "so", "ti", "fa", "la"]


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts") / "classifier"
    task = {"task": "table", "problem": "classes", "pair": False}
    return made(folder, tiny_tokenizer, "sequence", 3, ("ja", "nein", "so"), **task)


@pytest.fixture(scope="module")
def tagger(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts") / "tagger"
    return made(folder, tiny_tokenizer, "tokens", 3, ("O", "B-X", "I-X"))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A hundred rows of texts of many lengths."""
    path, draw = tmp_path / "rows.csv", random.Random(5)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        for number in range(100):
            text = " ".join(draw.choices(WORDS, k=draw.randint(1, 40)))
            writer.writerow([number, text + (', "quoted"\nline' if number % 7 == 0 else "")])
    return path


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "FIRST", 3)
    monkeypatch.setattr(predicting, "WINDOW", 12)
    monkeypatch.setattr(vectors, "CHUNK", 8)


def shuffle_parts(count: int) -> list[Part]:
    numbers = random.Random(count).sample(range(1, count + 1), count)
    return [Part(number, count) for number in numbers]


PLAIN = {"columns": Columns(keep=("all",))}
EXPLAINED = {"columns": Columns(keep=("id",)), "explain": "occlusion"}


@pytest.mark.parametrize(
    ("count", "form", "options"),
    [(count, "csv", PLAIN) for count in (1, 2, 3, 5, 20)] + [(2, "jsonl", EXPLAINED)],
)
def test_merged_answers_are_those_of_one_run(
    classifier: Path, rows: Path, tmp_path: Path, count: int, form: Any, options: Any
) -> None:
    model = load(classifier)
    single, out = tmp_path / f"single.{form}", tmp_path / f"out.{form}"
    predict_file(model, rows, single, form=form, **options)
    counts = [
        predict_file(model, rows, out, form=form, part=part, **options)
        for part in shuffle_parts(count)
    ]
    assert sum(counts) == 100
    assert not out.exists()
    litebert.merge(out)
    assert out.read_bytes() == single.read_bytes()


def test_merged_tags_of_several_files(tagger: Path, tmp_path: Path) -> None:
    draw = random.Random(2)
    for name, count in (("a.txt", 10), ("b.txt", 1), ("c.txt", 30)):
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]
        (tmp_path / name).write_text("\n".join(lines))
    model, files = load(tagger), [tmp_path / f"{name}.txt" for name in "abc"]
    for form in ("csv", "jsonl"):
        single, out = tmp_path / f"single.{form}", tmp_path / f"out.{form}"
        predict_file(model, files, single, form=form)
        for part in shuffle_parts(3):
            predict_file(model, files, out, form=form, part=part)
        litebert.merge(out)
        assert out.read_bytes() == single.read_bytes()


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        (".npy", {}),
        (".npy", {"dtype": "int8"}),
        (".parquet", {"columns": Columns(keep=("id",)), "dtype": "int8"}),
        (".jsonl", {"columns": Columns(keep=("all",))}),
    ],
)
def test_merged_vectors_are_those_of_one_run(
    classifier: Path, rows: Path, tmp_path: Path, count: int, suffix: str, options: Any
) -> None:
    model = load(classifier)
    if suffix == ".jsonl":
        options = {**options, "encoder": model.vectors_by(normalized=True, size=5)}
    single, out = tmp_path / f"single{suffix}", tmp_path / f"out{suffix}"
    embed_file(model, rows, single, **options)
    for part in shuffle_parts(count):
        embed_file(model, rows, out, part=part, **options)
    litebert.merge(out)
    assert out.read_bytes() == single.read_bytes()
    if options.get("dtype") == "int8":
        scales = [path.with_suffix(".scale.npy").read_bytes() for path in (single, out)]
        assert scales[0] == scales[1]


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """Four Parquet files of 1 to 70 rows in groups of 9, of which the second has one column
    more."""
    draw, paths = random.Random(6), []
    for name, count in (("a", 40), ("b", 1), ("c", 70), ("d", 13)):
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 40))) for _ in range(count)]
        columns = {"id": [f"{name}{number}" for number in range(count)], "text": texts}
        paths.append(tmp_path / f"{name}.parquet")
        columns |= {"other": texts} if name == "b" else {}
        pq.write_table(pa.table(columns), paths[-1], row_group_size=9)
    return paths


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_merged_answers_to_parquet_are_those_of_one_run(
    classifier: Path, tables: list[Path], tmp_path: Path, count: int
) -> None:
    model = load(classifier)
    for suffix in ("csv", "npy", "parquet"):
        write: Any = predict_file if suffix == "csv" else embed_file
        options: Any = {} if suffix == "npy" else {"columns": Columns(keep=("all",))}
        single, out = tmp_path / f"single.{suffix}", tmp_path / f"parts.{suffix}"
        write(model, tables, single, **options)
        counts = [write(model, tables, out, part=part, **options) for part in shuffle_parts(count)]
        assert sum(counts) == 124
        litebert.merge(out)
        assert out.read_bytes() == single.read_bytes()


def test_a_part_reads_only_its_rows_of_parquet(
    classifier: Path, tables: list[Path], tmp_path: Path
) -> None:
    """The beginning of the first file, and the last file, are damaged but for the metadata."""
    model, out = load(classifier), tmp_path / "out.csv"
    predict_file(model, tables, tmp_path / "single.csv")
    whole = {path: path.read_bytes() for path in (tables[0], tables[-1])}
    for path in whole:
        first = pq.read_metadata(path).row_group(0)
        size = sum(first.column(number).total_compressed_size for number in range(2))
        path.write_bytes(b"PAR1" + bytes(size) + whole[path][4 + size :])
    predict_file(model, tables, out, part=Part(2, 3))
    for number, path in ((1, tables[0]), (3, tables[-1])):
        with refused(DataError, path):
            predict_file(model, tables, out, part=Part(number, 3))
        path.write_bytes(whole[path])
    shutil.rmtree(find_parts(out))  # they began with other files
    for part in shuffle_parts(3):
        predict_file(model, tables, out, part=part)
    litebert.merge(out)
    assert out.read_bytes() == (tmp_path / "single.csv").read_bytes()


def test_files_that_tell_other_rows_than_before_are_refused(
    classifier: Path, tables: list[Path], tmp_path: Path
) -> None:
    """An empty file is refused as by one run, and a part of other rows by `merge`."""
    model, out = load(classifier), tmp_path / "out.csv"
    predict_file(model, tables, out, part=Part(1, 2))
    size, table = tables[1].stat().st_size, pq.read_table(tables[1])
    pq.write_table(pa.table({"id": ["b0", "b1"], "text": ["la", "fa"]}), tables[1])
    shorter = tables[1].read_bytes()
    assert len(shorter) < size
    padded = shorter[:4] + bytes(size - len(shorter)) + shorter[4:]
    tables[1].write_bytes(padded)
    predict_file(model, tables, out, part=Part(2, 2))
    with refused(DataError, "part 2/2", "another input (125 rows, not 124)"):
        litebert.merge(out)
    pq.write_table(table.slice(0, 0), tables[1])
    empty = tmp_path / "empty.csv"
    with refused(DataError, tables[1], "holds no rows"):
        predict_file(model, tables, empty, part=Part(1, 2))


def test_a_finished_part_computes_nothing_again(
    classifier: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out, part = load(classifier), tmp_path / "out.csv", Part(2, 3)
    count = predict_file(model, rows, out, part=part)
    monkeypatch.setattr(predicting.Predictor, "answer_windows", None)
    assert predict_file(model, rows, out, part=part) == count


def stop_after(windows: int) -> Any:
    """A machine that stops after some windows."""
    computed: list[int] = []
    answer = predicting.Predictor.answer_items

    def stop(self: Any, examples: Any, items: Any) -> Any:
        if len(computed) == windows:
            raise DataError("the machine stops")
        computed.append(len(examples))
        return answer(self, examples, items)

    return stop


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_part_continues_after_its_last_whole_window(
    classifier: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    model, out = load(classifier), tmp_path / "out.csv"
    if form == "parquet":
        with open(rows, newline="") as file:
            table = pa.Table.from_pylist(list(csv.DictReader(file)))
        rows = tmp_path / "rows.parquet"
        pq.write_table(table, rows, row_group_size=20)
    predict_file(model, rows, tmp_path / "single.csv")
    for number in (1, 2):
        path = tmp_path / "out.csv.parts" / f"{number}-of-2" / FILE
        with monkeypatch.context() as patch:
            patch.setattr(predicting.Predictor, "answer_items", stop_after(2))
            with pytest.raises(LitebertError, match="stops"):
                predict_file(model, rows, out, part=Part(number, 2))
        whole = path.read_bytes()
        path.write_bytes(whole + b'{"window": 8, "rec')
        predict_file(model, rows, out, part=Part(number, 2))
        assert path.read_bytes().startswith(whole)
    litebert.merge(out)
    assert out.read_bytes() == (tmp_path / "single.csv").read_bytes()


@pytest.mark.parametrize("damage", ["flip", "lost", "missing"])
def test_damaged_parts_are_refused_and_the_output_stays(
    classifier: Path, rows: Path, tmp_path: Path, damage: str
) -> None:
    model, out = load(classifier), tmp_path / "out.csv"
    for part in shuffle_parts(2):
        predict_file(model, rows, out, part=part)
    out.write_text("before")
    folder = tmp_path / "out.csv.parts" / "2-of-2"
    path = folder / FILE
    if damage == "missing":
        path.unlink()
    elif damage == "flip":
        path.write_bytes(path.read_bytes().replace(b"ja", b"je", 1))
    else:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with refused(DataError, "part 2/2", path, folder):
        litebert.merge(out)
    assert out.read_text() == "before"


def test_parts_of_other_work_are_refused(
    classifier: Path, tagger: Path, tiny_tokenizer: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    predict_file(load(classifier), rows, out, part=Part(1, 2))
    folder = tmp_path / "out.csv.parts" / "1-of-2"
    with refused(ConfigError, folder, "another model"):
        predict_file(load(tagger), rows, out, part=Part(1, 2))
    with refused(ConfigError, folder, "form='csv'", "'jsonl'"):
        predict_file(load(classifier), rows, out, part=Part(1, 2), form="jsonl")
    if "int8" in list_dtypes():
        with refused(ConfigError, folder, "dtype='float32'", "'int8'"):
            predict_file(load(classifier, dtype="int8"), rows, out, part=Part(1, 2))
    with refused(ConfigError, folder, "predict", "embed"):
        embed_file(load(classifier), rows, out, part=Part(1, 2))
    with refused(DataError, "part 2/2", "missing", "--part 2/2"):
        litebert.merge(out)
    rows.write_text(rows.read_text() + "100,bado\n")
    predict_file(load(classifier), rows, out, part=Part(2, 2))
    with refused(DataError, "part 2/2", "another input", folder.with_name("2-of-2")):
        litebert.merge(out)


def test_parts_of_a_litebert_that_divided_otherwise_are_refused(
    classifier: Path, tables: list[Path], tmp_path: Path
) -> None:
    """An earlier version did not write the number of rows into a part."""
    model, out = load(classifier), tmp_path / "out.csv"
    for number in (1, 2):
        predict_file(model, tables, out, part=Part(number, 2))
    marker = Path(find_parts(out)) / Part(1, 2).name / MARKER
    record = json.loads(marker.read_text())
    del record["identity"]["input"]["rows"]
    marker.write_text(json.dumps(record))
    faults = ("by another litebert, which divides the rows otherwise",)
    with refused(DataError, "part 2/2", *faults):
        litebert.merge(out)
    with refused(ConfigError, marker.parent, *faults):
        predict_file(model, tables, out, part=Part(1, 2))


def test_the_commands(classifier: Path, rows: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("predict", classifier, "--input", rows)
    assert run(*arguments, "--out", tmp_path / "single.csv")[0] == 0
    out = tmp_path / "out.csv"
    for number in (2, 1):
        status, _, err = run(*arguments, "--out", out, "--part", f"{number}/2")
        assert status == 0, err
        assert f"merge {out}" in err
    assert run("merge", out)[0] == 0
    assert out.read_bytes() == (tmp_path / "single.csv").read_bytes()
    for wrong, place in (
        (("--out", out, "--part", "3/2"), "3/2"),
        (("--part", "1/2"), "--out"),
    ):
        status, _, err = run(*arguments, *wrong)
        assert status == 2
        assert place in err
    status, _, err = run("predict", classifier, "--out", tmp_path / "x.csv", "--part", "1/2")
    assert status == 2
    assert "standard input" in err


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_scores_of_merged_predictions_are_those_of_the_model(
    classifier: Path, rows: Path, tmp_path: Path, run: Run, form: str
) -> None:
    draw, labeled = random.Random(3), tmp_path / "labeled.csv"
    with open(rows, newline="") as source, open(labeled, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "text"])
        for row in list(csv.reader(source))[1:] * 2:
            writer.writerow([draw.choice(("ja", "nein", "so")), row[1]])
    command: tuple[object, ...] = (
        *("evaluate", classifier, "--data", labeled, "--label-column", "label", "--json"),
        *("--mistakes", "3", "--slice-columns", "label"),
    )
    out = tmp_path / f"out.{form}"
    for part in shuffle_parts(3):
        words = ("predict", classifier, "--input", labeled, "--out", out, "--part", part)
        assert run(*words)[0] == 0
    assert run("merge", out)[0] == 0
    status, printed, err = run(*command)
    assert status == 0, err
    status, again, err = run(*command, "--predictions", out)
    assert status == 0, err
    assert again == printed
    assert json.loads(again)["examples"] == 200
    lines = out.read_text().splitlines(keepends=True)
    damaged = lines[-1].replace("ja", "jo").replace("nein", "no").replace("so", "se")
    for content, place in (
        (lines[:-1], "199 answers"),
        ([*lines[:-1], damaged], f"{out}:{len(lines)}"),
        ([line.replace("prediction", "answer") for line in lines], "prediction"),
    ):
        out.write_text("".join(content))
        status, _, err = run(*command, "--predictions", out)
        assert status == 2
        assert place in err


TABLE = {"task": "table", "pair": False, "columns": {"text": "text", "label": "label"}}
ANSWERS = [{"text": "toto", "answer_start": 5}]
QUESTIONS = [{"id": name, "question": "bado toto", "answers": ANSWERS} for name in "ab"]
SQUAD = {"data": [{"paragraphs": [{"context": "bado toto kumi", "qas": QUESTIONS}]}]}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("kind", "labels", "task", "file"),
    [
        ("tokens", ("O", "B-X", "I-X"), {}, ("a.conll", "bado B-X\nsala O\n\nbado O\n\n")),
        (
            "sequence",
            (),
            {**TABLE, "problem": "number"},
            ("a.csv", "text,label\nbado,1\ntoto,2.5\n"),
        ),
        (
            "sequence",
            ("x", "y"),
            {**TABLE, "problem": "labels"},
            ("a.jsonl", '{"text": "bado", "label": ["x", "y"]}\n{"text": "toto", "label": []}\n'),
        ),
        (
            "choice",
            (),
            {"task": "choices"},
            (
                "a.jsonl",
                '{"context": "bado", "question": "toto", "choices": ["la", "fa so"], "label": 1}\n'
                * 3,
            ),
        ),
        (
            "span",
            (),
            {"task": "squad", "version": 1},
            ("a.json", json.dumps(SQUAD)),
        ),
    ],
)
def test_scores_of_predictions_of_every_task(
    tiny_tokenizer: Path,
    tmp_path: Path,
    run: Run,
    kind: str,
    labels: tuple[str, ...],
    task: dict[str, Any],
    file: tuple[str, str],
    form: str,
) -> None:
    classes = {"span": 2, "choice": 1}.get(kind, max(1, len(labels)))
    model = made(tmp_path / "model", tiny_tokenizer, kind, classes, labels, **task)
    labeled, out = tmp_path / file[0], tmp_path / f"out.{form}"
    labeled.write_text(file[1])
    status, _, err = run("predict", model, "--input", labeled, "--out", out)
    assert status == 0, err
    command = ("evaluate", model, "--data", labeled, "--json")
    status, printed, err = run(*command)
    assert status == 0, err
    status, again, err = run(*command, "--predictions", out)
    assert status == 0, err
    assert again == printed


def test_parts_of_other_weights_are_another_model(
    classifier: Path, rows: Path, tmp_path: Path
) -> None:
    """An engine with a graph opens a folder without reading its weights."""
    pytest.importorskip("onnxruntime")
    out, other = tmp_path / "out.csv", tmp_path / "other"
    shutil.copytree(classifier, other)
    file = next(other.rglob("model.safetensors"))
    tensors = load_file(file)
    save_file({name: tensor + 1e-3 for name, tensor in tensors.items()}, file)
    predict_file(load(classifier, engine="onnx"), rows, out, part=Part(1, 2))
    predict_file(load(other, engine="onnx"), rows, out, part=Part(2, 2))
    with refused(DataError, "another model"):
        litebert.merge(out)


ROWS = int(os.environ.get("LITEBERT_ROWS", "20000"))
"""Rows of the slow test; a million stands in the issue."""


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_part_does_not_continue_with_other_rows_of_the_same_size(
    classifier: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    model, out = load(classifier), tmp_path / "out.csv"
    source = rows.with_suffix(f".{form}")
    texts = [{"text": f"bado {number:03}"} for number in range(100)]

    def save(texts: list[dict[str, str]]) -> None:
        if form == "csv":
            source.write_text("text\n" + "".join(f"{row['text']}\n" for row in texts))
        else:
            pq.write_table(pa.Table.from_pylist(texts), source)

    save(texts)
    with monkeypatch.context() as patch:
        patch.setattr(predicting.Predictor, "answer_items", stop_after(2))
        with pytest.raises(LitebertError, match="stops"):
            predict_file(model, source, out, part=Part(1, 2))
    size = source.stat().st_size
    save(texts[:98] + texts[:97:-1])
    assert source.stat().st_size == size
    with refused(ConfigError, "another input", "contents"):
        predict_file(model, source, out, part=Part(1, 2))
    save(texts)
    predict_file(model, source, out, part=Part(1, 2))


def test_an_output_in_the_folder_of_its_input(
    classifier: Path, rows: Path, tmp_path: Path, run: Run
) -> None:
    folder = tmp_path / "inputs"
    folder.mkdir()
    shutil.copy(rows, folder)
    for verb, name in (("predict", "a.csv"), ("embed", "v.jsonl"), ("embed", "v.npy")):
        words = (verb, classifier, "--input")
        assert run(*words, rows, "--out", tmp_path / name)[0] == 0
        for part in ("1/2", "2/2"):
            status, _, err = run(*words, folder, "--out", folder / name, "--part", part)
            assert status == 0, err
        assert run("merge", folder / name)[0] == 0
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()
        status, _, err = run(*words, folder, "--out", folder / name)  # and over itself
        assert status == 0, err
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()
        (folder / name).unlink()
        shutil.rmtree(folder / f"{name}.parts")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_parts_that_are_killed_give_the_file_of_one_run(
    classifier: Path, tmp_path: Path, verb: str
) -> None:
    rows, draw = tmp_path / "rows.jsonl", random.Random(1)
    with open(rows, "w") as file:
        for _ in range(ROWS):
            text = " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))
            file.write(json.dumps({"text": text}) + "\n")
    suffix = "csv" if verb == "predict" else "npy"
    single, out = tmp_path / f"single.{suffix}", tmp_path / f"out.{suffix}"

    def start(*options: object) -> subprocess.Popen[bytes]:
        words = ("-m", "litebert", verb, classifier, "--input", rows, *options, "--quiet")
        return subprocess.Popen([sys.executable, *map(str, words)])

    assert start("--out", single).wait() == 0
    killed = 0
    for number in (3, 1, 4, 2):
        options = ("--out", out, "--part", f"{number}/4")
        path = tmp_path / f"{out.name}.parts" / f"{number}-of-4" / FILE
        if number in (1, 2):
            process = start(*options)
            while process.poll() is None and not (path.exists() and path.stat().st_size):
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
            assert not path.with_name("part.json").exists()
        assert start(*options).wait() == 0
    assert killed == 2
    litebert.merge(out)
    assert out.read_bytes() == single.read_bytes()
