"""The folder of a fine-tuning run: what it refuses, what it goes on with, what collapses, what is
said of labels.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError

from litebert.base.errors import ConfigError, RunError
from litebert.base.registry import OUTPUTS
from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.setup import change_config, describe_balance
from litebert.recipes.finetuning import finetune_preset
from litebert.tasks import table as table_module
from litebert.tasks.outputs import Output
from litebert.tasks.scoring import has_one_answer
from litebert.tasks.values import EncodedPart, Item, TaskBatch
from litebert.train.loop import Loop
from litebert.train.metrics import read
from toys.finetuning import config, finetune, finetune_seeds, recipe_file, write_table
from toys.killed import leave_unfinished
from toys.refusals import names, refused
from toys.tasks import Table

pytestmark = pytest.mark.thorough


def files(folder: Path, **changes: Path) -> dict[str, Any]:
    made = {
        "train": write_table(folder / "train.csv", 60),
        "dev": write_table(folder / "dev.csv", 20, seed=1),
    }
    return made | changes


def run(
    files: dict[str, Any],
    out: Path,
    tokenizer: Path,
    settings: FinetuneConfig | None = None,
    **more: Any,
) -> Any:
    settings = settings or config(epochs=1)
    return finetune(
        recipe_file(out.parent), Table(**files), out, settings, tokenizer=tokenizer, **more
    )


# ---------------------------------------------------------------------------------------- which run


def test_what_a_kill_leaves_at_the_very_start_is_no_foreign_file(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    left = leave_unfinished(tmp_path / "run" / "finetune.json")
    assert run(files(tmp_path), tmp_path / "run", tiny_tokenizer).outcome.finished
    assert not left.exists()


def test_a_folder_of_other_things_is_refused_before_anything_is_read(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    class Unread(Table):
        def read(self, split: str, notes: Any = None) -> Any:
            raise AssertionError("it was read")

    place = tmp_path / "thesis"
    place.mkdir()
    (place / "chapter.tex").write_text("precious")
    table = Unread(**files(tmp_path))
    with refused(RunError, place, "chapter.tex"):
        finetune(recipe_file(tmp_path), table, place, config(), tokenizer=tiny_tokenizer)
    assert [path.name for path in place.iterdir()] == ["chapter.tex"]


def test_other_labels_or_another_test_part_are_another_run(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    parts = files(tmp_path)
    run(parts, tmp_path / "run", tiny_tokenizer)
    test = write_table(tmp_path / "test.csv", 10, seed=2)
    with refused(RunError, tmp_path / "run", "litebert predict"):
        run(parts | {"test": test}, tmp_path / "run", tiny_tokenizer)
    for path in parts.values():
        path.write_text(path.read_text().replace(",no\n", ",nein\n"))
    with refused(RunError, tmp_path / "run", "data fingerprint", "--out"):
        run(parts, tmp_path / "run", tiny_tokenizer)


def test_a_dev_part_of_the_same_tokens_and_other_text_is_another_run(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    parts = files(tmp_path)
    run(parts, tmp_path / "run", tiny_tokenizer)
    rows = parts["dev"].read_text().splitlines()
    parts["dev"].write_text("\n".join([rows[0], rows[1].replace(" ", "  "), *rows[2:], ""]))
    with refused(RunError, tmp_path / "run", "dev fingerprint", "--out"):
        run(parts, tmp_path / "run", tiny_tokenizer)


def test_a_kill_while_a_collapsed_run_is_set_aside_loses_nothing(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    settings = replace(config(epochs=1), restart=False)
    place = tmp_path / "run"
    run(files(tmp_path), place, tiny_tokenizer, settings)
    before = {path.name for path in place.iterdir() if path.name[0] != "."}
    (place / ".collapsed").mkdir()
    # The first that is moved, and a kill.
    (place / "finetune.json").rename(place / ".collapsed" / "finetune.json")
    assert run(files(tmp_path), place, tiny_tokenizer, settings).restarted
    assert {path.name for path in (place / "collapsed").iterdir()} == before
    events = [row["message"] for row in read(place / "metrics.jsonl") if row["kind"] == "event"]
    assert sum("collapsed/" in message for message in events) == 1


def test_a_collapsed_run_belongs_to_its_folder(tiny_tokenizer: Path, tmp_path: Path) -> None:
    dead = config(rate=1e-12, epochs=0.5)
    done = run(files(tmp_path), tmp_path / "run", tiny_tokenizer, dead)
    assert (done.collapsed, done.restarted) == (True, True)
    (tmp_path / "run" / "finetune.json").unlink()
    for path in list((tmp_path / "run").iterdir()):
        if path.name not in ("collapsed", ".lock"):
            path.rename(tmp_path / path.name)
    with refused(RunError, tmp_path / "run", "config", "--out"):
        run(files(tmp_path), tmp_path / "run", tiny_tokenizer, config(epochs=1))


def test_a_full_disk_is_one_sentence_and_the_run_goes_on(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, tensors: Any, facts: Any) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    parts = files(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("litebert.finetuning.trainable.write_tensors", full)
        with refused(RunError, tmp_path / "run" / "best.safetensors", "No space left on device"):
            run(parts, tmp_path / "run", tiny_tokenizer)
    assert not [path for path in (tmp_path / "run").iterdir() if "best" in path.name]
    assert run(parts, tmp_path / "run", tiny_tokenizer).outcome.finished


# -------------------------------------------------------------------------------- signals and seeds


def test_a_signal_in_the_last_step_stops_the_seeds(tiny_tokenizer: Path, tmp_path: Path) -> None:
    def stop(loop: Loop[TaskBatch]) -> None:
        if loop.step == loop.steps:
            os.kill(os.getpid(), signal.SIGTERM)

    # So that it does not collapse.
    parts = files(tmp_path, train=write_table(tmp_path / "more.csv", 300))

    def call(**more: Any) -> Any:
        return finetune_seeds(
            recipe_file(tmp_path),
            Table(**parts),
            tmp_path / "out",
            config(epochs=3),
            seeds=2,
            tokenizer=tiny_tokenizer,
            **more,
        )

    (first,) = call(on_step=stop)
    assert first.outcome.signal == signal.SIGTERM
    assert not (tmp_path / "out" / "seed-1").exists()
    again, _ = call()
    assert again.scores == first.scores


def test_seeds_share_what_was_read(
    tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    encoded: list[int] = []

    class Counted(table_module.Table):
        def encode(self, examples: Sequence[Any], *arguments: Any) -> list[Item]:
            if len(examples) in (60, 20):  # the parts, and not texts whose words are explained
                encoded.append(len(examples))
            return super().encode(examples, *arguments)

    table = Table(**files(tmp_path), task_class=Counted)
    finetune_seeds(
        recipe_file(tmp_path),
        table,
        tmp_path / "out",
        config(epochs=0.5),
        seeds=3,
        tokenizer=tiny_tokenizer,
    )
    assert len(encoded) == 2
    assert sum(line.startswith("60 ") for line in log_messages) == 1


def test_seeds_do_not_go_into_the_folder_of_one_run(tiny_tokenizer: Path, tmp_path: Path) -> None:
    parts = files(tmp_path)
    run(parts, tmp_path / "run", tiny_tokenizer)
    with refused(RunError, tmp_path / "run", "--out", 2):
        finetune_seeds(
            recipe_file(tmp_path),
            Table(**parts),
            tmp_path / "run",
            config(),
            seeds=2,
            tokenizer=tiny_tokenizer,
        )


# ----------------------------------------------------------------------------------------- how long


def test_epochs_and_steps_give_way_to_one_another() -> None:
    paper = finetune_preset("albert", "cola")
    assert (paper.steps, paper.train.schedule.warmup) == (5336, 320)
    for changes in ({"epochs": 2.0}, {"steps": 50}):
        changed = change_config(paper, partial(replace, **changes))
        assert changed.steps == changes.get("steps", 0)
        assert changed.train.schedule.warmup == pytest.approx(320 / 5336)
    assert change_config(paper, lambda config: config) == paper
    with refused(ConfigError, "epochs", "steps"):
        change_config(paper, partial(replace, epochs=2.0, steps=9))


def test_a_warm_up_longer_than_the_run_is_refused(tiny_tokenizer: Path, tmp_path: Path) -> None:
    settings = config(epochs=1)
    schedule = replace(settings.train.schedule, warmup=320)
    with refused(ConfigError, "train.schedule.warmup", 320, 4):
        run(
            files(tmp_path),
            tmp_path / "run",
            tiny_tokenizer,
            replace(settings, train=replace(settings.train, schedule=schedule)),
        )


# ----------------------------------------------------------------------------- collapse and balance


def part(targets: Sequence[Any]) -> EncodedPart:
    return EncodedPart("dev", [], [Item(i, (), target) for i, target in enumerate(targets)])


def output(problem: str, *labels: str) -> Output:
    made: Output = OUTPUTS[problem](labels)
    return made


ALIKE: dict[str, tuple[Any, Any, Any]] = {
    "classes": (
        [0, 1, 1],
        [[1.0, 0.0], [3.0, 2.0], [1.0, 0.5]],
        [[1.0, 0.0], [1.0, 2.0], [1.0, 0.5]],
    ),
    "labels": ([(0, 1), (1, 1)], [[-1.0, 1.0], [-2.0, 0.5]], [[-1.0, 1.0], [2.0, 0.5]]),
    "number": ([1.0, 2.0, 3.0], [[2.0], [2.0], [2.0]], [[2.0], [2.1], [2.0]]),
    "tokens": (
        [np.array([0, -100]), np.array([1])],
        [[[2.0, 1.0], [0.0, 9.0]], [[1.0, 0.0]]],
        [[[2.0, 1.0], [9.0, 0.0]], [[0.0, 1.0]]],
    ),
}


@pytest.mark.parametrize("problem", ALIKE)
def test_one_answer_to_everything_is_found(problem: str) -> None:
    targets, alike, different = ALIKE[problem]
    for logits, is_alike in ((alike, True), (different, False)):
        arrays = [np.array(logit, np.float32) for logit in logits]
        assert has_one_answer(output(problem, "a", "b"), part(targets), arrays) is is_alike
        same = (
            part([targets[0]] * len(targets))
            if problem != "tokens"
            else part([np.array([0, 0]), np.array([0])])
        )
        assert not has_one_answer(output(problem, "a", "b"), same, arrays), (
            "where the truth is alike too, there is nothing to find"
        )


def test_what_is_said_of_labels() -> None:
    def describe(problem: str, labels: Sequence[str], targets: Sequence[Any]) -> str:
        return describe_balance(output(problem, *labels), targets) or ""

    names(describe("classes", ("no", "yes"), [0, 0, 1, 0]), 4, "no 75.0%", "yes 25.0%")
    names(describe("labels", ("a", "b"), [(1, 1), (0, 1)]), 2, "a 50.0%", "b 100.0%")
    tags = [np.array([0, -100, 1]), np.array([0, 0])]
    names(describe("tokens", ("O", "B-X"), tags), 4, "O 75.0%", "B-X 25.0%")
    assert describe_balance(output("number"), [1.0]) is None
    many = describe("classes", [str(i) for i in range(12)], [*range(12), 3])
    names(many, 13, "3 15.4%, 0 7.7%, 1 7.7%")
    names(many.partition("9 7.7%")[2], 2, "7.69%")
