"""`fit`: what it chooses, what its model answers, and how it goes on."""

from __future__ import annotations

import csv
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import litebert
from litebert.base.errors import ConfigError, DataError, ModelError, RunError
from litebert.base.storage import lock_folder
from litebert.cli import main
from litebert.demo import unpack
from litebert.fitting import encoders, judging, methods
from litebert.fitting import run as fitting
from litebert.tasks.table import Table
from litebert.tasks.text_outputs import OneClass
from litebert.tasks.texts import Example

PHRASES = {
    "billing": ["I was charged twice", "the invoice is wrong", "refund my payment"],
    "hardware": ["the screen is cracked", "my laptop is dead", "the battery drains fast"],
    "access": ["I cannot log in", "reset my password", "my account is locked"],
}
ENDS = ["today", "again", "please help", "since monday", "after the update", ""]


def write(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    draw = random.Random(0)
    rows: list[tuple[Any, ...]] = [("message", "team")]
    for _ in range(14):
        for team, phrases in PHRASES.items():
            rows.append((f"{draw.choice(phrases)} {draw.choice(ENDS)} {draw.randint(1, 99)}", team))
    return write(tmp_path / "tickets.csv", rows)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("models"))["vectors"]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that train for seconds."""
    monkeypatch.setattr(methods, "LEAST_STEPS", 24)
    monkeypatch.setattr(methods, "FEWEST_STEPS", 8)
    monkeypatch.setattr(methods, "NETWORK_EPOCHS", 1)


def test_contrastive_is_the_mean_of_two_trainings(
    tickets: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, learned, build, learn = (
        list[Any](),
        list[Any](),
        methods._build,
        methods.learn_contrastive,
    )

    def keep_built(*arguments: Any) -> Any:
        built.append(build(*arguments))
        return built[-1]

    def keep_learned(*arguments: Any) -> Any:
        learned.append(learn(*arguments))
        return learned[-1]

    monkeypatch.setattr(methods, "_build", keep_built)
    monkeypatch.setitem(methods.METHODS, "contrastive", keep_learned)
    litebert.fit(tickets, model=encoder, methods=["contrastive"])
    one, two = (model.encoder.state_dict() for model, _ in built[-2:])
    assert any((one[name] != two[name]).any() for name in one)
    for name, mean in learned[-1].start.state.items():
        torch.testing.assert_close(mean, (one[name] + two[name]) / 2)

    def fail(*_: Any) -> Any:
        raise methods.OutOfTime

    monkeypatch.setattr(methods, "learn_network", fail)
    litebert.fit(tickets, model=encoder, methods=["contrastive"], overwrite=True)
    alone = built[-1][0].encoder.state_dict()
    for name, mean in learned[-1].start.state.items():
        torch.testing.assert_close(mean, alone[name])


@pytest.mark.parametrize("method", [*methods.METHODS])
def test_every_way_makes_a_model(method: methods.MethodName, tickets: Path, encoder: Path) -> None:
    result = litebert.fit(tickets, model=encoder, methods=[method])
    assert result.folder == tickets.with_name("tickets-model")
    assert result.method == method
    assert result.chosen is not None
    assert result.chosen.score > 0.8
    inputs = [phrases[0] for phrases in PHRASES.values()]
    answers = litebert.load(result.folder).predict(inputs)
    assert [answer["prediction"] for answer in answers] == list(PHRASES)
    if method == "tfidf":
        return
    other = litebert.load(result.folder, engine="torch").predict(inputs)
    for first, second in zip(answers, other, strict=True):
        for label, likely in first["probabilities"].items():
            assert likely == pytest.approx(second["probabilities"][label], abs=1e-4)


def test_the_same_again_continues(
    tickets: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(name: methods.MethodName, learn: Callable[..., Any]) -> Callable[..., Any]:
        def learned(*arguments: Any) -> Any:
            asked.append(name)
            return learn(*arguments)

        return learned

    learns = dict(methods.METHODS)
    for name, learn in learns.items():
        monkeypatch.setitem(methods.METHODS, name, counted(name, learn))

    def fail(*arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setitem(methods.METHODS, "contrastive", fail)
    with pytest.raises(MemoryError):
        litebert.fit(tickets, model=encoder)
    with pytest.raises(ModelError, match="not finished"):
        litebert.load(tickets.with_name("tickets-model"))
    judged = list(asked)
    assert judged == ["tfidf"] * 3 + ["frozen"] * 3
    monkeypatch.setitem(
        methods.METHODS, "contrastive", counted("contrastive", learns["contrastive"])
    )
    result = litebert.fit(tickets, model=encoder)
    # What was judged is not judged again; what is taken learns from all rows.
    assert asked[len(judged) :] == ["contrastive", result.method]
    assert all(entry.texts_per_second > 0 for entry in result.judged)
    assert litebert.fit(tickets, model=encoder) == result
    assert len(asked) == len(judged) + 2
    with pytest.raises(RunError, match="--overwrite"):
        litebert.fit(tickets, model=encoder, seed=1)
    with pytest.raises(RunError, match="--overwrite"):
        litebert.fit(tickets, model=encoder, prefer="score")


def test_its_estimate_is_honest(tmp_path: Path) -> None:
    """Of 16 fits on labels that are a coin's, or right in three of four rows, the error covers the
    truth in most."""
    covered = 0
    for trial in range(16):
        draw, flips = random.Random(trial), 0.25 if trial % 2 else 0.5
        rows: list[tuple[Any, ...]] = [("text", "label")]
        for _ in range(60):
            says = draw.choice(("good", "bad"))
            label = says if draw.random() > flips else {"good": "bad", "bad": "good"}[says]
            rows.append((f"{says} {draw.randint(0, 10**6)}", label))
        file = write(tmp_path / f"{trial}.csv", rows)
        result = litebert.fit(file, methods=["tfidf"])
        answers = litebert.load(result.folder).predict(["good", "bad"])
        right = [answer["prediction"] for answer in answers]
        likely = [
            1 - flips if value == says else flips
            for value, says in zip(right, ("good", "bad"), strict=True)
        ]
        assert result.chosen is not None
        covered += abs(result.chosen.score - np.mean(likely)) <= 2 * result.chosen.error
    assert covered >= 13


def test_numbers_labels_and_pairs(tmp_path: Path, encoder: Path) -> None:
    draw = random.Random(0)
    numbers: list[tuple[Any, ...]] = [("text", "score")]
    several: list[tuple[Any, ...]] = [("text", "labels")]
    pairs: list[tuple[Any, ...]] = [("sentence1", "sentence2", "label")]
    words = ["red", "green", "blue", "tall", "small", "old", "new", "fast", "slow", "loud"]
    for _ in range(60):
        chosen = draw.sample(words, 4)
        numbers.append(
            (" ".join(chosen), 1000 + 3.5 * ("red" in chosen) - 2.25 * ("old" in chosen))
        )
        several.append(
            (" ".join(chosen), ";".join(w for w in ("red", "old", "fast") if w in chosen))
        )
        other = chosen if draw.random() < 0.5 else draw.sample(words, 4)
        pairs.append((" ".join(chosen), " ".join(other), "same" if other == chosen else "other"))
    for name, rows, separator in (
        ("numbers", numbers, None),
        ("several", several, ";"),
        ("pairs", pairs, None),
    ):
        file = write(tmp_path / f"{name}.csv", rows)
        for method in ("tfidf", "frozen", "finetune"):
            result = litebert.fit(
                file,
                tmp_path / f"{name}-{method}",
                model=encoder,
                methods=[method],
                separator=separator,
            )
            assert np.isfinite(result.judged[0].score)
            inputs: Any = [("red old", "red old")] if name == "pairs" else ["red old tall new"]
            (answer,) = litebert.load(result.folder).predict(inputs)
            if name == "numbers":
                assert 990 < answer["prediction"] < 1010
    with pytest.raises(ConfigError, match="one class each"):
        litebert.fit(tmp_path / "numbers.csv", tmp_path / "no", methods=["contrastive"])


def test_rows_without_a_label_are_left_out(tickets: Path) -> None:
    with open(tickets, "a", encoding="utf-8") as file:
        file.write("nobody has read this yet,\n")
    result = litebert.fit(tickets, methods=["tfidf"])
    assert result.notes[0].startswith("42 rows")
    assert "rows without a label are left out (1)" in result.notes


def test_labels_that_are_only_called(tmp_path: Path, encoder: Path) -> None:
    rows = [("text",), *((text,) for phrases in PHRASES.values() for text in phrases)]
    file = write(tmp_path / "texts.csv", rows)
    result = litebert.fit(file, model=encoder, labels=list(PHRASES))
    assert result.chosen is None
    assert "no score is known" in result.reason
    names = {"x1": ["money and invoices"], "x2": ["a broken screen or battery"]}
    described = litebert.fit(
        file, tmp_path / "described", model=encoder, labels=["x1", "x2"], describe=names
    )
    (answer,) = litebert.load(described.folder).predict(["the invoice shows too much money"])
    assert answer["prediction"] == "x1"
    with pytest.raises(ConfigError, match="--describe"):
        litebert.fit(file, tmp_path / "codes", model=encoder, labels=["x1", "x2"])


def test_names_answer_better_after_they_have_read_the_texts(tmp_path: Path, encoder: Path) -> None:
    """Even if one of them has the words that all texts share; and they stay unsure."""
    names = {"access": ["log in or password today, again, please help, since monday, the update"]}
    draw, rows = random.Random(0), list[tuple[str, str]]()
    for team, phrases in PHRASES.items():
        rows += [(f"{draw.choice(phrases)} {draw.choice(ENDS)} {i}", team) for i in range(60)]
    draw.shuffle(rows)
    right, sure = {}, {}
    for count in (10, 180):  # too few to learn from, and enough
        texts = [("text",), *((text,) for text, _ in rows[:count])]
        file = write(tmp_path / f"{count}.csv", texts)
        result = litebert.fit(file, model=encoder, labels=list(PHRASES), describe=names)
        answers = litebert.load(result.folder).predict([text for text, _ in rows])
        right[count] = np.mean(
            [answer["prediction"] == team for answer, (_, team) in zip(answers, rows, strict=True)]
        )
        sure[count] = np.mean([max(answer["probabilities"].values()) for answer in answers])
    assert right[180] > right[10] + 0.05
    assert right[180] > 0.8
    assert sure[180] < right[180]


def test_names_of_classes_that_no_text_has_are_not_forgotten(tmp_path: Path, encoder: Path) -> None:
    texts = [("text",), *((f"my invoice of month {i} is wrong",) for i in range(100))]
    file = write(tmp_path / "bills.csv", texts)
    folder = litebert.fit(file, model=encoder, labels=list(PHRASES)).folder
    asked = ["the hardware is broken", "no access to it", "billing is wrong"]
    answers = [answer["prediction"] for answer in litebert.load(folder).predict(asked)]
    assert answers == ["hardware", "access", "billing"]


def test_ctrl_c_takes_the_best_so_far(
    tickets: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(methods.METHODS, "contrastive", interrupt)
    result = litebert.fit(tickets, model=encoder)
    assert result.method in ("tfidf", "frozen")
    assert any(note.startswith("stopped") for note in result.notes)
    assert result.interrupted
    assert litebert.load(result.folder).predict(["reset my password"])


def test_a_way_that_takes_too_long_is_left_out(tickets: Path, encoder: Path) -> None:
    result = litebert.fit(tickets, model=encoder, budget="1s")
    assert {judged.method for judged in result.judged} == {"tfidf", "frozen"}
    assert any("left out" in note for note in result.notes)
    assert "contrastive did not fit into the time, and a longer --budget tries it" in result.reason


def test_folders_of_texts(tmp_path: Path) -> None:
    for team, phrases in PHRASES.items():
        (tmp_path / "mail" / team).mkdir(parents=True)
        for i, phrase in enumerate(phrases * 3):
            (tmp_path / "mail" / team / f"{i}.txt").write_text(f"{phrase}, {i}\n")
    result = litebert.fit(tmp_path / "mail", methods=["tfidf"])
    assert result.folder == tmp_path / "mail-model"
    assert result.notes[0].startswith("27 rows")
    (answer,) = litebert.load(result.folder).predict(["the invoice"])
    assert answer["prediction"] == "billing"


def test_groups_stay_on_one_side(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [("text", "label", "customer")]
    rows += [(f"{i} of {i // 4}", "ab"[i // 4 % 2], i // 4) for i in range(80)]
    file = write(tmp_path / "a.csv", rows)
    task, examples, *_ = fitting._open([file], [], {"group_column": "customer"})
    (first, *_) = judging.split_rows(task, task.plain_items(examples), 0)
    sides = {(row[2], bool(held)) for row, held in zip(rows[1:], first, strict=True)}
    assert len(sides) == 20


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("text", "label"), ("a b", "x"), ("c d", "x"), ("e f", "x")], "on every row"),
        ([("text", "label"), ("a b", "x"), ("c d", "y"), ("e f", "x")], "too few"),
        ([("text", "label")], "holds no rows"),
    ],
)
def test_files_that_teach_nothing(
    rows: list[tuple[Any, ...]], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "a.csv", rows)
    with pytest.raises(DataError, match=words):
        litebert.fit(file, methods=["tfidf"])
    assert main(["fit", str(file), "--methods", "tfidf"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_the_command(tickets: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", str(tickets), "--methods", "tfidf", "frozen", "--model", str(encoder)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "accuracy" in shown
    assert "± " in shown
    folder = tickets.with_name("tickets-model")
    assert main(["predict", str(folder), "reset my password", "the invoice is wrong"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[-2] for line in shown.splitlines()[2:4]] == ["access", "billing"]
    assert main([*command, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["method"] in ("tfidf", "frozen")
    assert main(["fit", str(tickets), "--overwrite", "--methods", "tfidf", "--seed", "3"]) == 0


def test_descriptions_are_read_from_a_file(
    tickets: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write(tmp_path / "names.csv", [("billing", "money, invoices"), ("hardware", "devices")])
    command = ["fit", str(tickets), "--methods", "frozen", "--model", str(encoder)]
    assert main([*command, "--describe", str(names)]) == 0
    write(names, [("billing",)])
    assert main([*command, "--describe", str(names), "--overwrite"]) == 2
    assert "names.csv:1" in capsys.readouterr().err
    write(names, [("biling", "money")])
    assert main([*command, "--describe", str(names), "--overwrite"]) == 2
    assert "billing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": ["billing"]}, "two classes or more"),
        ({"labels": ["billing", "access", "billing"]}, "each once"),
        ({"labels": ["billing", "Billing"]}, "each once"),
        ({"labels": ["billing", "access"], "methods": ["tfidf"]}, "--methods"),
        ({"labels": ["billing", "access"], "label_column": "team"}, "--label-column"),
        ({"methods": ["tfidf"], "describe": {"billing": ["money"]}}, "add frozen"),
        ({"describe": {"biling": ["money"]}}, "billing"),
        ({"budget": "0s"}, "30m"),
        ({"methods": ["count"]}, "tfidf"),
    ],
)
def test_options_that_contradict(options: dict[str, Any], words: str, tickets: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        litebert.fit(tickets, **options)
    assert not tickets.with_name("tickets-model").exists()


def test_a_folder_in_use_keeps_its_files(tickets: Path) -> None:
    folder = litebert.fit(tickets, methods=["tfidf"]).folder
    with lock_folder(folder, RunError), pytest.raises(RunError, match="in use"):
        litebert.fit(tickets, methods=["tfidf"], overwrite=True)
    assert litebert.load(folder).predict(["reset my password"])


def test_no_time_to_learn_from_all_rows(
    tickets: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed after it had judged, and has no time after that."""

    def fail(*arguments: Any) -> Any:
        raise methods.OutOfTime

    finish = judging.Runner.finish
    monkeypatch.setattr(judging.Runner, "finish", fail)
    with pytest.raises(methods.OutOfTime):
        litebert.fit(tickets, model=encoder, methods=["frozen"])
    monkeypatch.setattr(judging.Runner, "finish", finish)
    monkeypatch.setitem(methods.METHODS, "frozen", fail)
    with pytest.raises(RunError, match="longer --budget"):
        litebert.fit(tickets, model=encoder, methods=["frozen"])
    monkeypatch.undo()
    assert litebert.fit(tickets, model=encoder, methods=["frozen"], budget="20m").method == "frozen"


def test_the_folder_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for team, phrases in PHRASES.items():
        (tmp_path / "my mail" / team).mkdir(parents=True)
        for i, phrase in enumerate(phrases * 2):
            (tmp_path / "my mail" / team / f"{i}.txt").write_text(f"{phrase}, {i}\n")
    (tmp_path / "my mail" / "README.md").write_text("of the mail")
    monkeypatch.chdir(tmp_path / "my mail")
    result = litebert.fit(".", methods=["tfidf"])
    assert result.folder == tmp_path / "my mail-model"
    assert result.notes[0].startswith("18 rows")


def test_ratings_are_numbers_where_one_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(0)
    rows: list[tuple[Any, ...]] = [("text", "stars")]
    for _ in range(40):
        stars = draw.randint(1, 5)
        rows.append((f"{'good ' * stars}thing {draw.randint(1, 99)}", stars))
    file = write(tmp_path / "stars.csv", rows)
    assert main(["fit", str(file), "--methods", "tfidf", "--target", "number", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "r2"
    (answer,) = litebert.load(tmp_path / "stars-model").predict(["good good good good good thing"])
    assert answer["prediction"] > 3


def test_of_many_rows_the_encoder_reads_a_part(
    tickets: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "FEW_ROWS", 20)
    monkeypatch.setattr(judging, "MOST_READ", 30)
    result = litebert.fit(tickets, model=encoder, methods=["tfidf", "frozen", "finetune"])
    assert any("reads 30 of the 42 rows" in note for note in result.notes)
    assert {judged.method for judged in result.judged} == {"tfidf", "frozen", "finetune"}
    assert len({judged.rows for judged in result.judged}) == 1, "the same rows judge all of them"
    assert litebert.load(result.folder).predict(["reset my password"])


def test_counts_are_judged_before_the_encoder_reads(
    tickets: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(judging, "_read", interrupt)
    result = litebert.fit(tickets, model=encoder)
    assert [judged.method for judged in result.judged] == ["tfidf"]
    with pytest.raises(ModelError, match="nowhere"):
        litebert.fit(tickets, tickets.with_name("other"), model="nowhere/model")


@pytest.mark.thorough
def test_a_network_takes_as_many_steps_as_the_budget_allows(
    tickets: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "NETWORK_EPOCHS", 10**6)
    monkeypatch.setattr(methods, "LEAST_STEPS", 8)
    began = time.monotonic()
    result = litebert.fit(tickets, model=encoder, methods=["frozen", "finetune"], budget="25s")
    assert {judged.method for judged in result.judged} == {"frozen", "finetune"}
    assert 5 < time.monotonic() - began < 40


def choose_among(shares: dict[methods.MethodName, float | None], rows: int) -> methods.MethodName:
    """The method that is taken where each answers such a share of so many rows right, or all rows
    with the first class."""
    task = Table(OneClass(("no", "yes")), texts=("text",), dev=("dev",))
    draw = np.random.default_rng(0)
    examples = [Example(str(i), None, int(draw.integers(2))) for i in range(rows)]
    runner = judging.Runner(methods.Material(task, examples), Path(), [])
    hard = draw.random(rows)  # all methods fail on the same rows first
    for method, share in shares.items():
        first = np.array([example.label == 0 for example in examples])
        right = first if share is None else hard < np.quantile(hard, share)
        logits = [
            np.array((1, -1) if (example.label == 0) == good else (-1, 1), np.float32)
            for example, good in zip(examples, right, strict=True)
        ]
        runner.answers[method] = np.arange(rows), logits
        score, error = runner.measure(runner.answers[method])
        runner.judged[method] = judging.Judged(method, score, error, rows, 1.0, 100.0, 1.0)
    return runner.choose("balance")[0]


@pytest.mark.parametrize(
    ("shares", "rows", "chosen"),
    [
        # Many rows say what is better, whatever is usual.
        ({"tfidf": 0.89, "frozen": 0.34, "finetune": 0.84}, 4000, "tfidf"),
        ({"tfidf": 0.69, "frozen": 0.81, "finetune": 0.85}, 4000, "finetune"),
        ({"tfidf": 0.80, "frozen": 0.80, "finetune": 0.80}, 4000, "tfidf"),
        # Few rows do not, so what is usual decides.
        ({"tfidf": 0.60, "frozen": 0.80, "contrastive": 0.80}, 40, "contrastive"),
        # Of methods that answer all alike, too, if none is clearly worse.
        ({"tfidf": None, "frozen": None}, 40, "frozen"),
        ({"tfidf": 0.95, "frozen": None}, 40, "tfidf"),
        # But it does not where they speak clearly.
        ({"tfidf": 0.95, "frozen": 0.50, "contrastive": 0.55}, 40, "tfidf"),
    ],
)
def test_the_rows_decide_as_far_as_they_can(
    shares: dict[methods.MethodName, float | None], rows: int, chosen: methods.MethodName
) -> None:
    assert choose_among(shares, rows) == chosen


@pytest.mark.parametrize(
    ("texts", "english"),
    [
        (["The screen is black after the update.", "My invoice is wrong"], True),
        (["printer broken", "no sound"], True),
        (["Der Bildschirm bleibt nach dem Update schwarz.", "Die Rechnung ist falsch"], False),
        (["La pantalla se queda negra", "no puedo entrar en mi cuenta"], False),
        (["업데이트 후 화면이 검게 유지됩니다"], False),
        (["Экран остаётся чёрным после обновления the"], False),
    ],
)
def test_texts_tell_which_encoder_reads_them(
    texts: list[str], english: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    located: list[str] = []
    monkeypatch.setattr("litebert.hub.locate", located.append)
    examples = [Example(text, None, 0) for text in texts]
    name, _ = encoders.find_encoder(examples)
    assert located == [name]
    assert (name == encoders.ENCODER) == english


def test_the_printed_command_makes_the_same_model(tmp_path: Path) -> None:
    """Of columns that have to be found; nothing but its method is tried."""
    rows = [("cold", "ice and snow"), ("warm", "sun and fire")] * 12
    file = tmp_path / "t.csv"
    lines = [f"{i};{label};{text} {i}" for i, (label, text) in enumerate(rows)]
    file.write_text("\n".join(["n;kind;words", *lines]) + "\n", encoding="cp1252")
    first = litebert.fit(file, methods=("tfidf",))
    again = litebert.fit(file, tmp_path / "again", **first.options)
    assert first.options["methods"] == ["tfidf"]
    assert first.options["text_column"] == "words"
    name = "model/tfidf.safetensors"
    assert (first.folder / name).read_bytes() == (again.folder / name).read_bytes()
    printed = subprocess.run(
        [sys.executable, "-m", "litebert", "fit", file, "--methods", "tfidf"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = " ".join(printed.partition("a search:")[2].partition("wrote")[0].split())
    options = "--methods tfidf --text-column words --label-column kind --overwrite"
    assert words == f"litebert fit {file} {options}"


@pytest.mark.parametrize(("rows", "halved"), [(1999, False), (4000, True)])
def test_many_rows_are_scored_by_rows_that_chose_nothing(rows: int, halved: bool) -> None:
    """What is right in every second row only is all right or all wrong by one of the halves, and
    its lead over what is wrong everywhere is the other half's."""
    task = Table(OneClass(("no", "yes")), texts=("text",), dev=("dev",))
    examples = [Example(str(i), None, 1) for i in range(rows)]
    runner = judging.Runner(methods.Material(task, examples), Path(), [])
    places = np.arange(rows)
    logits = np.where(places[:, None] % 2 == 1, (-1.0, 1.0), (1.0, -1.0)).astype(np.float32)
    every, wrong = (places, list(logits)), (places, [np.array((1, -1), np.float32)] * rows)
    score, lead = runner.measure(every)[0], runner.measure(every, wrong)[0]
    assert (score, lead) == ((1.0, 0.0) if halved else (999 / 1999, 999 / 1999))


def test_slips_of_labels_and_texts_that_are_not_read_are_told(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [("place", "body", "team", "day")]
    for i in range(20):
        rows.append((f"invoice {i} is late", f"the invoice {i} of june is late", "billing", "mon"))
        rows.append((f"screen {i} is dead", f"my screen {i} is dark today", "Level 1", "tue"))
    rows += [("invoice 99 is late", "where is the invoice 99 now", "biling", "mon")]
    rows += [("screen 99 is dead", "the screen 99 is quite dark", "Level 2", "mon")]
    result = litebert.fit(write(tmp_path / "mail.csv", rows), methods=["tfidf"])
    assert any("1 row has 'biling', and 20 'billing'" in note for note in result.notes)
    assert not any("Level 2" in note and "write one" in note for note in result.notes)
    assert "not read: 'place'; --text-column 'body + place' reads both" in result.notes


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_title_is_read_with_its_text(form: str, tmp_path: Path) -> None:
    """Where a row has one; and the model reads such files and texts as it learned them."""
    header = ("id", "subject", "body", "team")
    rows: list[tuple[Any, ...]] = []
    for i in range(12):
        rows.append((i, "a printer" if i % 3 else "", f"it fails, number {i}", "hardware"))
        rows.append((i, "a payment" if i % 3 else "", f"it fails, number {i}", "billing"))
    file, columns = (
        tmp_path / f"mail.{form}",
        dict(zip(header, zip(*rows, strict=True), strict=True)),
    )
    if form == "csv":
        write(file, [header, *rows])
    elif form == "jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
        file.write_text("\n".join(lines), encoding="utf-8")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [*cells] for name, cells in columns.items()}), file)
    result = litebert.fit(file, methods=["tfidf"])
    assert result.options["text_column"] == "subject + body"
    answers = litebert.load(result.folder).predict(["a printer\nit fails, number 1"])
    out = tmp_path / "answers.jsonl"
    assert main(["predict", str(result.folder), "--input", str(file), "--out", str(out)]) == 0
    read = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert read[2]["probabilities"] == pytest.approx(answers[0]["probabilities"])


def test_a_column_may_have_a_plus_in_its_name(tmp_path: Path) -> None:
    rows = [(phrase, "x", team) for team, phrases in PHRASES.items() for phrase in phrases]
    file = write(tmp_path / "plus.csv", [("pros + cons", "pros", "team"), *rows])
    result = litebert.fit(file, methods=["tfidf"])
    assert result.options["text_column"] == "pros + cons"
    (answer,) = litebert.load(result.folder).predict(["the screen is dead"])
    assert answer["prediction"] == "hardware"
    with pytest.raises(DataError, match="has no column 'cons'"):
        litebert.fit(file, tmp_path / "other", text_column="cons + pros", methods=["tfidf"])


def test_one_text_in_all_rows_teaches_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "same.csv", [("text", "label"), *[("same", "a"), ("same", "b")] * 3])
    with pytest.raises(DataError, match="has the same text in every row of 'text'"):
        litebert.fit(file)


def test_codes_as_labels_are_refused_before_an_encoder_is_opened(tmp_path: Path) -> None:
    file = write(tmp_path / "texts.csv", [("text",), ("a first text",), ("a second text",)])
    with pytest.raises(ConfigError, match="says nothing with fewer than three"):
        litebert.fit(file, labels=["1", "2"], model=tmp_path / "absent")


def test_an_encoding_that_is_told_is_believed(tmp_path: Path) -> None:
    rows = [
        ("text", "label"),
        *[("die Rechnung für Müller", "a"), ("Bildschirm zerstört", "b")] * 3,
    ]
    file = tmp_path / "de.csv"
    with open(file, "w", newline="", encoding="latin-1") as opened:
        csv.writer(opened).writerows(rows)
    result = litebert.fit(file, methods=["tfidf"], encoding="latin-1")
    assert result.options["encoding"] == "latin-1"


@pytest.mark.parametrize("target", ["class", "number"])
def test_what_reads_nothing_is_named_as_the_rival(target: Any, tmp_path: Path) -> None:
    """Labels that texts do not tell; and those that they do, as `tickets`."""
    draw = random.Random(0)
    words = ["red", "green", "blue", "black", "white"]
    rows = [(" ".join(draw.choices(words, k=6)), draw.randint(1, 3)) for _ in range(60)]
    file = write(tmp_path / "noise.csv", [("text", "label"), *rows])
    result = litebert.fit(file, methods=["tfidf"], target=target)
    assert "one and the same answer to every text" in result.reason
    told = [(f"{text} {'good' if label > 1 else 'bad'}", int(label > 1)) for text, label in rows]
    file = write(tmp_path / "told.csv", [("text", "label"), *told])
    result = litebert.fit(file, methods=["tfidf"], target=target)
    assert "one and the same" not in result.reason


def test_two_fits_are_compared(
    tickets: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their scores stand in one row, since the same rows judged them."""
    folders = [tickets.with_name("a-model"), tickets.with_name("b-model")]
    fits = [
        litebert.fit(tickets, folders[0], methods=("tfidf",)),
        litebert.fit(tickets, folders[1], methods=("frozen",), model=encoder),
    ]
    assert main(["compare", *map(str, folders), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    for row, done in zip(rows, fits, strict=True):
        assert done.chosen is not None
        assert row["scores"] == [100 * done.chosen.score]
        assert (row["rows"], row["metric"]) == (done.chosen.rows, "accuracy")
    assert rows[0]["data"] == rows[1]["data"]
    assert main(["compare", *map(str, folders)]) == 0
    shown = capsys.readouterr().out
    assert "tfidf" in shown
    assert "frozen" in shown
    more = shutil.copy(tickets, tickets.with_name("more.csv"))
    several = litebert.fit([tickets, more], tickets.with_name("several"), methods=("tfidf",))
    assert main(["compare", str(several.folder), str(folders[0])]) == 0
    shutil.rmtree(folders[0])
    folders[0].mkdir()
    assert main(["compare", *map(str, folders)]) == 2


MAIL = [
    (f"{word} {i}", f"it fails again, number {i}", team)
    for i in range(12)
    for word, team in (("a broken printer", "hardware"), ("a lost payment", "billing"))
]


def test_rows_and_files_may_lack_the_title(tmp_path: Path) -> None:
    """A row without one is read by its text alone, in fit, predict and evaluate; and so is a later
    file. A name of a title that is nowhere is refused."""
    lines = [dict(zip(("subject", "body", "team"), row, strict=True)) for row in MAIL]
    for line in lines[1::3]:
        del line["subject"]
    rows = tmp_path / "mail.jsonl"
    rows.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    result = litebert.fit(rows, methods=["tfidf"])
    assert result.options["text_column"] == "subject + body"
    assert "texts have no 'subject' (8)" in result.notes
    whole = write(tmp_path / "whole.csv", [("subject", "body", "team"), *MAIL])
    bare = write(tmp_path / "bare.csv", [("body", "team"), *[row[1:] for row in MAIL]])
    assert litebert.fit([whole, bare], methods=["tfidf"]).notes[0].startswith("48 rows")
    for verb, option in (("predict", "--input"), ("evaluate", "--data")):
        assert main([verb, str(result.folder), option, str(bare)]) == 0
    told = litebert.fit([bare, whole], tmp_path / "other", methods=["tfidf"]).notes
    assert f"{whole}: 'subject' is not read, as the first file has none" in told
    with pytest.raises(DataError, match="has no column 'subjct'; did you mean"):
        litebert.fit(whole, tmp_path / "typo", text_column="subjct + body", methods=["tfidf"])
    assert main(["predict", str(result.folder), "--input", str(whole), "--text-column", "a + body"])


def test_what_a_title_is(tmp_path: Path) -> None:
    """No category, which may say the label; not the text where a longer one is; read in a third of
    the rows too; and beside columns whose names have a plus."""
    header = ("title", "text", "subject", "label")
    rows = [(title, text, f"{team}News", team) for title, text, team in MAIL]
    news = litebert.fit(write(tmp_path / "news.csv", [header, *rows]), methods=["tfidf"])
    assert news.options["text_column"] == "title + text"
    short = ("subject", "details", "team")
    some = [(row[0] if i % 3 else "", *row[1:]) for i, row in enumerate(MAIL)]
    details = litebert.fit(write(tmp_path / "details.csv", [short, *some]), methods=["tfidf"])
    assert details.options["text_column"] == "subject + details"
    few = [(row[0] if not i % 3 else "", *row[1:]) for i, row in enumerate(MAIL)]
    rare = litebert.fit(write(tmp_path / "rare.csv", [short, *few]), methods=["tfidf"])
    assert rare.options["text_column"] == "subject + details"
    plain = ("title", "pros + cons", "team")
    file = write(tmp_path / "plus.csv", [plain, *MAIL])
    plus = litebert.fit(file, methods=["tfidf"])
    assert plus.options["text_column"] == "title + pros + cons"
    out = tmp_path / "answers.csv"
    assert main(["predict", str(plus.folder), "--input", str(file), "--out", str(out)]) == 0
    (answer,) = litebert.load(plus.folder).predict([f"{MAIL[0][0]}\n{MAIL[0][1]}"])
    with open(out, encoding="utf-8", newline="") as opened:
        row = next(csv.DictReader(opened))
    assert float(row["p_hardware"]) == pytest.approx(answer["probabilities"]["hardware"], abs=1e-5)


def test_standard_input_is_read_as_a_file_is(tmp_path: Path) -> None:
    """Joined columns, and one with a plus in its name, of what can be read once only."""
    for header in (("subject", "body", "team"), ("pros + cons", "subject", "team")):
        file = write(tmp_path / "mail.csv", [header, *MAIL])
        model = litebert.fit(file, methods=["tfidf"], overwrite=True).folder
        words = [
            sys.executable,
            "-m",
            "litebert",
            "predict",
            str(model),
            "--keep",
            "all",
            "--input",
        ]
        told = [
            subprocess.run([*words, name], input=given, capture_output=True, check=True).stdout
            for name, given in ((str(file), b""), ("-", file.read_bytes()))
        ]
        assert told[0] == told[1]
        assert told[0].startswith(",".join(header).encode())


@pytest.mark.parametrize("name", ["subject + body", "1 + 2"])
def test_finetune_joins_columns_too(name: str, tmp_path: Path, encoder: Path) -> None:
    header = [("id", "subject", "body", "team")] if name[0] != "1" else []
    file = write(tmp_path / "mail.csv", [*header, *[(i, *row) for i, row in enumerate(MAIL)]])
    words = ["finetune", str(encoder), "--data", str(file), "--text-column", name]
    words += ["--out", str(tmp_path / "run"), "--steps", "2", "--no-baseline", "--label-column"]
    words += ["team"] if header else ["3", "--no-header"]
    assert main(words) == 0
    saved = json.loads((tmp_path / "run" / "model" / "task.json").read_text("utf-8"))
    assert saved["columns"]["text"] == name
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(file)]) == 0


def test_joined_texts_are_checked_as_one(tmp_path: Path) -> None:
    file = write(tmp_path / "mail.csv", [("subject", "body", "team"), *MAIL])
    with pytest.raises(ConfigError, match="a column that the model reads"):
        litebert.fit(file, text_column="team + body", label_column="team", methods=["tfidf"])
    lines = [{"subject": "s", "body": 404 if i % 4 else "b", "team": "ab"[i % 2]} for i in range(9)]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with pytest.raises(DataError, match="404"):
        litebert.fit(rows, text_column="subject + body", methods=["tfidf"])


@pytest.mark.parametrize("labels", [("1", "-1"), ("C", "C++"), ("A", "A+"), ("<5", ">5"), "👍👎"])
def test_labels_that_signs_tell_apart_are_no_slips(labels: Sequence[str], tmp_path: Path) -> None:
    rows = [(row[0], labels[i % 2]) for i, row in enumerate(MAIL)]
    file = write(tmp_path / "signs.csv", [("text", "label"), *rows])
    assert not any("write one" in note for note in litebert.fit(file, methods=["tfidf"]).notes)


def test_a_told_encoding_is_that_of_unlabeled_texts_too(tmp_path: Path) -> None:
    rows = [("text", "label"), *[(f"сломан экран {i}", "a") for i in range(6)]]
    rows += [(f"неверный счёт {i}", "b") for i in range(6)]
    file, more = tmp_path / "ru.csv", tmp_path / "more.txt"
    with open(file, "w", newline="", encoding="cp1251") as opened:
        csv.writer(opened).writerows(rows)
    more.write_text("новый экран\nдругой счёт\n", encoding="cp1251")
    result = litebert.fit(
        file,
        methods=["tfidf"],
        unlabeled=more,
        next_rows=2,
        encoding="cp1251",
        label_column="label",
    )
    assert result.next is not None
    assert "новый экран" in result.next.read_text("cp1251")
