"""`fit` with texts without labels: which rows are worth one, and what texts teach."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litebert
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.cli import main
from litebert.demo import unpack
from litebert.distill import steps
from litebert.fitting import judging, methods, second_round, unlabeled
from litebert.fitting.columns import Columns
from litebert.fitting.encoders import find_student
from litebert.text.records import Layout

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = {
    team: ["".join(random.Random(f"{team}{i}").choices(LETTERS, k=6)) for i in range(40)]
    for team in ("billing", "hardware", "access")
}
TOPICS = (
    "weather in the mountains",
    "recipe for a soup",
    "match of two teams",
    "song on the radio",
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("models"))["vectors"]


def write(path: Path, rows: Sequence[Sequence[Any]], encoding: str = "utf-8") -> Path:
    with open(path, "w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows(rows)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def make_texts(team: str, count: int, seed: int) -> list[str]:
    """Texts of three of the many words of a team, so that few labels know few of them."""
    draw = random.Random(f"{team}{seed}")
    return [" ".join(draw.sample(WORDS[team], 3)) for _ in range(count)]


@pytest.fixture
def labeled(tmp_path: Path) -> Path:
    rows = [(text, team) for team in WORDS for text in make_texts(team, 6, 0)]
    return write(tmp_path / "mail.csv", [("message", "team"), *rows])


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    texts = [text for team in WORDS for text in make_texts(team, 150, 1)]
    file = tmp_path / "more.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return file


def test_rows_worth_a_label_are_unsure_and_unlike_each_other(
    labeled: Path, tmp_path: Path, encoder: Path
) -> None:
    draw = random.Random(0)
    known = [row["message"] for row in read(labeled)]
    sure = [text for team in WORDS for text in make_texts(team, 60, 0)][6:]
    unknown = [f"the {topic} {draw.randint(1, 99)}" for topic in TOPICS for _ in range(12)]
    texts = [*known, *sure, *unknown, unknown[0].upper()]
    more = write(tmp_path / "more.csv", [("id", "body"), *enumerate(texts)])
    result = litebert.fit(labeled, model=encoder, methods=["frozen"], unlabeled=more, next_rows=8)
    assert result.next == tmp_path / "mail-next.csv"
    rows = read(result.next)
    assert list(rows[0]) == ["message", "team", "guess"]
    chosen = [row["message"] for row in rows]
    assert len({text.lower() for text in chosen}) == 8
    assert not {*chosen} & {*known}
    assert {row["team"] for row in rows} == {""}
    model = litebert.load(result.folder)
    assert [row["guess"] for row in rows] == [a["prediction"] for a in model.predict(chosen)]
    of_pool, of_chosen = (
        unlabeled.compute_unsureness(model.predict(some)).mean() for some in (texts, chosen)
    )
    assert of_chosen > of_pool
    covered = {topic for topic in TOPICS if any(topic in text.lower() for text in chosen)}
    assert len(covered) >= 3


def test_the_way_from_no_label_and_back(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phrases = {
        "money": ["the invoice is wrong", "I paid too much money", "refund my payment"],
        "computer": ["the screen is cracked", "my laptop is dead", "the keyboard is broken"],
    }
    team_of = {
        f"{phrase} {number}": team
        for team, some in phrases.items()
        for phrase in some
        for number in range(9)
    }
    texts = write(tmp_path / "mail.csv", [("message",), *((text,) for text in team_of)])
    begun = ["fit", str(texts), "--labels", "money,computer", "--model", str(encoder)]
    assert main([*begun, "--next", "6", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    first = Path(record["next"])
    assert first == tmp_path / "mail-next.csv"
    assert "no score is known" in record["reason"]
    assert "% of the texts" in record["reason"]

    # Rows that nobody labeled are replaced; those of a person never are.
    assert main([*begun, "--next", "8"]) == 0
    rows = read(first)
    assert len(rows) == 8
    write(first, [("message", "label", "guess")])
    labels = [(row["message"], team_of[row["message"]], row["guess"]) for row in rows[:-1]]
    write(first, [("message", "label", "guess"), *labels, (rows[-1]["message"], "", "")])
    content = first.read_bytes()
    result = litebert.fit(
        first, model=encoder, methods=["frozen"], unlabeled=texts, next_rows=5, overwrite=True
    )
    assert result.folder == tmp_path / "mail-model"
    assert result.notes[0].startswith("7 rows: 2 classes (computer, money) from 'label'")
    assert any("--next chose" in note and "'guess'" in note for note in result.notes)
    assert first.read_bytes() == content
    assert result.next == tmp_path / "mail-next-2.csv"
    second = read(result.next)
    assert not {row["message"] for row in second} & {text for text, *_ in labels}
    more = [(row["message"], team_of[row["message"]], row["guess"]) for row in second]
    write(result.next, [("message", "label", "guess"), *more])
    both = litebert.fit([first, result.next], model=encoder, methods=["frozen"], overwrite=True)
    assert both.notes[0].startswith("12 rows")


def test_a_finished_fit_is_asked_for_rows(labeled: Path, pool: Path) -> None:
    with open(labeled, "a", encoding="utf-8") as file:
        file.write("who wins the match,\nwhat a song,\n")
    result = litebert.fit(labeled, methods=["tfidf"])
    written = (result.folder / "fit.json").read_bytes()
    asked = litebert.fit(labeled, methods=["tfidf"], next_rows=2)
    assert asked.next is not None
    assert {row["message"] for row in read(asked.next)} == {"who wins the match", "what a song"}
    other = litebert.fit(labeled, methods=["tfidf"], next_rows=3, unlabeled=pool)
    assert other.next is not None
    assert {row["message"] for row in read(other.next)} <= {*pool.read_text().splitlines()}
    assert (result.folder / "fit.json").read_bytes() == written
    with pytest.raises(RunError, match="--overwrite"):
        litebert.fit(labeled, methods=["tfidf"], unlabeled=pool)


def test_more_texts_teach(labeled: Path, pool: Path) -> None:
    alone = litebert.fit(labeled, methods=["tfidf"])
    result = litebert.fit(labeled, methods=["tfidf"], unlabeled=pool, overwrite=True)
    assert any(note.startswith("with 450 more texts") for note in result.notes)
    assert result.notes[-1].endswith(", kept")
    assert result.chosen is not None
    assert alone.chosen is not None
    assert result.chosen.score > alone.chosen.score
    tests = [(text, team) for team in WORDS for text in make_texts(team, 50, 2)]
    right = [
        answer["prediction"] == team
        for answer, (_, team) in zip(
            litebert.load(result.folder).predict([text for text, _ in tests]), tests, strict=True
        )
    ]
    assert np.mean(right) > alone.chosen.score


def test_texts_that_say_nothing_are_not_kept(labeled: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    file = tmp_path / "noise.txt"
    file.write_text("".join(f"w{draw.randint(0, 10**9)}\n" for _ in range(300)))
    result = litebert.fit(labeled, methods=["tfidf"], unlabeled=file)
    assert result.notes[-1].endswith(", not kept")


@pytest.mark.parametrize("method", ["tfidf", "frozen"])
def test_guesses_never_come_from_a_model_that_saw_the_judging_rows(
    method: methods.MethodName,
    labeled: Path,
    pool: Path,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[methods.Material, list[int]]] = []
    learn = methods.METHODS[method]

    def noted(material: methods.Material, places: Sequence[int]) -> methods.Learned:
        seen.append((material, list(places)))
        return learn(material, places)

    asked: list[tuple[int, list[int]]] = []
    for kind in (methods.LearnedTfidf, methods.LearnedNetwork):
        answer = kind.logits

        def logits(self: Any, places: Sequence[int], answer: Any = answer) -> Any:
            asked.append((len(seen), list(places)))
            return answer(self, places)

        monkeypatch.setattr(kind, "logits", logits)
    monkeypatch.setitem(methods.METHODS, method, noted)
    monkeypatch.setattr(judging, "KEPT", -1e9)
    litebert.fit(labeled, methods=[method], model=encoder, unlabeled=pool)
    rounds = [(material, places) for material, places in seen if len(material.examples) > 18]
    judged = set[int]()
    for first, second in zip(rounds[0::2], rounds[1::2], strict=True):
        learned = {*first[1]}
        assert {place for place in second[1] if place < 18} == learned
        assert len(second[1]) > len(learned), "and guesses"
        after = seen.index(second) + 1
        held = {place for count, places in asked if count == after for place in places}
        if len(learned) < 18:
            assert held
            assert not held & learned
            judged |= held
    assert judged == {*range(18)}
    assert {*rounds[-2][1]} == {*range(18)}, "the last round learns from all rows"


def test_guesses_are_the_surest_of_each_class() -> None:
    draw = np.random.default_rng(0)
    numbers = draw.normal((0, 0, 2), size=(200, 3))
    places, guesses = second_round.choose_guesses(numbers, np.array((5, 4, 6)))
    assert np.bincount(guesses).tolist() == [5, 4, 6]
    assert len({*places.tolist()}) == 15
    assert (numbers[places].argmax(1) == guesses).all()
    likely = np.exp(numbers) / np.exp(numbers).sum(1, keepdims=True)
    margins = np.sort(likely, 1)[:, -1] - np.sort(likely, 1)[:, -2]
    for guess in range(3):
        others = [i for i in np.flatnonzero(numbers.argmax(1) == guess) if i not in places]
        assert margins[places[guesses == guess]].min() >= margins[others].max()


def test_a_round_that_was_killed_goes_on(
    labeled: Path, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(judging, "learn_again", fail)
        with pytest.raises(MemoryError):
            litebert.fit(labeled, methods=["tfidf"], unlabeled=pool)
    asked: list[int] = []
    learn = methods.METHODS["tfidf"]

    def noted(material: methods.Material, places: Sequence[int]) -> methods.Learned:
        asked.append(len(places))
        return learn(material, places)

    monkeypatch.setitem(methods.METHODS, "tfidf", noted)
    result = litebert.fit(labeled, methods=["tfidf"], unlabeled=pool)
    assert asked.count(12) == 3, "only the first rounds that the second begins with"
    assert result.notes[-1].endswith("kept")
    assert litebert.load(result.folder).predict(["a text"])


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["contrastive", "finetune"])
def test_a_trained_network_learns_again(
    method: methods.MethodName, tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "LEAST_STEPS", 24)
    monkeypatch.setattr(methods, "NETWORK_EPOCHS", 1)
    monkeypatch.setattr(judging, "KEPT", -1e9)
    phrases = {"money": "the invoice is wrong", "computer": "my laptop is broken"}
    rows = [(f"{phrase} {i}", team) for team, phrase in phrases.items() for i in range(12)]
    file = write(tmp_path / "mail.csv", [("message", "team"), *rows])
    more = tmp_path / "more.txt"
    more.write_text("".join(f"{text} again {i}\n" for text in phrases.values() for i in range(40)))
    result = litebert.fit(file, methods=[method], model=encoder, unlabeled=more)
    assert result.notes[-1].endswith(", kept")
    answers = litebert.load(result.folder).predict([*phrases.values()])
    assert [answer["prediction"] for answer in answers] == [*phrases]


def test_where_texts_come_from(tmp_path: Path) -> None:
    found = Columns("message", ("team",))
    folder = tmp_path / "notes"
    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_text("one text\nof two lines\n")
    (folder / "more" / "b.txt").write_text("another")
    lines = tmp_path / "lines.txt"
    lines.write_text("first\nsecond\n\nFIRST\n")
    named = write(tmp_path / "named.csv", [("id", "message"), (1, "in its column")])
    other = write(tmp_path / "other.csv", [("id", "body"), (1, "a text in another column")])
    only = write(tmp_path / "only.csv", [("anything",), ("the only column",)])
    western = write(tmp_path / "western.csv", [("message",), ("Müller zahlt",)], "cp1252")
    for source, texts in (
        (folder, {"one text\nof two lines\n", "another"}),
        (lines, {"first", "second"}),
        (named, {"in its column"}),
        (other, {"a text in another column"}),
        (only, {"the only column"}),
        (western, {"Müller zahlt"}),
    ):
        read_texts, count = unlabeled.read_texts([source], found, Layout(), 0)
        assert {example.text.strip() for example in read_texts} == {t.strip() for t in texts}
        assert count == len(texts)


def test_of_many_texts_some_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unlabeled, "MOST_TEXTS", 100)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"text {number}\n" for number in range(1000)))
    texts, count = unlabeled.read_texts([lines], Columns("text", ()), Layout(), 0)
    numbers = [int(example.text.split()[1]) for example in texts]
    assert count == 1000
    assert len({*numbers}) == 100
    assert 350 < np.mean(numbers) < 650
    assert numbers != sorted(numbers)


def test_rows_keep_the_form_of_the_file(tmp_path: Path, encoder: Path) -> None:
    draw = random.Random(0)
    words = [word for some in WORDS.values() for word in some]
    pairs: list[tuple[Any, ...]] = [("customer", "sentence1", "sentence2", "label")]
    for number in range(24):
        one = " ".join(draw.sample(words, 4))
        two = one if number % 2 else " ".join(draw.sample(words, 4))
        label = ("same" if number % 2 else "other") if number < 18 else ""
        pairs.append((number, one, two, label))
    file = write(tmp_path / "pairs.csv", pairs)
    result = litebert.fit(file, methods=["tfidf"], group_column="customer", next_rows=3)
    assert result.next is not None
    rows = read(result.next)
    assert list(rows[0]) == ["sentence1", "sentence2", "label", "customer", "guess"]
    assert {(row["sentence1"], row["sentence2"]) for row in rows} <= {row[1:3] for row in pairs}

    plain = write(
        tmp_path / "plain.csv",
        [
            *((f"{text}, again", team) for team in WORDS for text in make_texts(team, 6, 0)),
            *((f"{text}, again", "") for text in make_texts("access", 5, 3)),
        ],
    )
    result = litebert.fit(plain, methods=["tfidf"], next_rows=2)
    assert result.next is not None
    with open(result.next, newline="", encoding="utf-8") as opened:
        written = list(csv.reader(opened))
    assert [len(row) for row in written] == [3, 3]
    write(result.next, [(row[0], "access", row[2]) for row in written])
    both = litebert.fit([plain, result.next], methods=["tfidf"], overwrite=True)
    assert both.notes[0].startswith("20 rows")

    several = [(" ".join(draw.sample(words, 3)), draw.choice(["a", "a;b", "b"])) for _ in range(24)]
    blank = [(" ".join(draw.sample(words, 3)), "") for _ in range(6)]
    file = write(tmp_path / "several.csv", [("text", "labels"), *several, *blank])
    result = litebert.fit(file, methods=["tfidf"], separator=";", next_rows=4)
    assert result.next is not None
    assert len(read(result.next)) == 4


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"next_rows": 5}, ConfigError, "--unlabeled"),
        ({"next_rows": -1}, ConfigError, "-1"),
        ({"unlabeled": "nowhere.csv"}, DataError, "nowhere.csv"),
        ({"unlabeled": "empty"}, DataError, "empty"),
        ({"labels": ["a", "b"], "unlabeled": "a", "methods": ()}, ConfigError, "--unlabeled"),
        ({"unlabeled": "mail.csv", "next_rows": 1}, ConfigError, "give others"),
    ],
)
def test_what_cannot_be_asked(
    options: dict[str, Any],
    kind: type[Exception],
    words: str,
    labeled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(kind, match=words):
        litebert.fit("mail.csv", **{"methods": ["tfidf"], **options})
    assert not (tmp_path / "mail-model").exists()


def test_rows_to_label_are_read_beside_a_file_in_another_encoding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the command that is printed, which asks again for what was asked."""
    file, rows = tmp_path / "a.csv", [("Grüße", "a"), ("hallo", "b"), ("für dich", "")] * 6
    lines = [f"{text} {i};{label}" for i, (text, label) in enumerate(rows)]
    file.write_text("\n".join(["text;kind", *lines]) + "\n", encoding="cp1252")
    out = tmp_path / "mine"
    words = ["fit", str(file), "--methods", "tfidf", "--out", str(out)]
    assert main([*words, "--next", "3"]) == 0
    (command,) = (line for line in caplog.messages if "--overwrite" in line)
    more = tmp_path / "a-next.csv"
    asked = ("--methods", "tfidf", "--out", out, "--overwrite")
    assert {*command.split(" fit ")[1].split()} == {*map(str, (file, more, *asked))}
    text = more.read_text("cp1252")
    assert text.count("für dich") == 3
    more.write_text(text.replace(",,", ",a,"), encoding="cp1252")
    again = litebert.fit([file, more], out, methods=["tfidf"], overwrite=True)
    assert again.notes[0].startswith("15 rows")
    more.write_text(text.replace(",,", ",a,"), encoding="utf-8")
    with pytest.raises(DataError, match="save all in UTF-8"):
        litebert.fit([file, more], out, methods=["tfidf"], overwrite=True)


def test_files_of_one_table_agree(labeled: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.csv", [("text", "team"), ("a b", "access")])
    with pytest.raises(DataError, match="'message'"):
        litebert.fit([labeled, other], methods=["tfidf"])
    western = write(tmp_path / "western.csv", [("message", "team"), ("Müller", "access")], "cp1252")
    with pytest.raises(DataError, match="UTF-8"):
        litebert.fit([labeled, western], methods=["tfidf"])
    with pytest.raises(DataError, match="missing"):
        litebert.fit([labeled, tmp_path / "missing.csv"], methods=["tfidf"])


@pytest.mark.thorough
def test_a_student_is_judged_by_rows_that_no_label_of_it_came_from(
    labeled: Path,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(steps, "choose_budget", lambda lines: "20 steps")
    command = [
        "fit",
        str(labeled),
        "--methods",
        "frozen",
        "--model",
        str(encoder),
        "--size",
        "500k",
    ]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert [name for name in ("teacher", "student", "8 bits") if name in shown]
    folder = labeled.with_name("mail-model")
    train, dev = (
        {
            json.loads(line)["text"]
            for line in (folder / "held" / f"{name}.jsonl").read_text("utf-8").splitlines()
        }
        for name in ("train", "dev")
    )
    assert train | dev == {row["message"] for row in read(labeled)}
    assert not train & dev
    assert litebert.load(folder / "student" / "student").predict(["a text"])
    assert litebert.load(folder).predict(["a text"])


def test_a_student_starts_from_the_encoder_of_the_package_where_that_is_small_enough() -> None:
    english, german = (
        ["the text is in English and it is short"],
        ["das ist ein Text und nicht kurz"],
    )
    assert [find_student(english, size) for size in (2_000_000, 4_000_000)] == ["", "vectors"]
    assert find_student(german, 4_000_000) == ""


def test_counts_need_no_student(labeled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["2M", "--json"], ["big"]):
        assert main(["fit", str(labeled), "--methods", "tfidf", "--size", *wrong]) == 2
        assert "--size" in capsys.readouterr().err
        assert not labeled.with_name("mail-model").exists()
    assert main(["fit", str(labeled), "--methods", "tfidf", "--size", "2M"]) == 0
    assert "small already" in capsys.readouterr().out
    assert not (labeled.with_name("mail-model") / "student").exists()


def test_rows_to_label_are_written_with_the_delimiter_that_was_told(tmp_path: Path) -> None:
    lines = [f"{text};{team}" for team in WORDS for text in make_texts(team, 8, 0)]
    file = tmp_path / "mail.csv"
    file.write_text("\n".join(["message;team", *lines]), encoding="utf-8")
    more = tmp_path / "more.txt"
    more.write_text("a text, with a comma\nanother one\nand a third\n", encoding="utf-8")
    first = litebert.fit(file, methods=["tfidf"], unlabeled=more, next_rows=3, delimiter=";")
    assert first.next is not None
    header, *rows = first.next.read_text("utf-8-sig").splitlines()
    assert header == "message;team;guess"
    first.next.write_text(
        "\n".join([header, *(row.replace(";;", ";access;") for row in rows)]), encoding="utf-8"
    )
    again = litebert.fit([file, first.next], tmp_path / "again", methods=["tfidf"], delimiter=";")
    assert again.notes[0].startswith("27 rows")
