"""The baseline beside the scores of a run: what it learns, that it is scored alike, and what a
folder keeps of it.
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from litebert.analysis.compare_tasks import compare_tasks, make_task_table
from litebert.analysis.run_report import write_run
from litebert.base.errors import ConfigError, RunError
from litebert.config import replace
from litebert.judge.baselines import (
    FittedBaseline,
    advise,
    fit_baseline,
    models,
    read_baseline,
    read_scores,
)
from litebert.model.pretrainer import Pretrainer
from litebert.recipes.files import recipe as load_recipe
from litebert.tasks.features import CharacterFeatures
from litebert.tasks.tagging.scores import score_entities
from litebert.tokenizer import Tokenizer
from toys.finetuning import config, finetune, finetune_seeds, recipe_file, same_files, write_table
from toys.folders import save_hf
from toys.killed import Killed, kill, kill_at
from toys.refusals import names, refused
from toys.tasks import Pairs, Table, TaggingTask, task_of

WORDS = [a + b + c for a in "bdfgkl" for b in "aeiou" for c in "nrst"]


def fit(files: Any) -> FittedBaseline:
    """The baseline of a task, fitted on its training part."""
    return fit_baseline(files.task, files.read("train"))


def score(fitted: FittedBaseline, files: Any) -> dict[str, float]:
    """The scores of the dev parts of a task."""
    return fitted.scores_of([(part, files.read(part)) for part in files.task.dev])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(
        write_table(tmp_path / "train.csv", 120), write_table(tmp_path / "dev.csv", 60, seed=1)
    )


def run(table: Any, folder: Path, tokenizer: Path, **more: Any) -> Any:
    return finetune(
        recipe_file(folder.parent), table, folder, config(epochs=1), tokenizer=tokenizer, **more
    )


def write_rows(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


# ----------------------------------------------------------------------------------- what it learns


def test_character_features_are_those_of_scikit_learn() -> None:
    texts = ["The cat sat.", "a  CAT", "", "Ein Äpfelchen fällt", "cat cat cat"]
    features = CharacterFeatures()
    fitted = features.fit(texts, 1, 1000)
    vectorizer = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, dtype=np.float32
    )
    expected = vectorizer.fit_transform(texts)
    assert fitted.shape == expected.shape
    others = ["another cat", "new words only"]
    for first, two in (
        (fitted, expected),
        (features.transform(others), vectorizer.transform(others)),
    ):
        np.testing.assert_allclose((first @ first.T).toarray(), (two @ two.T).toarray(), atol=1e-6)


def test_it_is_scored_as_a_model_is(table: Table, tmp_path: Path) -> None:
    fitted = fit(table)
    with open(tmp_path / "dev.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    examples = table.read("dev")
    records = map(table.task.record, examples, fitted.answers(examples))
    answers = [record["prediction"] for record in records]
    right = sum(answer == row["label"] for answer, row in zip(answers, rows, strict=True)) / len(
        rows
    )
    scores = score(fitted, table)
    assert scores["accuracy"] == right > 0.9
    assert set(scores) == set(table.output.scores)
    again = fit(table)
    for first, two in zip(fitted.logits(examples), again.logits(examples), strict=True):
        assert first.tobytes() == two.tobytes()


def test_several_labels_and_numbers(tmp_path: Path) -> None:
    draw = random.Random(0)
    signs = WORDS[:3]

    def rows(count: int) -> list[tuple[str, str, float]]:
        made = []
        for _ in range(count):
            shown = [sign for sign in signs if draw.random() < 0.4]
            text = draw.sample([*shown, *draw.choices(WORDS[3:], k=6)], k=len(shown) + 6)
            made.append((" ".join(text), ";".join(shown), 3 + 2.5 * len(shown)))
        return made

    train = write_rows(tmp_path / "train.csv", ("text", "labels", "amount"), rows(300))
    dev = write_rows(tmp_path / "dev.csv", ("text", "labels", "amount"), rows(80))
    several = Table(train, dev, label_column="labels", separator=";")
    assert score(fit(several), several)["micro_f1"] > 0.9
    number = Table(train, dev, label_column="amount", target="number")
    assert score(fit(number), number)["r2"] > 0.8


def test_tags_are_the_commonest_of_each_word(tmp_path: Path) -> None:
    draw = random.Random(0)
    files = {}
    for part, count in (("train", 60), ("dev", 20)):
        lines = []
        for number in range(count):
            for word in WORDS if number == 0 else draw.choices(WORDS, k=8):  # every word is seen
                likely = word[0] in "bd"
                lines.append(f"{word} {'B-PER' if likely != (draw.random() < 0.15) else 'O'}")
            lines.append("")
        files[part] = tmp_path / f"{part}.conll"
        files[part].write_text("\n".join(lines), encoding="utf-8")
    task = TaggingTask(files)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in task.read("train"):
        for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
            seen[word][tag] += 1
    dev = task.read("dev")
    # Of equals the first label.
    guess = [
        [max(task.output.labels, key=lambda tag: seen[word][tag]) for word in example.words]
        for example in dev
    ]
    expected = score_entities([example.tags or () for example in dev], guess)[0].f1
    assert score(fit(task), task)["f1"] == expected


def test_vectors_rank_the_right_second_first(tmp_path: Path) -> None:
    draw = random.Random(0)

    def rows(count: int) -> list[tuple[str, str]]:
        made = [draw.sample(WORDS, k=8) for _ in range(count)]
        return [(" ".join(words), " ".join(draw.sample(words, k=8))) for words in made]

    train = write_rows(tmp_path / "train.csv", ("text", "pair"), rows(50))
    dev = write_rows(tmp_path / "dev.csv", ("text", "pair"), rows(40))
    task = Pairs(train, dev, pair_column="pair")
    assert score(fit(task), task) == {"mrr": 1.0, "recall_at_1": 1.0}
    alone = Pairs(train, dev, text_column="text")
    assert 0 < score(fit(alone), alone)["mrr"] < 1


def test_choices_have_none(tmp_path: Path) -> None:
    row = {"context": "a b", "question": "c", "choices": ["d", "e"], "label": 0}
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with refused(ConfigError, "choices"):
        fit(task_of("choices", tmp_path))


def test_of_too_much_text_it_reads_a_part(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "CHARACTERS", 2000)
    fitted = fit(table)
    assert 20 < fitted.model.read < fitted.training_rows == 120
    assert score(fitted, table)["accuracy"] > 0.6


def test_a_text_longer_than_all_that_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stands among the rows that are drawn."""
    rows = [(f"{'good' if i % 2 else 'bad'} {WORDS[i]}", i % 2) for i in range(60)]
    monkeypatch.setattr(models, "CHARACTERS", 2000)
    for place in range(0, 60, 10):
        longer = [*rows[:place], ("good " * 500, 1), *rows[place:]]
        train = write_rows(tmp_path / "train.csv", ("text", "label"), longer)
        task = Table(train, write_rows(tmp_path / "dev.csv", ("text", "label"), rows))
        fitted = fit(task)
        assert (fitted.model.read, fitted.training_rows) == (60, 61)
        assert score(fitted, task)["accuracy"] == 1


@pytest.mark.thorough
def test_real_tasks_reach_what_scikit_learn_reaches(shared_data: Path) -> None:
    """The references: 72.3% for SST-2 with 1,000 labels (one standard error 1.5), 76.6 for words
    in STS-B.
    """
    sst2 = task_of("sst2", shared_data / "glue")
    fitted = fit_baseline(sst2.task, sst2.read("train")[:1000])
    assert score(fitted, sst2)["accuracy"] > 0.70
    vectors = task_of("stsb-vectors", shared_data / "glue")
    assert score(fit(vectors), vectors)["spearman"] > 0.78


# --------------------------------------------------------------------------------- what a run keeps


def test_a_run_keeps_it_beside_its_scores(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    done = run(table, tmp_path / "run", tiny_tokenizer)
    baseline = done.baseline
    assert baseline is not None
    assert (baseline.rows, baseline.training_rows) == (120, 120)
    assert baseline.scores == score(fit(table), table)
    written = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert written.pop("baseline")["scores"] == baseline.scores
    assert written == done.scores == read_scores(tmp_path / "run" / "scores.json")
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"{baseline.scores['accuracy']:.4g}" in card
    assert baseline.name in card
    (row,) = compare_tasks([tmp_path / "run"])
    assert make_task_table([row]).rows[0][-1] == f"{100 * baseline.scores['accuracy']:.1f}"
    page = (write_run(tmp_path / "run")).read_text(encoding="utf-8")
    assert f"baseline: {baseline.scores['accuracy']:.3f}" in page
    assert baseline.name in page
    # It has learned the task after one pass, which the network has not.
    assert done.scores["accuracy"] < baseline.scores["accuracy"]
    names(
        next(line for line in log_messages if "the baseline (" in line),
        "accuracy",
        f"{baseline.scores['accuracy']:.4g}",
        "litebert fit",
    )


def test_advice_and_progress_suit_the_run(
    tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    """A table can be fitted in other ways, and --metric is the score to watch."""
    words = Tokenizer.load(tiny_tokenizer)
    recipe = load_recipe(str(recipe_file(tmp_path)))
    encoder = replace(recipe.encoder, vocab_size=words.vocab_size)
    save_hf(Pretrainer(replace(recipe, encoder=encoder)), words, tmp_path / "published")
    rows = write_table(tmp_path / "train.csv", 60)
    files = Table(rows, write_table(tmp_path / "dev.csv", 60, seed=1), metric="macro_f1")
    done = finetune(
        tmp_path / "published", files, tmp_path / "run", config(epochs=1, restart=False)
    )
    (advice,) = (line for line in log_messages if "the baseline (" in line)
    names(advice, "macro_f1", "litebert fit")
    line = [line for line in log_messages if "held-out" in line][-1]
    names(line, f"held-out macro f1 {done.scores['macro_f1']:.3g}")


@pytest.mark.thorough
def test_its_score_comes_before_hours_of_training(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    """Before the short runs, and once."""
    finetune(
        recipe_file(tmp_path),
        table,
        tmp_path / "run",
        config(epochs=12, choose=("rate",)),
        tokenizer=tiny_tokenizer,
    )
    first = "the baseline scores accuracy"
    places = [i for i, line in enumerate(log_messages) if line.startswith(first)]
    assert len(places) == 1
    later = [i for i, line in enumerate(log_messages) if "learning rate" in line]
    assert later
    assert places[0] < min(later)


def test_classes_are_weighed_as_scikit_learn_weighs_them(tmp_path: Path) -> None:
    """Its logits are those of `class_weight="balanced"`, for one of the penalties."""
    from sklearn.linear_model import LogisticRegression

    texts = [f"{'rare' if i % 10 == 0 else 'often'} {WORDS[i % 40]}" for i in range(100)]
    classes = ["b" if i % 10 == 0 or i % 25 == 1 else "a" for i in range(100)]
    path = write_rows(
        tmp_path / "train.csv", ("text", "label"), list(zip(texts, classes, strict=True))
    )
    files = Table(path, path)
    weighted = fit_baseline(files.task, files.read("train"), config(class_weights="balanced"))
    assert isinstance(weighted.model, models.LinearClasses)
    assert "weighted" in weighted.model.name
    matrix = weighted.model._features.transform([(text,) for text in texts])
    odds = np.diff(np.stack(weighted.logits(files.read("dev"))), axis=1)[:, 0]
    expected = [
        LogisticRegression(C=strength, class_weight="balanced", solver="liblinear", random_state=0)
        .fit(matrix, classes)
        .decision_function(matrix)
        for strength in models._STRENGTHS
    ]
    assert min(np.abs(odds - values).max() for values in expected) < 0.05
    plain = np.diff(np.stack(fit(files).logits(files.read("dev"))), axis=1)[:, 0]
    assert (odds > 0).sum() > (plain > 0).sum()
    assert min(np.abs(plain - values).max() for values in expected) > 0.2


def test_labels_are_weighed_too(tmp_path: Path) -> None:
    """A rare label is answered more often than without weights, and three classes are too."""
    for column, cell in (("labels", "c;a"), ("label", "c")):
        rows = [
            (f"{WORDS[i % 9]} {WORDS[20 + i % 7]}", cell if i % 9 == 0 and i % 2 else "ab"[i % 2])
            for i in range(126)
        ]
        path = write_rows(tmp_path / f"{column}.csv", ("text", "label"), rows)
        files = Table(path, path, **({"separator": ";"} if column == "labels" else {}))
        place = files.task.output.labels.index("c")
        odds = [
            np.stack(
                fit_baseline(files.task, files.read("train"), chosen).logits(files.read("dev"))
            )
            for chosen in (config(), config(class_weights="balanced"))
        ]
        assert (odds[1][::9, place] > odds[0][::9, place]).all()


@pytest.mark.thorough
def test_it_is_computed_once_whatever_interrupts(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(table, tmp_path / "whole", tiny_tokenizer)

    learn = models.LinearClasses._learn
    monkeypatch.setattr(models.LinearClasses, "_learn", kill)
    with pytest.raises(Killed):
        run(table, tmp_path / "cut", tiny_tokenizer)
    monkeypatch.setattr(models.LinearClasses, "_learn", learn)
    assert not (tmp_path / "cut" / "baseline.json").exists()
    with pytest.raises(Killed):
        run(table, tmp_path / "cut", tiny_tokenizer, on_step=kill_at(2))
    # From here on nothing is fitted again.
    monkeypatch.setattr(models.LinearClasses, "_learn", kill)
    run(table, tmp_path / "cut", tiny_tokenizer)
    same_files(
        tmp_path / "cut", tmp_path / "whole", "baseline.json", "model/README.md", "metrics.jsonl"
    )
    again = run(table, tmp_path / "whole", tiny_tokenizer)
    assert again.baseline == whole.baseline


def test_what_goes_wrong_in_it_stops_no_training(
    table: Table,
    tiny_tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log_messages: list[str],
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(models.LinearClasses, "_learn", fail)
    done = run(table, tmp_path / "run", tiny_tokenizer)
    assert done.outcome.finished
    assert done.baseline is None
    assert any("no room" in line for line in log_messages)


@pytest.mark.thorough
def test_seeds_share_it_and_it_can_be_left_out(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = []
    learn = models.LinearClasses._learn

    def note_and_learn(self: Any, *rest: Any) -> Any:
        learned.append(1)
        return learn(self, *rest)

    monkeypatch.setattr(models.LinearClasses, "_learn", note_and_learn)
    settings, encoder = config(epochs=0.5), recipe_file(tmp_path)
    runs = finetune_seeds(
        encoder, table, tmp_path / "two", settings, seeds=2, tokenizer=tiny_tokenizer
    )
    assert learned == [1]
    assert runs[0].baseline == runs[1].baseline == read_baseline(tmp_path / "two" / "seeds.json")
    bare = run(table, tmp_path / "bare", tiny_tokenizer, baseline=False)
    assert learned == [1]
    assert bare.baseline is None
    assert "baseline" not in json.loads((tmp_path / "bare" / "scores.json").read_text())
    assert make_task_table(compare_tasks([tmp_path / "bare"])).columns[-1] != "baseline"


def test_a_changed_file_is_named_and_advice_needs_a_better_baseline(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    file.write_text(json.dumps({"accuracy": 0.5, "baseline": {"name": "counts", "scores": 3}}))
    with refused(RunError, file):
        read_baseline(file)
    fields = {"name": "counts", "scores": {"accuracy": 0.75}, "rows": 10, "training_rows": 20}
    file.write_text(json.dumps({"accuracy": 0.5, "baseline": fields}))
    baseline = read_baseline(file)
    assert advise("accuracy", [0.8], baseline, 4000) is advise("f1", [0.1], baseline, 4000) is None
    assert advise("accuracy", [0.5], None, 4000) is None
    worse = advise("accuracy", [0.5], baseline, 4000) or ""
    names(worse, "0.75", "0.5", "10", "20", "counts")
    assert "--teacher" in worse
    for score in (0.7, 0.75, 0.8):
        level = advise("accuracy", [score], baseline, 40) or ""
        names(level, "level", "0.75", "40")
        assert "litebert fit" in (advise("accuracy", [score], baseline, 40, fits=True) or "")
        assert "better" not in level
