"""Answers: the four kinds of head, files in and out, order, and the same answers as
`transformers`."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch

from litebert import BatchFunction, open_task, prepare, train_tokenizer
from litebert.answer.files import predict_file
from litebert.answer.inputs import Columns
from litebert.answer.model import load
from litebert.answer.predicting import FIRST
from litebert.answer.static import export_static, load_static
from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.change.conversion import convert
from litebert.demo import unpack
from litebert.finetuning.run import finetune
from litebert.text.records import Layout
from litebert.tokenizer import Tokenizer
from toys.answers import made, texts
from toys.finetuning import config, recipe_file, write_table
from toys.refusals import names, refused
from toys.tasks import Table


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    table = Table(
        write_table(folder / "train.csv", 200), write_table(folder / "dev.csv", 60, seed=1)
    )
    finetune(recipe_file(folder), table, folder / "run", config(epochs=3), tokenizer=tiny_tokenizer)
    return folder / "run" / "model"


@pytest.mark.thorough
def test_answers_come_in_the_order_of_the_texts(classifier: Path) -> None:
    model = load(classifier)
    inputs = texts(40)
    together = model.predict(inputs)
    alone = [model.predict([text])[0] for text in inputs]
    assert [a["prediction"] for a in together] == [a["prediction"] for a in alone]
    for a, b in zip(together, alone, strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)
        assert sum(a["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert model.predict([]) == []
    assert model.predict([""])[0]["prediction"] in ("no", "yes")


def test_it_reads_no_further_than_it_answers(classifier: Path) -> None:
    model, read = load(classifier), 0

    def source() -> Any:
        nonlocal read
        while True:
            read += 1
            yield "ba de fi"

    answers = model.stream(source())
    next(answers)
    assert read == FIRST


def test_a_file_is_answered_row_by_row(classifier: Path, tmp_path: Path) -> None:
    inputs = texts(30)
    source = tmp_path / "in.csv"
    with open(source, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "text"], *enumerate(inputs)])
    model, out = load(classifier), io.StringIO()
    assert predict_file(model, source, out, form="csv") == 30
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [row["prediction"] for row in rows] == [
        answer["prediction"] for answer in model.predict(inputs)
    ]
    assert list(rows[0]) == ["prediction", "p_no", "p_yes"]
    out = io.StringIO()
    assert predict_file(model, source, out, form="jsonl") == 30
    assert [json.loads(line) for line in out.getvalue().splitlines()] == model.predict(inputs)


def test_texts_that_were_cut_are_counted_over_the_whole_file(
    classifier: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    source = tmp_path / "in.csv"
    lines = ["ba " * (200 if row % 3 == 0 else 2) for row in range(FIRST + 100)]
    source.write_text("\n".join(["text", *lines]) + "\n")
    predict_file(load(classifier), source, io.StringIO())
    (note,) = [line for line in log_messages if "were cut" in line]
    names(note, -(-len(lines) // 3), len(lines))


def test_an_empty_cell_in_quotes_has_an_answer_and_a_blank_line_none(
    classifier: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.csv"
    source.write_text('text\nba\n""\n\nde\n')
    out = io.StringIO()
    assert predict_file(load(classifier), source, out, form="jsonl") == 3
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    assert answers == load(classifier).predict(["ba", "", "de"])


def test_rows_before_a_bad_one_are_answered(classifier: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", io.StringIO()
    source.write_text('{"text": "ba"}\n' * 3 + '{"text": "de')
    with refused(DataError, f"{source}:4"):
        predict_file(load(classifier), source, out, form="jsonl")
    assert len(out.getvalue().splitlines()) == 3


def test_sentences_to_tag_come_as_columns_lists_or_texts(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    model = load(made(tmp_path / "m", tiny_tokenizer, "tokens", 3, ("O", "B-X", "I-X")))
    files = {
        "tagged.conll": "ba\tO\nde\tB-X\n\nfi\tO\n",
        "bare.conll": "ba\nde\n\nfi\n",
        "lists.jsonl": '{"text": ["ba", "de"]}\n{"text": ["fi"]}\n',
        "texts.csv": "text\nba de\nfi\n",
        "texts.txt": "ba de\nfi\n",
    }
    expected = model.predict([["ba", "de"], ["fi"]])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        out = io.StringIO()
        assert predict_file(model, tmp_path / name, out, form="jsonl") == 2, name
        assert [json.loads(line) for line in out.getvalue().splitlines()] == expected, name
    (tmp_path / "tagged.txt").write_text(files["tagged.conll"])
    with refused(DataError, f"{tmp_path}/tagged.txt:2", "--input-format conll"):
        predict_file(model, tmp_path / "tagged.txt", io.StringIO(), form="jsonl")
    assert (
        predict_file(
            model, tmp_path / "tagged.txt", io.StringIO(), form="jsonl", layout=Layout("conll")
        )
        == 2
    )
    (tmp_path / "bad.jsonl").write_text('{"text": ["ba", 5]}\n')
    with refused(DataError, f"{tmp_path}/bad.jsonl:1", "'text'", "['ba', 5]"):
        predict_file(model, tmp_path / "bad.jsonl", io.StringIO(), form="jsonl")


def test_columns_are_for_models_that_tag(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "in.conll").write_text("ba O\n")
    with refused(DataError, tmp_path / "in.conll"):
        predict_file(load(classifier), tmp_path / "in.conll", io.StringIO(), form="csv")


NO_FORM: list[tuple[str, Any]] = [
    ("sequence", 7),
    ("sequence", ["ba", "de", "fi"]),
    ("sequence", {"text": "ba", "label": "no"}),
    ("sequence", {"ba", "de"}),
    ("sequence", ["ba", 7]),
    ("sequence", b"ba"),
    ("tokens", ["ba", 5]),
    ("tokens", {"words": ["ba"]}),
    ("span", {"question": "ba", "context": "de"}),
    ("span", "ba"),
    ("choice", {"context": "ba", "question": "de", "choices": ["fi", "go"]}),
    ("choice", ("ba", "de", "fi")),
    ("choice", ("ba", "de", ["fi"])),
    ("choice", ("ba", "de", {"fi": 1, "go": 2})),
]
FORMS = {
    "sequence": "pair",
    "tokens": "list",
    "span": "(question, context)",
    "choice": "(context, question, choices)",
}
"""Words of a refusal that tell what to give instead."""
RIGHT: dict[str, Any] = {
    "sequence": "ba",
    "tokens": ["ba"],
    "span": ("ba", "de"),
    "choice": ("ba", "de", ["fi", "go"]),
}


@pytest.mark.parametrize(("kind", "value"), NO_FORM)
def test_inputs_of_another_form_are_named(
    kind: str, value: Any, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    classes = {"choice": 1, "tokens": 3}.get(kind, 2)
    labels = ("O", "B-X", "I-X") if kind == "tokens" else ()
    model = load(made(tmp_path / "m", tiny_tokenizer, kind, classes, labels))
    assert len(model.predict([RIGHT[kind]])) == 1
    with refused(DataError, "input 2", repr(value)[:30], FORMS[kind]):
        model.predict([RIGHT[kind], value])


@pytest.mark.parametrize("inputs", ["not bad", b"not bad", {"text": "not bad"}, 7, None])
def test_one_text_is_no_list_of_texts(inputs: Any, classifier: Path) -> None:
    with refused(DataError, "inputs", repr(inputs)):
        load(classifier).predict(inputs)


TEXTS = ["a fine film", "a dull film"]
TABLES = (
    pyarrow.table({"text": TEXTS, "by": ["a", "b"]}),
    pyarrow.record_batch({"text": TEXTS, "by": ["a", "b"]}),
    set(TEXTS),
    dict.fromkeys(TEXTS),
    np.array("a fine film"),
)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[Any], Any]]:
    """The functions that take a list of texts; each returns something for each text."""
    folder = tmp_path_factory.mktemp("models")
    models = unpack(folder)
    opened = {name: load(path) for name, path in models.items()}
    static = load_static(export_static(models["vectors"], folder / "static"))
    by_batch = BatchFunction(models["sentiment"])
    return {
        "predict": opened["sentiment"].predict,
        "stream": lambda texts: list(opened["sentiment"].stream(texts)),
        "explain": opened["sentiment"].explain,
        "encode": opened["vectors"].encode,
        "static": static.encode,
        "score": opened["words"].score,
        "logits": opened["words"].logits,
        "tokenizer": Tokenizer.load(models["words"]).encode,
        "batch": lambda texts: by_batch({"text": texts})["prediction"],
    }


def test_columns_are_read_and_tables_are_refused(doors: dict[str, Callable[[Any], Any]]) -> None:
    columns = [
        np.array(TEXTS),
        pyarrow.array(TEXTS),
        pyarrow.chunked_array([TEXTS[:1], TEXTS[1:]]),
        pyarrow.table({"text": TEXTS}),
    ]
    tables = [*TABLES]
    if find_spec("pandas"):
        frame = pyarrow.table({"text": TEXTS, "by": ["a", "b"]}).to_pandas()
        tables.append(frame)
        columns += [frame["text"], frame["text"].astype("category"), frame[["text"]]]
        columns.append(frame.set_index("text").index)
    for door in doors.values():
        expected = door(TEXTS)
        for column in columns:
            for one, other in zip(door(column), expected, strict=True):
                assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
        for table in tables:
            with refused(DataError, *(["table"] if hasattr(table, "columns") else ["give a list"])):
                door(table)


@pytest.mark.parametrize("table", TABLES[:-1])
def test_tables_are_no_files(table: Any, tiny_tokenizer: Path, tmp_path: Path) -> None:
    with refused(DataError):
        open_task("table", table)
    with refused(DataError):
        prepare(table, tmp_path / "d", tokenizer=tiny_tokenizer)
    with refused(DataError):
        train_tokenizer(table, kind="wordpiece", vocab_size=100)


def test_arguments_of_another_type_are_named(classifier: Path) -> None:
    for wrong in (5, None, b"x"):
        with refused(ConfigError, repr(wrong)):
            load(wrong)  # type: ignore[arg-type]
    options: dict[str, Any] = {"engine": 5, "device": None, "tokenizer": 5, "min_precision": "0.9"}
    for name, value in options.items():
        with refused(ConfigError, name, str(value)):
            load(classifier, **{name: value}).predict(["ba"])
    with refused(ConfigError, "5"):
        load(classifier).explain(["ba"], method=5)  # type: ignore[arg-type]


def test_a_model_answers_single_texts_or_pairs_as_it_was_trained(
    classifier: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    task = {"problem": "classes"}
    models = {
        pair: load(made(tmp_path / str(pair), tiny_tokenizer, "sequence", 2, **task, **extra))
        for pair, extra in ((True, {"pair": True}), (False, {"pair": False}), (None, {}))
    }
    source = tmp_path / "in.csv"
    source.write_text("text,second\nba,de\n")
    with refused(DataError, "input 1", "'ba'", "(first text, second text)"):
        models[True].predict(["ba"])
    with refused(ConfigError, tmp_path / "True", "--pair-column"):
        predict_file(models[True], source, io.StringIO(), form="csv")
    with refused(DataError, "input 1", "('ba', 'de')"):
        models[False].predict([("ba", "de")])
    with refused(ConfigError, tmp_path / "False", "--pair-column second"):
        predict_file(models[False], source, io.StringIO(), columns=Columns(pair="second"))
    assert len(models[True].predict([("ba", "de")])) == len(models[False].predict(["ba"])) == 1
    assert len(models[None].predict(["ba", ("ba", "de")])) == 2  # a folder that does not say
    for pair, column in ((True, "second"), (False, None), (None, "second"), (None, None)):
        assert predict_file(models[pair], source, io.StringIO(), columns=Columns(pair=column)) == 1
    tagger = load(made(tmp_path / "tagger", tiny_tokenizer, "tokens", 3, ("O", "B-X", "I-X")))
    with refused(ConfigError, tmp_path / "tagger", "--pair-column second"):
        predict_file(tagger, source, io.StringIO(), columns=Columns(pair="second"))


def test_a_pretrained_model_has_no_answers(tiny_data: Path, tmp_path: Path) -> None:
    from litebert.recipes.files import recipe
    from litebert.train.pretrain import pretrain

    path = recipe_file(tmp_path)
    path.write_text(path.read_text() + '[train]\nbudget = "1 steps"\nbatch = "4 sequences"\n')
    pretrain(recipe(str(path)), tiny_data, tmp_path / "run")
    with refused(ModelError, tmp_path / "run", "litebert finetune"):
        load(tmp_path / "run").predict(["ba"])


# ------------------------------------------------------------------------------------- transformers


def to_hf(source: Path, folder: Path) -> str:
    convert(source, folder, to="hf")
    return str(folder)


def test_text_classes_are_those_of_the_pipeline(tiny_tokenizer: Path, tmp_path: Path) -> None:
    from transformers import pipeline

    our_folder = made(
        tmp_path / "ours",
        tiny_tokenizer,
        "sequence",
        3,
        ("red", "green", "blue"),
        problem="classes",
    )
    peer: Any = pipeline(
        "text-classification", model=to_hf(our_folder, tmp_path / "hf"), top_k=None
    )
    inputs = texts(12)
    for answer, expected in zip(load(our_folder).predict(inputs), peer(inputs), strict=True):
        assert answer["prediction"] == expected[0]["label"]
        assert answer["probabilities"] == pytest.approx(
            {e["label"]: e["score"] for e in expected}, abs=2e-5
        )


def test_several_labels_are_those_of_the_pipeline(tiny_tokenizer: Path, tmp_path: Path) -> None:
    from transformers import pipeline

    labels = ("red", "green", "blue")
    our_folder = made(tmp_path / "ours", tiny_tokenizer, "sequence", 3, labels, problem="labels")
    peer: Any = pipeline(
        "text-classification", model=to_hf(our_folder, tmp_path / "hf"), top_k=None
    )
    inputs = texts(12)
    answers = load(our_folder).predict(inputs)
    assert max(len(answer["prediction"]) for answer in answers) > 1
    for answer, expected in zip(answers, peer(inputs), strict=True):
        assert set(answer["prediction"]) == {e["label"] for e in expected if e["score"] > 0.5}
        assert answer["probabilities"] == pytest.approx(
            {e["label"]: e["score"] for e in expected}, abs=2e-5
        )
    assert load(tmp_path / "hf").predict(inputs) == answers
    convert(tmp_path / "hf", tmp_path / "back", to="litebert")
    assert load(tmp_path / "back").predict(inputs) == answers


def test_a_number_is_that_of_the_pipeline(tiny_tokenizer: Path, tmp_path: Path) -> None:
    from transformers import pipeline

    our_folder = made(tmp_path / "ours", tiny_tokenizer, "sequence", 1, (), problem="number")
    peer: Any = pipeline("text-classification", model=to_hf(our_folder, tmp_path / "hf"))
    inputs = texts(12)
    answers = load(our_folder).predict(inputs)
    assert [a["prediction"] for a in answers] == pytest.approx(
        [e["score"] for e in peer(inputs)], abs=2e-5
    )
    assert load(tmp_path / "hf").predict(inputs) == answers


def test_several_numbers_are_refused(tiny_tokenizer: Path, tmp_path: Path) -> None:
    folder = made(tmp_path / "m", tiny_tokenizer, "sequence", 2, (), problem="number")
    with refused(ModelError, folder, 2):
        load(folder).predict(["ba"])


@pytest.mark.parametrize("length", [16, 64])
def test_a_long_text_is_cut_where_we_cut_it(
    length: int, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """The model has 64 positions, the text some hundreds of pieces."""
    from transformers import pipeline

    labels, about = ("red", "green", "blue"), {"problem": "classes", "length": length}
    our_folder = made(tmp_path / "ours", tiny_tokenizer, "sequence", 3, labels, **about)
    peer: Any = pipeline(
        "text-classification", model=to_hf(our_folder, tmp_path / "hf"), top_k=None
    )
    long = " ".join(texts(40, most=30))
    (expected,) = peer([long], truncation=True)
    (answer,) = load(our_folder).predict([long])
    assert answer["probabilities"] == pytest.approx(
        {e["label"]: e["score"] for e in expected}, abs=2e-5
    )
    assert load(tmp_path / "hf").predict([long]) == [answer], "and so it is where it is read back"


def test_what_a_task_keeps_and_theirs_do_not_is_said(tiny_tokenizer: Path, tmp_path: Path) -> None:
    our_folder = made(
        tmp_path / "ours",
        tiny_tokenizer,
        "span",
        2,
        (),
        task="squad",
        version=2,
        threshold=1.5,
        stride=128,
    )
    version, threshold = convert(our_folder, tmp_path / "hf", to="hf").notes
    names(version, "version", 2)
    names(threshold, "threshold", 1.5)


def test_tags_are_those_of_the_pipeline(tiny_tokenizer: Path, tmp_path: Path) -> None:
    from transformers import pipeline

    labels = ("O", "B-X", "I-X")
    our_folder = made(tmp_path / "ours", tiny_tokenizer, "tokens", 3, labels)
    peer: Any = pipeline(
        "token-classification", model=to_hf(our_folder, tmp_path / "hf"), ignore_labels=[]
    )
    for text, answer in zip(texts(8), load(our_folder).predict(texts(8)), strict=True):
        first_of_word: dict[int, str] = {}
        for token in peer(text):
            start = token[
                "start"
            ]  # of a word's first token: the space before it, or its first letter
            if start == 0 or text[start - 1] == " " or text[start] == " ":
                first_of_word.setdefault(len(text[:start].split()), token["entity"])
        assert first_of_word == dict(enumerate(answer["prediction"]))


def test_the_answer_is_that_of_the_pipeline(tiny_tokenizer: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    our_folder = made(tmp_path / "ours", tiny_tokenizer, "span", 2)
    folder = to_hf(our_folder, tmp_path / "hf")
    network, words = (
        AutoModelForQuestionAnswering.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    for question, context in zip(texts(6, seed=1, most=6), texts(6, seed=2, most=6), strict=True):
        answer = load(our_folder).predict([(question, context)])[0]
        batch = words(question, context, return_tensors="pt", return_offsets_mapping=True)
        offsets, kinds = (
            batch.pop("offset_mapping")[0].tolist(),
            batch["token_type_ids"][0].tolist(),
        )
        with torch.no_grad():
            out = network(**batch)
        inside = [i for i, kind in enumerate(kinds) if kind == 1 and offsets[i] != [0, 0]]
        best = max(
            ((i, j) for i in inside for j in inside if i <= j < i + 30),
            key=lambda ends: float(out.start_logits[0, ends[0]] + out.end_logits[0, ends[1]]),
        )
        score = float(out.start_logits[0, best[0]] + out.end_logits[0, best[1]])
        assert answer["score"] == pytest.approx(score, abs=1e-4)
        assert answer["prediction"] == context[offsets[best[0]][0] : offsets[best[1]][1]].strip()


def test_choices_are_those_of_their_class(tiny_tokenizer: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMultipleChoice, AutoTokenizer

    our_folder = made(tmp_path / "ours", tiny_tokenizer, "choice", 1)
    folder = to_hf(our_folder, tmp_path / "hf")
    network, words = (
        AutoModelForMultipleChoice.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    context, question, *choices = texts(5, seed=4, most=3)
    answer = load(our_folder).predict([(context, question, choices)])[0]
    pairs = [(context, f"{question} {choice}") for choice in choices]
    batch = words(pairs, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = network(**{key: value[None] for key, value in batch.items()}).logits[0]
    assert answer["probabilities"] == pytest.approx(logits.softmax(-1).tolist(), abs=2e-5)
    assert answer["prediction"] == int(logits.argmax())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text;label\r\nba, de;x\r\nfi;y\r\n"),
        ("a.csv", "sep=;\r\ntext;label\r\nba, de;x\r\nfi;y\r\n"),
        ("a.csv", "text\tlabel\nba, de\tx\nfi\ty\n"),
        ("a.tsv", '"text"\t"label"\n"ba, de"\t"x"\n"fi"\t"y"\n'),
        ("a.json", '[\n{"text": "ba, de", "label": "x"},\n{"text": "fi", "label": "y"}]'),
        ("-", "text;label\nba, de;x\nfi;y\n"),
        ("-", "sep=|\ntext|label\nba, de|x\nfi|y\n"),
        ("-", '[{"text": "ba, de", "label": "x"}, {"text": "fi", "label": "y"}]'),
    ],
)
def test_files_as_people_export_them(
    name: str, content: str, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: Any = tmp_path / name
    if name == "-":
        source = name
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
    else:
        source.write_text(content, newline="")
    out = io.StringIO()
    assert predict_file(load(classifier), source, out, columns=Columns(keep=("all",))) == 2
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [(row["text"], row["label"]) for row in rows] == [("ba, de", "x"), ("fi", "y")]


def test_a_model_of_several_columns_of_labels_is_restored(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,a,b\n" + "ba de,1,0\nfi go,0,1\nba go,1,1\n" * 10)
    table = Table(path, path, label_column=("b", "a"))
    finetune(
        recipe_file(tmp_path), table, tmp_path / "run", config(epochs=1), tokenizer=tiny_tokenizer
    )
    task = load(tmp_path / "run").predictor.task
    labeled = task.files.open_labeled(task, path).read("dev")
    assert [example.label for example in labeled[:3]] == [(1, 0), (0, 1), (1, 1)]
