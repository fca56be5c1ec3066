"""`litebert predict`, `fill` and `embed` as a person types them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.answer.files import predict_file
from litebert.answer.model import Model, load
from litebert.base.errors import DataError
from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from toys.answers import SHAPE, grow, made
from toys.folders import save_litebert
from toys.refusals import names

Run = Callable[..., tuple[int, str, str]]
TEXTS = ["bado toto", "kumi, mimi lala", 'so "la" ti', "fa"]


def table_model(folder: Path, tokenizer: Path, columns: dict[str, str | None]) -> Path:
    """A model of two classes, trained on columns of a table."""
    task = {"task": "table", "problem": "classes", "pair": columns["pair"] is not None}
    return made(folder, tokenizer, "sequence", 2, ("no", "yes"), **task, columns=columns)


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It was trained on the column `said` of a table."""
    folder = tmp_path_factory.mktemp("made") / "classifier"
    return table_model(folder, tiny_tokenizer, {"text": "said", "pair": None, "label": "kind"})


@pytest.fixture(scope="module")
def pretrained_folder(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = Tokenizer.load(tiny_tokenizer)
    encoder = EncoderConfig(vocab_size=words.vocab_size, **SHAPE)
    config = Config(
        name="tiny", encoder=encoder, sequences=SequenceConfig(length=64), objectives=("mlm",)
    )
    model = Pretrainer(config)
    grow(model)
    folder = tmp_path_factory.mktemp("made") / "pretrained"
    save_litebert(model, words, folder)
    return folder


@pytest.fixture(scope="module")
def expected_predictions(classifier: Path) -> list[str]:
    return [answer["prediction"] for answer in load(classifier).predict(TEXTS)]


def as_csv(rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue()


def give_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# -------------------------------------------------------------------------------- what the input is


TABLE = as_csv([["id", "said", "kind"], *([7 + i, text, "no"] for i, text in enumerate(TEXTS))])
LINES = "".join(
    json.dumps({"id": 7 + i, "said": text, "kind": "no"}) + "\n" for i, text in enumerate(TEXTS)
)


@pytest.mark.parametrize(
    ("content", "taken"),
    [
        (TABLE, "CSV"),
        ("\ufeff" + TABLE.replace("\r\n", "\n"), "CSV"),
        (LINES, "JSONL"),
        ("said\tkind\n" + "".join(f"{text}\tno\n" for text in TEXTS), "TSV"),
        ("\n".join(TEXTS) + "\n", "plain text"),
    ],
)
def test_standard_input_is_what_it_holds(
    content: str,
    taken: str,
    classifier: Path,
    expected_predictions: list[str],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_standard_input(monkeypatch, content.encode())
    status, out, err = run("predict", classifier)
    assert status == 0, err
    assert [row["prediction"] for row in read(out)] == expected_predictions
    assert taken in err


def test_a_table_without_the_column_is_never_plain_text(
    classifier: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = as_csv([["review", "stars"], ["bado toto", 1], ["kumi", 2]]).encode()
    give_standard_input(monkeypatch, table)
    status, out, err = run("predict", classifier)
    assert (status, out) == (2, "")
    names(err.splitlines()[-1], "'said'", "review")
    give_standard_input(monkeypatch, table)
    assert len(read(run("predict", classifier, "--text-column", "review")[1])) == 2
    give_standard_input(monkeypatch, b'[{"said": "ba"}]')
    assert len(read(run("predict", classifier)[1])) == 1


def test_files_folders_and_patterns(
    classifier: Path, expected_predictions: list[str], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(TABLE)
    (tmp_path / "in" / "b.jsonl").write_text(LINES)
    (tmp_path / "in" / "notes.doc").write_text("no rows")
    first, second = tmp_path / "in" / "a.csv", tmp_path / "in" / "b.jsonl"
    for given_input in ((tmp_path / "in",), (first, second), (f"{tmp_path}/in/*.[cj]s*",)):
        status, out, err = run("predict", classifier, "--input", *given_input, "--keep", "id")
        assert status == 0, err
        rows = read(out)
        assert [row["prediction"] for row in rows] == expected_predictions * 2
        assert [row["file"] for row in rows] == [str(first)] * 4 + [str(second)] * 4
        assert [row["id"] for row in rows] == ["7", "8", "9", "10"] * 2
        assert (".doc" in err) == (len(given_input) == 1 and given_input[0] == tmp_path / "in")
    for wrong in (tmp_path / "gone.csv", f"{tmp_path}/*.tsv"):
        status, _, err = run("predict", classifier, "--input", wrong)
        assert status == 2
        names(err, wrong)
    (tmp_path / "bare").mkdir()
    status, _, err = run("predict", classifier, "--input", tmp_path / "bare")
    assert status == 2
    names(err, tmp_path / "bare", "folder", ".csv")


def test_a_table_without_a_header(
    classifier: Path, expected_predictions: list[str], run: Run, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.csv"
    bare.write_text(as_csv([i, text] for i, text in enumerate(TEXTS)))
    words = ("predict", classifier, "--input", bare, "--no-header", "--text-column", 1)
    rows = read(run(*words, "--keep", 0)[1])
    assert [(row["0"], row["prediction"]) for row in rows] == [
        (str(i), prediction) for i, prediction in enumerate(expected_predictions)
    ]
    assert list(read(run(*words, "--keep", "all")[1])[0])[:2] == ["0", "1"]


def test_a_kept_column_with_the_name_of_an_answer_is_told_apart(
    classifier: Path, expected_predictions: list[str], run: Run, tmp_path: Path
) -> None:
    table = tmp_path / "answered.csv"
    header = ["said", "prediction", "input_prediction"]
    table.write_text(as_csv([header, *([text, "old", "older"] for text in TEXTS)]))
    rows = read(run("predict", classifier, "--input", table, "--keep", "all")[1])
    assert [row["input_input_prediction"] for row in rows] == ["old"] * len(TEXTS)
    assert [row["input_prediction"] for row in rows] == ["older"] * len(TEXTS)
    assert [row["prediction"] for row in rows] == expected_predictions


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_the_format_may_be_parquet(
    verb: str, classifier: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"said": TEXTS}), table)
    expected = run(verb, classifier, "--input", table)[1]
    plain = table.rename(tmp_path / "rows")
    assert run(verb, classifier, "--input", plain, "--input-format", "parquet")[:2] == (0, expected)
    for options in ((), ("--input-format", "parquet")):
        give_standard_input(monkeypatch, plain.read_bytes())
        status, _, err = run(verb, classifier, *options)
        assert status == 2
        names(err.splitlines()[-1], "Parquet", "--input")


def test_pairs_come_from_the_columns_of_training(
    tiny_tokenizer: Path, run: Run, tmp_path: Path
) -> None:
    columns: dict[str, str | None] = {"text": "one", "pair": "two", "label": "kind"}
    model = table_model(tmp_path / "m", tiny_tokenizer, columns)
    source = tmp_path / "in.csv"
    source.write_text(as_csv([["two", "one"], *([f"{text} la", text] for text in TEXTS)]))
    status, out, err = run("predict", model, "--input", source)
    assert status == 0, err
    answers = load(model).predict([(text, f"{text} la") for text in TEXTS])
    assert [row["prediction"] for row in read(out)] == [answer["prediction"] for answer in answers]


# ---------------------------------------------------------------------------- what is carried along


def test_columns_are_carried(
    classifier: Path, expected_predictions: list[str], run: Run, tmp_path: Path
) -> None:
    source = tmp_path / "in.csv"
    source.write_text(TABLE)
    words = ("predict", classifier, "--input", source, "--keep")
    out = run(*words, "kind,id")[1]
    assert list(read(out)[0]) == ["kind", "id", "prediction", "p_no", "p_yes"]
    out = run(*words, "all")[1]
    assert [(row["id"], row["said"], row["prediction"]) for row in read(out)] == [
        (str(7 + i), text, prediction)
        for i, (text, prediction) in enumerate(zip(TEXTS, expected_predictions, strict=True))
    ]
    status, _, err = run(*words, "ids")
    assert status == 2
    names(err.splitlines()[-1], source, "'ids'")


def test_what_json_holds_is_carried_whole(classifier: Path, run: Run, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    more = {"id": 1, "tags": ["a", {"b": None}], "half": {"x": "\ud800"}}
    lines = (json.dumps(row) + "\n" for row in ({"said": "ba", **more}, {"said": "de", "later": 1}))
    source.write_text("".join(lines))
    words = ("predict", classifier, "--input", source, "--keep")
    status, out, err = run(*words, "all", "--format", "jsonl")
    assert status == 0, err
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["id"], first["tags"], first["said"]) == (1, ["a", {"b": None}], "ba")
    assert (second["id"], second["said"]) == (None, "de")
    status, out, _ = run(*words, "all")
    assert status == 0
    assert json.loads(read(out)[0]["tags"]) == ["a", {"b": None}]
    (tmp_path / "in.txt").write_text("ba\n")
    status, _, err = run("predict", classifier, "--input", tmp_path / "in.txt", "--keep", "all")
    assert status == 2
    names(err, tmp_path / "in.txt", "--keep")
    source.write_text('{"said": "ba", "p_no": 1}\n')
    (row,) = read(run(*words, "p_no")[1])
    assert row["input_p_no"] == "1"
    assert row["p_no"] != "1"


# --------------------------------------------------------------------------------------- benchmarks

QUESTIONS = [{"id": f"q{i}", "question": "kumi mimi", "answers": []} for i in range(3)]
PARAGRAPH = {"context": "bado toto kumi", "qas": QUESTIONS}
SQUAD = {"version": "1.1", "data": [{"title": "a", "paragraphs": [PARAGRAPH]}]}
PASSAGE = {
    "article": "bado toto",
    "questions": ["kumi _", "ti ?"],
    "options": [["a", "b"], ["la", "so"]],
    "answers": ["A", "B"],
    "id": "high1.txt",
}


@pytest.mark.parametrize("indent", [None, 1])
def test_official_squad_files(
    indent: int | None,
    tiny_tokenizer: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = made(tmp_path / "m", tiny_tokenizer, "span", 2, task="squad", version=1)
    source, out = tmp_path / "dev.json", tmp_path / "out.json"
    source.write_text(json.dumps(SQUAD, indent=indent))
    status, shown, err = run("predict", model, "--input", source, "--out", out)
    assert (status, shown) == (0, ""), err
    answers = json.loads(out.read_text())
    assert list(answers) == ["q0", "q1", "q2"]
    rows = read(run("predict", model, "--input", source)[1])
    assert {row["id"]: row["prediction"] for row in rows} == answers
    give_standard_input(monkeypatch, source.read_bytes())
    assert read(run("predict", model)[1]) == rows
    plain = tmp_path / "rows.jsonl"
    plain.write_text(
        json.dumps({"id": "q0", "question": "kumi mimi", "context": "bado toto kumi"}) + "\n"
    )
    assert run("predict", model, "--input", plain, "--keep", "id", "--out", out)[0] == 0
    assert json.loads(out.read_text()) == {"q0": answers["q0"]}


def test_official_race_files(tiny_tokenizer: Path, run: Run, tmp_path: Path) -> None:
    model = made(tmp_path / "m", tiny_tokenizer, "choice", 1, task="race")
    (tmp_path / "test" / "high").mkdir(parents=True)
    for number in (1, 2):
        passage = {**PASSAGE, "id": f"high{number}.txt"}
        (tmp_path / "test" / "high" / f"{number}.txt").write_text(json.dumps(passage))
    status, out, err = run("predict", model, "--input", tmp_path / "test")
    assert status == 0, err
    wanted = [f"high{passage}.txt-{question}" for passage in (1, 2) for question in (0, 1)]
    assert [row["id"] for row in read(out)] == wanted


# ----------------------------------------------------------------------------- what is done is kept


def test_a_malformed_row_keeps_the_answers_before_it(
    classifier: Path, expected_predictions: list[str], run: Run, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.csv"
    source.write_text(LINES + '{"said": "de')
    status, _, err = run("predict", classifier, "--input", source, "--out", out)
    assert status == 2
    names(err.splitlines()[-1], f"{source}:5")
    assert any("4" in line and str(out) in line for line in err.splitlines())
    assert [row["prediction"] for row in read(out.read_text())] == expected_predictions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.csv"]
    source.write_text('{"said": "de')
    out.write_text("precious")
    assert run("predict", classifier, "--input", source, "--out", out)[0] == 2
    assert out.read_text() == "precious", "nothing was answered"


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),  # which SIGTERM is turned into
    ],
)
def test_a_signal_keeps_the_answers_before_it(
    number: signal.Signals, status: int, classifier: Path, tmp_path: Path
) -> None:
    out, row = tmp_path / "out.csv", "ba" + " " * 600
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-m", "litebert", "predict", str(classifier), "--out", str(out)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(f"{row}\n".encode() * 4000)  # more than is read at a time
        process.stdin.flush()
        for _ in range(600):
            if any(aside.stat().st_size for aside in tmp_path.glob(".tmp-out.csv*")):
                break
            time.sleep(0.1)
        for _ in range(6):  # Python overlooks a signal that comes while a pipe is still giving data
            time.sleep(1)
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break
        assert process.wait(1) == status
        assert process.stderr is not None
        assert str(out) in process.stderr.read().decode()
    rows = out.read_text().splitlines()
    assert len(rows) > 100
    assert len({line.count(",") for line in rows}) == 1, "whole lines"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


# --------------------------------------------------------------------------------------------- fuzz

WORDS = b'said text , " { } {"said":"ba"} [ : O B-X 1 PAR1 "data" {"said":[[[['.split()
BYTES = (b"\t", b"\n", b"\r\n", b" ", b"\0", b"\xff", "\ufeff".encode(), "\u5b57".encode())
PIECES = st.sampled_from([*WORDS, *BYTES])


@pytest.fixture(scope="module")
def fuzz_model(classifier: Path) -> Model:
    return load(classifier)


@settings(max_examples=150)
@given(content=st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=25).map(b"".join)))
def test_any_bytes_give_answers_or_one_sentence(fuzz_model: Model, content: bytes) -> None:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")
    out = io.StringIO()
    try:
        count = predict_file(fuzz_model, "-", out, form="jsonl")
        assert len(out.getvalue().splitlines()) == count > 0
    except DataError as error:
        names(str(error))
    finally:
        sys.stdin = before


# ----------------------------------------------------------------------------------- fill and embed


def test_fill(pretrained_folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("fill-mask", pretrained_folder, "bado [MASK] kumi", "--json", "--targets", "ba", "de")
    (answer,) = json.loads(run(*words)[1])
    assert len(answer["masks"][0]) == 2
    status, out, err = run("fill-mask", pretrained_folder, "bado [MASK] kumi", "--top", 3)
    assert status == 0, err
    assert out.count("%") == 3
    plain = ("fill-mask", pretrained_folder, "--json")
    (answer,) = json.loads(run(*plain, "bado [MASK] kumi ___ .")[1])
    assert [len(mask) for mask in answer["masks"]] == [5, 5]
    give_standard_input(monkeypatch, b"bado <mask>\n\nkumi [MASK]\n")
    answers = json.loads(run(*plain)[1])
    assert [answer["text"] for answer in answers] == ["bado <mask>", "kumi [MASK]"]


def test_mistakes_of_fill(pretrained_folder: Path, classifier: Path, run: Run) -> None:
    for words, places in (
        ((pretrained_folder, "bado kumi"), ("'bado kumi'", "[MASK]")),
        ((pretrained_folder, "bado [MASK]", "--top", 0), ("top", 0)),
        ((pretrained_folder, "bado toto " * 60 + "[MASK]"), (64,)),
        ((classifier, "bado [MASK]"), (classifier,)),
    ):
        status, out, err = run("fill-mask", *words)
        assert (status, out) == (2, "")
        names(err, *places)


def test_embed(pretrained_folder: Path, classifier: Path, run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.npy"
    source.write_text(TABLE)
    for model in (pretrained_folder, classifier):
        words = ("embed", model, "--input", source, "--text-column", "said", "--out", out)
        status, _, err = run(*words)
        assert status == 0, err
        vectors = np.load(out)
        assert vectors.shape == (4, 16)
        np.testing.assert_array_equal(vectors, load(model).encode(TEXTS))
    status, shown, _ = run("embed", classifier, "--input", source, "--keep", "id")
    rows = [json.loads(line) for line in shown.splitlines()]
    assert [row["id"] for row in rows] == ["7", "8", "9", "10"]
    np.testing.assert_allclose([row["vector"] for row in rows], vectors, rtol=1e-6)
    status, _, err = run("embed", classifier, "--input", source, "--out", tmp_path / "out.csv")
    assert status == 2
    names(err, tmp_path / "out.npy")


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_a_folder_for_the_answers_is_one_sentence(verb: str, classifier: Path, run: Run) -> None:
    words = ("--format", "json") if verb == "predict" else ()
    status, _, err = run(
        verb, classifier, "--input", classifier / "task.json", "--out", ".", *words
    )
    assert status == 2
    names(err, "--out answers.")
