"""Runs that grow: a further budget on a finished run, a start from other weights, a new start in
the same folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from litebert.base.errors import ConfigError, DataError, ModelError, RunError
from litebert.config import ScheduleConfig
from litebert.tokenizer.training import train_tokenizer
from litebert.train import metrics, schedule
from litebert.train.measure import Rate
from toys.killed import Killed, kill_at
from toys.prepare import run as prepare
from toys.pretraining import ENCODER, config, pretrain, result
from toys.refusals import names, refused
from toys.typed import typed

pytestmark = pytest.mark.thorough


Run = Callable[..., tuple[int, str, str]]

RECIPE = f"""{ENCODER}
[train]
budget = "12 steps"
batch = "8 sequences"
precision = "float32"
save_every = "4 steps"
evaluate_every = "50%"
evaluate_sequences = 16
"""
POINT = config(
    encoder={"hidden_dropout": 0.1}, train={"save_every": "4 steps", "evaluate_every": "50%"}
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def words(recipe: Path, tiny_data: Path, tmp_path: Path) -> tuple[object, ...]:
    """A command that pretrains in two seconds."""
    return ("pretrain", recipe, "--shards", tiny_data, "--out", tmp_path / "run")


def steps_of(run: Path) -> int:
    return int(max((run / "checkpoints").glob("step-*")).name[5:])


# ---------------------------------------------------------------------------------------- extending


def test_a_finished_run_takes_a_further_budget_once(
    run: Run, words: tuple[object, ...], tmp_path: Path
) -> None:
    assert run(*words)[0] == 0
    status, _, err = run(*words, "--add-budget", "20 steps")
    assert status == 0
    names(next(line for line in err.splitlines() if "extended" in line), 12, 32)
    assert steps_of(tmp_path / "run") == 32
    before = result(tmp_path / "run")
    for again in (
        ("--add-budget", "20 steps"),
        (),
    ):  # the same command again, and that of the run itself
        assert run(*words, *again)[0] == 0
        assert result(tmp_path / "run") == before
    status, _, err = run(*words, "--add-budget", "7 steps")
    assert status == 2
    names(err.splitlines()[-1], tmp_path / "run", "20 steps", "--add-budget '20 steps' '7 steps'")
    assert run(*words, "--add-budget", "20 steps", "7 steps")[0] == 0
    assert steps_of(tmp_path / "run") == 39
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [extension["from_step"] for extension in facts["extensions"]] == [12, 32]
    rows = metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, 40))
    assert [row["step"] for row in rows if row["kind"] == "heldout"] == [6, 12, 22, 32, 36, 39]


def test_an_extension_that_was_killed_continues_bit_for_bit(
    tiny_data: Path, tmp_path: Path
) -> None:
    pretrain(POINT, tiny_data, tmp_path / "whole")
    for step in (13, 17, 24, 31):
        shutil.copytree(tmp_path / "whole", tmp_path / f"cut-{step}")
    pretrain(POINT, tiny_data, tmp_path / "whole", add_budget="20 steps")
    for cut in tmp_path.glob("cut-*"):
        with pytest.raises(Killed):
            pretrain(
                POINT, tiny_data, cut, add_budget="20 steps", on_step=kill_at(int(cut.name[4:]))
            )
        done = pretrain(POINT, tiny_data, cut, add_budget="20 steps")
        assert (done.steps, done.outcome.step) == (32, 32)
        assert result(cut) == result(tmp_path / "whole")


def test_a_time_is_measured_once_for_an_extension(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(POINT, tiny_data, tmp_path)
    monkeypatch.setattr("litebert.train.measure.measure", lambda *_: Rate(((1.0, 0.1),), 0.0))
    monkeypatch.setattr("litebert.train.loop.LOOK_EVERY", 1.0)
    with pytest.raises(Killed):
        pretrain(POINT, tiny_data, tmp_path, add_budget="3s", on_step=kill_at(20))
    monkeypatch.setattr("litebert.train.measure.measure", lambda *_: pytest.fail("measured again"))
    done = pretrain(POINT, tiny_data, tmp_path, add_budget="3s")
    assert done.outcome.finished
    assert 12 + 25 <= done.steps <= 12 + 30


@pytest.mark.parametrize("name", ["linear", "tf_linear", "product_linear", "cosine", "trapezoid"])
def test_the_rate_rises_from_where_it_was_to_that_of_a_longer_run(name: Any) -> None:
    law = ScheduleConfig(name=name, warmup=0.1)
    rates = [schedule.compute_extended_factor(law, step, (100, 300, 340)) for step in range(340)]
    assert rates[:100] == [schedule.compute_factor(law, step, 100) for step in range(100)]
    assert rates[110:300] == [schedule.compute_factor(law, step, 300) for step in range(110, 300)]
    assert rates[302:] == [schedule.compute_factor(law, step, 340) for step in range(302, 340)]
    rise = [rates[99], *rates[100:110]]
    assert rise == sorted(rise)
    assert rise[1] - rise[0] <= 0.11
    assert all(0 <= rate <= 1 for rate in rates)


def test_a_run_that_is_not_finished_is_not_extended(tiny_data: Path, tmp_path: Path) -> None:
    with refused(RunError, tmp_path / "run", "--add-budget"):
        pretrain(POINT, tiny_data, tmp_path / "run", add_budget="20 steps")
    with pytest.raises(Killed):
        pretrain(POINT, tiny_data, tmp_path / "run", on_step=kill_at(7))
    with refused(RunError, tmp_path / "run", "step 4 of 12", "--add-budget"):
        pretrain(POINT, tiny_data, tmp_path / "run", add_budget="20 steps")
    assert pretrain(POINT, tiny_data, tmp_path / "run").outcome.finished


@pytest.mark.parametrize("amount", ["soon", "10%", "-5m", ""])
def test_what_is_no_budget_is_no_extension(
    amount: str, run: Run, words: tuple[object, ...]
) -> None:
    assert run(*words)[0] == 0
    status, _, err = run(*words, f"--add-budget={amount}")
    assert status == 2
    names(err.splitlines()[-1], "--add-budget", "30m")


# ---------------------------------------------------------------------------- starting from weights


def test_a_run_starts_from_the_weights_of_another(
    run: Run, words: tuple[object, ...], tiny_data: Path, tmp_path: Path
) -> None:
    assert run(*words)[0] == 0
    source, new = tmp_path / "run", tmp_path / "new"
    slow = ("--train.optimizer.learning-rate", "1e-12", "--train.optimizer.weight-decay", "0")
    more = [
        *words[:-1],
        *typed("{} --from {} --budget '2 steps' --objectives mlm nsp", new, source),
        *slow,
    ]
    status, _, err = run(*more)
    assert status == 0, err
    names(next(line for line in err.splitlines() if "weights" in line), source, "nsp head")
    newest = [
        max((folder / "checkpoints").glob("step-*")) / "model.safetensors"
        for folder in (source, new)
    ]
    before, after = map(load_file, newest)
    for name in after:
        if name.startswith(("encoder.", "objectives.mlm.")):
            assert (after[name] - before[name]).abs().max() < 1e-9, name
    assert not any(name.startswith("objectives.sop.") for name in after)
    shutil.rmtree(source)  # it is not needed again
    assert run(*more)[0] == 0
    status, _, err = run(*(word for word in more if word not in ("--from", str(source))))
    assert status == 2
    names(err.splitlines()[-1], new, f"--from {source}")


def test_a_start_from_weights_that_was_killed_continues(tiny_data: Path, tmp_path: Path) -> None:
    source = pretrain(POINT, tiny_data, tmp_path / "source").folder
    pretrain(POINT, tiny_data, tmp_path / "whole", from_model=source)
    for step in (2, 6):  # before the first checkpoint, and after
        with pytest.raises(Killed):
            pretrain(POINT, tiny_data, tmp_path / "cut", from_model=source, on_step=kill_at(step))
    pretrain(POINT, tiny_data, tmp_path / "cut", from_model=source)
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


def test_weights_that_do_not_fit_are_refused_by_field_before_a_folder_is_made(
    tiny_data: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    source = pretrain(POINT, tiny_data, tmp_path / "source").folder
    wide = config(encoder={"intermediate_size": 64, "activation": "relu"})
    with refused(ModelError, source, "encoder.intermediate_size", 32, 64, "encoder.activation"):
        pretrain(wide, tiny_data, tmp_path / "run", from_model=source)
    tokenizer = train_tokenizer(
        tiny_corpus.read_text().split("\n\n")[:90], kind="unigram", vocab_size=300
    )
    tokenizer.save(tmp_path / "other")
    prepare(tiny_corpus, tmp_path / "data", tmp_path / "other")
    with refused(DataError, tmp_path / "data", source, "--tokenizer"):
        pretrain(POINT, tmp_path / "data", tmp_path / "run", from_model=source)
    with refused(ModelError, tmp_path / "none"):
        pretrain(POINT, tiny_data, tmp_path / "run", from_model=tmp_path / "none")
    assert not (tmp_path / "run" / "run.json").exists()


# ------------------------------------------------------------------------------------ starting anew


def test_a_run_is_started_anew_where_asked(
    run: Run, words: tuple[object, ...], tmp_path: Path
) -> None:
    assert run(*words)[0] == 0
    status, _, err = run(*words, "--encoder.layers", "3")
    assert status == 2
    names(
        err.splitlines()[-1],
        tmp_path / "run",
        "encoder.layers is 2 there and 3 here",
        "--overwrite",
    )
    status, _, err = run(*words, "--encoder.layers", "3", "--overwrite")
    assert status == 0
    names(
        next(line for line in err.splitlines() if "deleted" in line),
        tmp_path / "run",
        "checkpoints",
        "metrics.jsonl",
    )
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["encoder"]["layers"] == 3
    assert [
        row["step"]
        for row in metrics.read(tmp_path / "run" / "metrics.jsonl")
        if row["kind"] == "train"
    ] == list(range(1, 13))


def test_a_folder_that_is_no_run_is_never_deleted(
    run: Run, words: tuple[object, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    status, _, err = run(*words, "--overwrite")
    assert status == 2
    names(err.splitlines()[-1], folder, "thesis.txt")
    (folder / "thesis.txt").rename(tmp_path / "thesis.txt")
    assert run(*words)[0] == 0
    (folder / "notes.txt").write_text("kept")
    before = result(folder)
    status, _, err = run(*words, "--overwrite")
    assert status == 2
    names(err.splitlines()[-1], folder, "notes.txt")
    assert result(folder) == before


def test_a_mistake_deletes_nothing(tiny_data: Path, tmp_path: Path) -> None:
    pretrain(POINT, tiny_data, tmp_path / "run")
    before = result(tmp_path / "run")
    with refused(DataError, tmp_path / "none"):
        pretrain(POINT, tmp_path / "none", tmp_path / "run", overwrite=True)
    with refused(ModelError, tmp_path / "none"):
        pretrain(POINT, tiny_data, tmp_path / "run", overwrite=True, from_model=tmp_path / "none")
    with refused(ConfigError, "--overwrite", "--add-budget"):
        pretrain(POINT, tiny_data, tmp_path / "run", overwrite=True, add_budget="9 steps")
    assert result(tmp_path / "run") == before


def test_a_person_is_asked_before_a_run_is_deleted(
    run: Run, words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*words)[0] == 0
    before = result(tmp_path / "run")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console.input", lambda *_, **__: "no")
    assert run(*words, "--overwrite")[0] == 2
    assert result(tmp_path / "run") == before
    monkeypatch.setattr("rich.console.Console.input", lambda *_, **__: "y")
    assert run(*words, "--overwrite")[0] == 0


def test_a_fine_tuning_is_started_anew_and_another_is_refused_by_its_fields(
    run: Run, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("text,label\n" + "a,x\nb,y\n" * 20)
    words = typed(
        "finetune albert-tiny --from-scratch --tokenizer {} --task table --data {} "
        "--out {} --steps 2",
        tiny_tokenizer,
        tmp_path / "rows.csv",
        tmp_path / "run",
    )
    assert run(*words)[0] == 0
    other = ("--train.optimizer.learning-rate", "1e-4", "--train.batch", "4 sequences")
    status, _, err = run(*words, *other)
    assert status == 2
    fields = (
        "config.train.batch",
        "16 sequences",
        "4 sequences",
        "config.train.optimizer.learning_rate",
        "0.0001",
    )
    names(err.splitlines()[-1], tmp_path / "run", *fields, "--overwrite")
    status, _, err = run(*words, *other, "--overwrite")
    assert status == 0
    names(
        next(line for line in err.splitlines() if "deleted" in line),
        tmp_path / "run",
        "scores.json",
    )
    assert (
        json.loads((tmp_path / "run" / "finetune.json").read_text())["config"]["train"]["batch"]
        == "4 sequences"
    )
    (tmp_path / "run" / "notes.txt").write_text("kept")
    status, _, err = run(*words, "--overwrite")
    assert status == 2
    names(err.splitlines()[-1], tmp_path / "run", "notes.txt")
    assert (tmp_path / "run" / "scores.json").exists()


def test_weights_of_another_depth_are_taken_where_all_layers_use_the_same(
    tiny_data: Path, tmp_path: Path
) -> None:
    source = pretrain(config(encoder={"sharing": "all"}), tiny_data, tmp_path / "all").folder
    deeper = config(encoder={"sharing": "all", "layers": 3})
    assert pretrain(deeper, tiny_data, tmp_path / "deeper", from_model=source).outcome.finished
    groups = {"sharing": "groups", "groups": 2}
    source = pretrain(config(encoder=groups), tiny_data, tmp_path / "groups").folder
    with refused(ModelError, source, "encoder.layers", 2, 3):
        pretrain(
            config(encoder={**groups, "layers": 3}), tiny_data, tmp_path / "run", from_model=source
        )
