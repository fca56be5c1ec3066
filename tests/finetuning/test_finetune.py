"""Fine-tuning as a whole: it learns, resumes bit for bit, keeps the best, restarts what collapsed,
says so.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, r2_score
from sklearn.preprocessing import MultiLabelBinarizer

from litebert.analysis.compare_tasks import compare_tasks
from litebert.answer.evaluation import evaluate
from litebert.answer.model import load
from litebert.base.errors import ConfigError, DataError, ModelError, RunError
from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.initial import build_task_model, load_initial
from litebert.finetuning.trainable import compute_layer_rates
from litebert.judge.baselines import read_scores
from litebert.judge.seeds import describe_noise
from litebert.model.task_model import TaskModel
from litebert.tasks import table as table_module
from litebert.tasks.registry import open_task
from litebert.tasks.scoring import compute_logits, compute_network_logits
from litebert.tasks.text_outputs import Number
from litebert.tasks.texts import Example
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.loop import Loop
from toys.finetuning import config, finetune, finetune_seeds, recipe_file, same_files, write_table
from toys.killed import Killed, kill_at
from toys.refusals import names, refused
from toys.tasks import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(
        write_table(tmp_path / "train.csv", 300), write_table(tmp_path / "dev.csv", 80, seed=1)
    )


def run(
    table: Any, folder: Path, tokenizer: Path, settings: FinetuneConfig | None = None, **more: Any
) -> Any:
    return finetune(
        recipe_file(folder.parent), table, folder, settings or config(), tokenizer=tokenizer, **more
    )


def test_it_learns_and_leaves_a_folder_that_says_so(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    done = run(table, tmp_path / "run", tiny_tokenizer)
    assert done.outcome.finished
    assert done.scores["accuracy"] > 0.9
    assert read_scores(tmp_path / "run" / "scores.json") == done.scores
    names(next(line for line in log_messages if "%" in line), 300, "no", "yes")
    assert (tmp_path / "run" / "predictions" / "dev.csv").read_text().count("\n") == 81

    loaded = load(tmp_path / "run" / "model")
    assert isinstance(loaded.model, TaskModel)
    assert loaded.labels == ("no", "yes")
    assert (loaded.task["problem"], loaded.task["length"]) == ("classes", 32)
    examples = table.read("dev")
    assert loaded.tokenizer is not None
    items = table.encode(examples, loaded.tokenizer, 32)
    compute = partial(compute_network_logits, loaded.model, devices.choose("float32", "cpu"))
    logits = compute_logits(compute, items, table.output, loaded.tokenizer.pad_id)
    assert table.score(examples, table.answers(examples, items, logits)) == done.scores

    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    best = max(row["accuracy"] for row in rows if row["kind"] == "heldout")
    assert done.scores["accuracy"] == best


@pytest.mark.thorough
def test_the_same_call_returns_what_is_finished(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    first = run(table, tmp_path / "run", tiny_tokenizer)
    written = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "run").rglob("*.*")
        if path.name != ".lock"
    }
    again = run(table, tmp_path / "run", tiny_tokenizer)
    assert again == first
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())


def test_a_score_that_is_no_number_chooses_nothing(tiny_tokenizer: Path, tmp_path: Path) -> None:
    calls: list[int] = []

    class Strange(table_module.Table):
        """Its score is undefined at first, as a correlation with answers that are all alike is."""

        def score(self, examples: Any, answers: Any) -> dict[str, float]:
            calls.append(1)
            return super().score(examples, answers) | (
                {"accuracy": math.nan} if len(calls) == 1 else {}
            )

    train = write_table(tmp_path / "train.csv", 300)
    dev = write_table(tmp_path / "dev.csv", 80, seed=1)
    table = Table(train, dev, task_class=Strange)
    done = run(table, tmp_path / "run", tiny_tokenizer)
    assert len(calls) > 2
    assert done.scores["accuracy"] > 0.9


def test_files_hold_null_for_a_score_that_is_no_number(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    class Undefined(table_module.Table):
        def score(self, examples: Any, answers: Any) -> dict[str, float]:
            return {**super().score(examples, answers), "accuracy": math.nan}

    def strict(path: Path) -> Any:
        return json.loads(
            path.read_text(), parse_constant=lambda name: pytest.fail(f"{path} holds {name}")
        )

    train = write_table(tmp_path / "train.csv", 40)
    dev = write_table(tmp_path / "dev.csv", 20, seed=1)
    table = Table(train, dev, task_class=Undefined)
    encoder, out = recipe_file(tmp_path), tmp_path / "run"
    runs = finetune_seeds(encoder, table, out, config(epochs=1), seeds=2, tokenizer=tiny_tokenizer)
    assert all(math.isnan(run.scores["accuracy"]) and run.scores["macro_f1"] >= 0 for run in runs)
    written = [path for path in out.rglob("*.json") if path.name != "tokenizer.json"]
    contents = {path.name: strict(path) for path in written}
    assert (
        contents["scores.json"]["accuracy"]
        is contents["seeds.json"]["scores"][0]["accuracy"]
        is None
    )
    assert "accuracy" not in contents["seeds.json"]["summary"]
    assert "accuracy" in describe_noise("accuracy", [run.scores["accuracy"] for run in runs])
    (row,) = compare_tasks([out])
    assert row.metric == "accuracy"
    assert all(map(math.isnan, row.scores))


@pytest.mark.thorough
def test_killed_and_started_again_it_ends_with_the_same_bits(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    settings = config(epochs=2, dropout=0.1)
    whole = run(table, tmp_path / "whole", tiny_tokenizer, settings)
    for number, instants in enumerate(([1, 9, 38], [5, 20, 21])):
        cut = tmp_path / f"cut-{number}"
        for instant in instants:
            with pytest.raises(Killed):
                run(table, cut, tiny_tokenizer, settings, on_step=kill_at(instant))
        done = run(table, cut, tiny_tokenizer, settings)
        assert done.scores == whole.scores
        same_files(cut, tmp_path / "whole", "metrics.jsonl")


@pytest.mark.parametrize("labels", [("no", "yes"), ("1.5", "-1.5")])
def test_rows_weigh_in_the_loss_and_in_the_baseline(
    tiny_tokenizer: Path, tmp_path: Path, labels: tuple[str, str]
) -> None:
    """As many rows with the opposite label hardly count, or do not count at all."""
    right = write_table(tmp_path / "a.csv", 150, labels=labels).read_text().splitlines()[1:]
    wrong = write_table(tmp_path / "b.csv", 150, 7, labels).read_text().splitlines()[1:]
    swapped = dict(zip(labels, labels[::-1], strict=True))
    rows = ["text,label,sure", *(f"{row},50" for row in right)]
    for number, row in enumerate(wrong):
        text, label = row.rsplit(",", 1)
        rows.append(f"{text},{swapped[label]},{number % 2}")
    (tmp_path / "train.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    dev = write_table(tmp_path / "dev.csv", 80, 1, labels)
    files = open_task("table", tmp_path / "train.csv", dev=dev, weight_column="sure")
    done = run(files, tmp_path / "run", tiny_tokenizer, config(epochs=12))
    metric = files.task.metric
    assert done.scores[metric] > 0.7
    assert done.baseline is not None
    assert done.baseline.scores[metric] > 0.7
    assert done.baseline.rows == 225
    other = open_task("table", tmp_path / "train.csv", dev=dev)
    with refused(RunError, tmp_path / "run"):
        run(other, tmp_path / "run", tiny_tokenizer, config(epochs=12))


def test_a_run_stops_where_its_score_no_longer_rises(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    settings = config(epochs=30, patience=2)
    settings = replace(settings, train=replace(settings.train, evaluate_every="7 steps"))
    done = run(table, tmp_path / "run", tiny_tokenizer, settings)
    assert done.outcome.finished
    rows = metrics.read(tmp_path / "run" / "metrics.jsonl")
    scores = [row["accuracy"] for row in rows if row["kind"] == "heldout"]
    best = scores.index(max(scores))
    assert len(scores) == best + 3  # two evaluations after the best
    assert done.outcome.step == 7 * len(scores) < done.steps
    assert done.scores["accuracy"] == max(scores)
    assert any("no longer rises" in message for message in log_messages)

    def stop(loop: Loop[Any]) -> None:
        if loop.step == done.outcome.step - 1:
            raise KeyboardInterrupt

    # Killed before its end, it ends at the same step; and the same command finds it finished.
    with pytest.raises(KeyboardInterrupt):
        run(table, tmp_path / "killed", tiny_tokenizer, settings, on_step=stop)
    for _ in range(2):
        again = run(table, tmp_path / "killed", tiny_tokenizer, settings)
        assert (again.outcome.step, again.scores) == (done.outcome.step, done.scores)
    weights = [(tmp_path / name / "best.safetensors").read_bytes() for name in ("run", "killed")]
    assert weights[0] == weights[1]


def test_a_model_that_cannot_be_opened_deletes_nothing(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    run(table, tmp_path / "run", tiny_tokenizer, config(epochs=1))
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    with refused(ModelError, "typo"):
        finetune("typo", table, tmp_path / "run", config(epochs=1), overwrite=True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


@pytest.mark.parametrize("several", [False, True])
def test_labels_that_the_model_does_not_know_score_as_in_scikit_learn(
    tiny_tokenizer: Path, tmp_path: Path, several: bool
) -> None:
    """Each is a class of its own, in --test and in `evaluate`."""
    more = {"separator": "+"} if several else {}
    train = write_table(tmp_path / "train.csv", 150)
    strange = ["kitchen", "parking", "parking", "pets+yes" if several else "pets"]
    with open(write_table(tmp_path / "test.csv", 40, 1), "a", encoding="utf-8") as file:
        file.writelines(f"bado kumi {i},{label}\n" for i, label in enumerate(strange))
    files = open_task("table", train, test=tmp_path / "test.csv", **more)
    done = run(files, tmp_path / "run", tiny_tokenizer, config(epochs=3, restart=False))
    with open(tmp_path / "test.csv", encoding="utf-8") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    with open(tmp_path / "run" / "predictions" / "test.csv", encoding="utf-8") as file:
        answers = [row["prediction"] for row in csv.DictReader(file)]
    if several:
        binarizer = MultiLabelBinarizer().fit([label.split("+") for label in labels])
        right, given = (
            binarizer.transform([[name for name in cell.split("+") if name] for cell in cells])
            for cells in (labels, answers)
        )
        wanted = {
            f"{average}_f1": f1_score(right, given, average=average, zero_division=0)
            for average in ("micro", "macro")
        } | {"exact": accuracy_score(right, given)}
    else:
        wanted = {
            "accuracy": accuracy_score(labels, answers),
            "macro_f1": f1_score(labels, answers, average="macro"),
            "matthews": matthews_corrcoef(labels, answers),
        }
    measured = evaluate(tmp_path / "run", data=tmp_path / "test.csv", mistakes=50)
    for name, value in wanted.items():
        assert done.scores[f"test_{name}"] == pytest.approx(value)
        assert measured.scores[name] == pytest.approx(value)
    assert len(measured.mistakes) >= 4
    shown = {mistake.label for mistake in measured.mistakes}
    assert "unknown to the model" in shown
    assert not several or "yes, unknown to the model" in shown
    assert set(measured.classes) == {"no", "yes"}
    (tmp_path / "other.csv").write_text("text,label\na,x\nb,y\n", encoding="utf-8")
    with refused(DataError, tmp_path / "other.csv", "'x'"):
        evaluate(tmp_path / "run", data=tmp_path / "other.csv")


def test_numbers_in_the_predictions_are_those_that_are_scored(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    rows = [
        (f"{'very ' * (k := int(draw.integers(7)))}good {i}", 1e7 + k + 0.5) for i in range(160)
    ]
    path = tmp_path / "big.csv"
    path.write_text("text,label\n" + "".join(f"{text},{y}\n" for text, y in rows), encoding="utf-8")
    done = run(open_task("table", path), tmp_path / "run", tiny_tokenizer, config(epochs=6))
    with open(tmp_path / "run" / "predictions" / "dev.csv", encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    right = [rows[int(row["line"]) - 2][1] for row in answers]
    written = [float(row["prediction"]) for row in answers]
    assert r2_score(right, written) == pytest.approx(done.scores["r2"], abs=1e-6)


def test_a_run_that_collapses_starts_once_more(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    settings = config(rate=1e-12, epochs=0.5)
    done = run(table, tmp_path / "run", tiny_tokenizer, settings)
    assert done.collapsed
    assert sum("3.3e-13" in line for line in log_messages) == 1
    names(next(line for line in log_messages if "3.3e-13" in line), "3.3e-13", "collapsed/")
    events = [
        row["message"]
        for row in metrics.read(tmp_path / "run" / "metrics.jsonl")
        if row["kind"] == "event"
    ]
    assert sorted(set(events)) == sorted(events)
    assert sum("one and the same answer" in event for event in events) == 2, (
        "the restart and the second collapse"
    )
    assert any("were cut" in event for event in events), "what was noted while the table was read"
    assert (tmp_path / "run" / "collapsed" / "scores.json").exists()
    again = run(table, tmp_path / "run", tiny_tokenizer, settings)
    assert again.scores == done.scores
    alone = run(table, tmp_path / "alone", tiny_tokenizer, replace(settings, restart=False))
    assert alone.collapsed
    assert not (tmp_path / "alone" / "collapsed").exists()


def test_numbers_of_any_size_are_learned(tiny_tokenizer: Path, tmp_path: Path) -> None:
    for name, rows, seed in (("train", 300, 0), ("dev", 60, 1)):
        text = write_table(tmp_path / f"{name}.csv", rows, seed).read_text()
        text = text.replace(",no\n", ",25000.5\n").replace(",yes\n", ",27000.25\n")
        (tmp_path / f"{name}.csv").write_text(text)
    table = Table(tmp_path / "train.csv", tmp_path / "dev.csv")
    assert table.output == Number()
    done = run(table, tmp_path / "run", tiny_tokenizer)
    assert done.scores["r2"] > 0.6
    written = [
        float(row) for row in (tmp_path / "run" / "predictions" / "dev.csv").read_text().split()[1:]
    ]
    assert 24000 < min(written) < 25800 < 26200 < max(written) < 28000
    loaded = load(tmp_path / "run" / "model")  # its head gives the numbers themselves
    assert isinstance(loaded.model, TaskModel)
    assert loaded.tokenizer is not None
    items = table.encode([Example(table.read("dev")[0].text)], loaded.tokenizer, 32)
    row = items[0].rows[0]
    with torch.no_grad():
        number = loaded.model(torch.tensor(row.ids[None].astype(np.int64)), None, None).item()
    assert number == pytest.approx(written[0], rel=1e-4)


def test_numbers_far_from_zero_keep_their_differences(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """In float32 all of them would be one number."""
    for name, rows, seed in (("train", 300, 0), ("dev", 60, 1)):
        text = write_table(tmp_path / f"{name}.csv", rows, seed).read_text()
        text = text.replace(",no\n", ",1000000003\n").replace(",yes\n", ",1000000005\n")
        (tmp_path / f"{name}.csv").write_text(text)
    files = open_task("table", tmp_path / "train.csv", dev=tmp_path / "dev.csv", target="number")
    done = run(files, tmp_path / "run", tiny_tokenizer)
    assert done.scores["r2"] > 0.6
    assert done.baseline is not None
    assert done.baseline.scores["r2"] > 0.6
    assert evaluate(tmp_path / "run", data=tmp_path / "dev.csv").scores["r2"] == pytest.approx(
        done.scores["r2"], abs=1e-3
    )
    taught = tmp_path / "taught"
    learned = finetune(
        *(recipe_file(tmp_path), files, taught, config()),
        tokenizer=tiny_tokenizer,
        teacher="baseline",
    )
    assert learned.scores["r2"] > 0.6


@pytest.mark.thorough
def test_scores_of_a_run_in_bfloat16_are_those_of_the_saved_model(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    settings = config(epochs=0.5)
    settings = replace(settings, train=replace(settings.train, precision="bfloat16"))
    run(table, tmp_path / "run", tiny_tokenizer, settings)
    written = (tmp_path / "run" / "predictions" / "dev.csv").read_text().splitlines()[1:]
    answers = load(tmp_path / "run").predict([example.text for example in table.read("dev")])
    for line, answer in zip(written, answers, strict=True):
        prediction, *likely = line.split(",")
        assert prediction == answer["prediction"]
        assert [float(p) for p in likely] == pytest.approx(
            list(answer["probabilities"].values()), abs=5e-6
        )


def test_a_finished_run_without_its_checkpoints_is_finished(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    first = run(table, tmp_path / "run", tiny_tokenizer, config(epochs=0.5))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    again = run(table, tmp_path / "run", tiny_tokenizer, config(epochs=0.5))
    assert again.outcome.finished
    assert again.scores == first.scores
    assert not (tmp_path / "run" / "checkpoints").exists(), "nothing was trained"


def test_another_run_in_the_folder_is_refused(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    run(table, tmp_path / "run", tiny_tokenizer, config(epochs=0.5))
    with refused(RunError, tmp_path / "run", "config", "--out"):
        run(table, tmp_path / "run", tiny_tokenizer, config(epochs=1))
    other = Table(write_table(tmp_path / "other.csv", 300, seed=5), tmp_path / "dev.csv")
    with refused(RunError, tmp_path / "run", "data fingerprint", "--out"):
        run(other, tmp_path / "run", tiny_tokenizer, config(epochs=0.5))
    judged = Table(tmp_path / "train.csv", write_table(tmp_path / "judged.csv", 80, seed=6))
    with refused(RunError, tmp_path / "run", "data fingerprint", "--out"):
        run(judged, tmp_path / "run", tiny_tokenizer, config(epochs=0.5))
    chosen = Table(tmp_path / "train.csv", tmp_path / "dev.csv", metric="matthews")
    with refused(RunError, tmp_path / "run", "metric", "--out"):
        run(chosen, tmp_path / "run", tiny_tokenizer, config(epochs=0.5))
    # The rule that holds rows out may have changed, where no dev part is given.
    held = Table(tmp_path / "train.csv")
    run(held, tmp_path / "held", tiny_tokenizer, config(epochs=0.5))
    identity = tmp_path / "held" / "finetune.json"
    record = json.loads(identity.read_text())
    identity.write_text(json.dumps({**record, "data_fingerprint": "0", "dev_fingerprint": "0"}))
    with refused(RunError, tmp_path / "held", "an earlier litebert made it", "--overwrite"):
        run(held, tmp_path / "held", tiny_tokenizer, config(epochs=0.5))
    with pytest.raises(RunError) as error:
        run(held, tmp_path / "held", tiny_tokenizer, config(epochs=1))
    assert "earlier" not in str(error.value)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("x")
    with refused(RunError, tmp_path / "foreign", "thesis.tex", "--out"):
        run(table, tmp_path / "foreign", tiny_tokenizer)
    with refused(RunError, tmp_path / "train.csv", "--out"):
        run(table, tmp_path / "train.csv", tiny_tokenizer)


def test_what_cannot_be_started(table: Table, tiny_tokenizer: Path, tmp_path: Path) -> None:
    with refused(ConfigError, "albert-tiny", "--tokenizer"):
        finetune("albert-tiny", table, tmp_path / "run", config())
    with refused(ConfigError, "learning_rate", -1):
        config(rate=-1)
    files: Any = table.opened
    files.task = dataclasses.replace(table.task, dev=())
    with refused(DataError, "table", "dev"):
        run(table, tmp_path / "run", tiny_tokenizer)


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({"length": 4}, [8]),
        ({"epochs": 0}, []),
        ({"steps": -1}, []),
        ({"dropout": 1.0}, []),
        ({"head_dropout": -0.5}, []),
        ({"layer_decay": 0.0}, [1]),
    ],
)
def test_impossible_settings(changes: dict[str, Any], limits: list[int]) -> None:
    with refused(ConfigError, *changes, *changes.values(), *limits):
        FinetuneConfig(**changes)


def test_rates_fall_from_the_head_down(tiny_tokenizer: Path, tmp_path: Path) -> None:
    unshared = recipe_file(tmp_path, 'sharing = "none"\n')
    task = Table(write_table(tmp_path / "train.csv", 20), tmp_path / "train.csv")
    model = build_task_model(load_initial(unshared, tiny_tokenizer), task, config())
    rates = compute_layer_rates(model, 0.5)
    assert rates["head.classifier.weight"] == rates["encoder.pooler.weight"] == 1.0
    assert (
        rates["encoder.attention.1.qkv.weight"] == rates["encoder.feedforward.1.norm.bias"] == 0.5
    )
    assert rates["encoder.attention.0.qkv.weight"] == 0.25
    assert (
        rates["encoder.embedding.word.weight"] == rates["encoder.embedding.project.weight"] == 0.125
    )
    assert set(rates) == {name for name, _ in model.named_parameters()}
    assert set(compute_layer_rates(model, 1.0).values()) == {1.0}


def test_layer_decay_slows_the_lower_layers(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    settings = config(epochs=0.5, layer_decay=1e-6)
    done = run(table, tmp_path / "run", tiny_tokenizer, settings)
    before = build_task_model(
        load_initial(recipe_file(tmp_path), tiny_tokenizer), table, settings
    ).state_dict()
    after = load(done.folder / "model").model.state_dict()
    moved = {name: float((after[name] - tensor).abs().max()) for name, tensor in before.items()}
    assert moved["head.classifier.weight"] > 1e-3
    assert moved["encoder.embedding.word.weight"] < 1e-6
    assert math.isfinite(sum(moved.values()))
