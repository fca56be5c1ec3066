"""Choices that a run makes for itself: length, batch, epochs and rate; said once, recorded, and
kept when it continues.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.base.errors import RunError
from litebert.cli import main
from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.trials import RATES, choose_rate, list_rates, split_held_out
from litebert.judge.baselines.models import split_folds
from litebert.recipes.finetuning import finetune_preset
from litebert.tasks.rows import number_groups
from litebert.tasks.values import Item
from litebert.tokenizer import Tokenizer
from toys.finetuning import (
    config,
    finetune,
    finetune_seeds,
    recipe_file,
    same_files,
    write_table,
)
from toys.killed import Killed, kill_at
from toys.refusals import names, refused
from toys.tasks import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(
        write_table(tmp_path / "train.csv", 60), write_table(tmp_path / "dev.csv", 20, seed=1)
    )


def run(
    table: Table, out: Path, tokenizer: Path, settings: FinetuneConfig | None = None, **more: Any
) -> Any:
    return finetune(recipe_file(out.parent), table, out, settings, tokenizer=tokenizer, **more)


def read_record(out: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((out / "finetune.json").read_text())
    return record


@pytest.mark.thorough
def test_the_command_line_chooses_what_python_chooses(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    run(table, tmp_path / "python", tiny_tokenizer)
    parts = (
        "--data",
        tmp_path / "train.csv",
        "--dev",
        tmp_path / "dev.csv",
        "--tokenizer",
        tiny_tokenizer,
    )
    words = (
        "finetune",
        tmp_path / "small.toml",
        "--task",
        "table",
        *parts,
        "--out",
        tmp_path / "typed",
    )
    assert main([str(word) for word in words]) == 0
    chosen = read_record(tmp_path / "python")["config"]
    assert chosen == read_record(tmp_path / "typed")["config"]
    assert chosen["epochs"] > finetune_preset("small", "table").epochs, (
        "few rows are read more often"
    )


def test_what_is_given_is_not_chosen(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    parts = (
        "--data",
        tmp_path / "train.csv",
        "--dev",
        tmp_path / "dev.csv",
        "--tokenizer",
        tiny_tokenizer,
    )
    options = (
        "--epochs",
        1,
        "--train.batch",
        "12 sequences",
        "--train.optimizer.learning_rate=7e-4",
        "--length",
        40,
    )
    words = (
        "finetune",
        recipe_file(tmp_path),
        "--task",
        "table",
        *parts,
        "--out",
        tmp_path / "run",
        *options,
    )
    assert main([str(word) for word in words]) == 0
    record = read_record(tmp_path / "run")
    assert record["chosen"] == []
    assert not [line for line in log_messages if "held-out training rows" in line]
    settings = record["config"]
    assert (settings["epochs"], settings["length"], settings["train"]["batch"]) == (
        1,
        40,
        "12 sequences",
    )
    assert settings["train"]["optimizer"]["learning_rate"] == 7e-4


def test_long_texts_are_read_as_long_as_the_positions_allow(
    tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    with open(tmp_path / "train.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        texts = [" ".join(["bado kumi"] * (2 + 2 * number)) for number in range(40)]
        rows.writerows([text, "no" if number % 2 else "yes"] for number, text in enumerate(texts))
    table = Table(tmp_path / "train.csv", tmp_path / "train.csv")
    words = Tokenizer.load(tiny_tokenizer)
    lengths = sorted(len(ids) + 2 for ids in words.encode(texts))
    settings = config(epochs=0.5, choose=("length",))

    longer = tmp_path / "longer.toml"
    longer.write_text(
        recipe_file(tmp_path).read_text().replace("max_positions = 64", "max_positions = 512")
    )
    finetune(longer, table, tmp_path / "long", settings, tokenizer=tiny_tokenizer)
    length = read_record(tmp_path / "long")["config"]["length"]
    assert sum(text_length <= length for text_length in lengths) >= 0.95 * len(lengths)
    assert sum(text_length <= length - 16 for text_length in lengths) < 0.95 * len(lengths), (
        "and no longer than that needs"
    )

    run(table, tmp_path / "short", tiny_tokenizer, settings)
    assert read_record(tmp_path / "short")["config"]["length"] == 64, "the positions of the model"
    cut = sum(length > 64 for length in lengths)
    names(
        next(line for line in log_messages if " 64 tokens and were cut" in line),
        cut,
        40,
        "train.csv",
    )


@pytest.mark.thorough
def test_the_rate_is_the_one_that_a_run_with_it_given_has(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    """Trying leaves no trace in the run: the bytes are those of a run that was given the rate."""
    run(table, tmp_path / "chosen", tiny_tokenizer, config(epochs=14, choose=("rate",)))
    record = read_record(tmp_path / "chosen")
    rate = record["config"]["train"]["optimizer"]["learning_rate"]
    (line,) = [line for line in log_messages if "held-out training rows" in line]
    assert [line] == record["chosen"]
    names(line, f"{rate:.0e}")
    run(table, tmp_path / "given", tiny_tokenizer, config(epochs=14, rate=rate))
    same_files(tmp_path / "chosen", tmp_path / "given")


@pytest.mark.thorough
@pytest.mark.parametrize("instant", [1, 7])
def test_a_killed_run_keeps_its_choices_and_ends_with_the_same_bytes(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str], instant: int
) -> None:
    settings = config(epochs=14, choose=("length", "batch", "rate"))
    run(table, tmp_path / "whole", tiny_tokenizer, settings)

    with pytest.raises(Killed):
        run(table, tmp_path / "cut", tiny_tokenizer, settings, on_step=kill_at(instant))
    log_messages.clear()
    run(table, tmp_path / "cut", tiny_tokenizer, settings)
    assert not [line for line in log_messages if "held-out training rows" in line], (
        "nothing is tried again"
    )
    same_files(tmp_path / "cut", tmp_path / "whole", "metrics.jsonl", "finetune.json")


@pytest.mark.thorough
def test_seeds_share_one_choice(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    settings = config(epochs=14, choose=("rate",))
    finetune_seeds(
        recipe_file(tmp_path), table, tmp_path / "out", settings, seeds=2, tokenizer=tiny_tokenizer
    )
    assert len([line for line in log_messages if "held-out training rows" in line]) == 1
    rates = {
        read_record(tmp_path / "out" / f"seed-{seed}")["config"]["train"]["optimizer"][
            "learning_rate"
        ]
        for seed in range(2)
    }
    assert len(rates) == 1


def test_a_run_of_an_earlier_version_continues_with_its_choices(
    table: Table, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """It wrote the field `choose`, which was empty, and nothing of seeds."""
    settings = config(choose=("length", "batch", "rate", "head"), restart=False)
    first = run(table, tmp_path / "run", tiny_tokenizer, settings)
    record = read_record(tmp_path / "run")
    assert not {"seeds", "choose", "baseline"} & record["config"].keys()
    record["config"] = {"choose": [], **record["config"]}
    (tmp_path / "run" / "finetune.json").write_text(json.dumps(record))
    again = run(table, tmp_path / "run", tiny_tokenizer, settings)
    assert (again.outcome.finished, again.scores) == (True, first.scores)
    with refused(RunError, "train.batch"):
        batch = replace(settings.train, batch="8 sequences")
        run(table, tmp_path / "run", tiny_tokenizer, replace(settings, train=batch))


def test_a_run_of_few_steps_tries_nothing(
    table: Table, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    run(table, tmp_path / "run", tiny_tokenizer, config(epochs=1, choose=("rate",)))
    assert read_record(tmp_path / "run")["config"]["train"]["optimizer"]["learning_rate"] == 1e-3
    names(next(line for line in log_messages if "too few" in line), "1e-03", 4)


@pytest.mark.parametrize("windows", [1, 3])
def test_windows_of_one_question_stand_on_one_side(windows: int) -> None:
    """They overlap, so a rate would be judged by text that its short run has seen."""
    items = [Item(example, (), None) for example in range(100) for _ in range(windows)]
    learned, held = split_held_out(items, 0)
    assert not {item.example for item in learned} & {item.example for item in held}
    assert sorted(map(id, [*learned, *held])) == sorted(map(id, items))
    assert len(held) == 20 * windows
    assert {item.example for item in held} != {*range(20)}
    alone, none = split_held_out([Item(0, (), None)] * 30, 0)
    assert (len(alone), none) == (30, [])


def test_where_nothing_is_learned_the_network_that_moved_least_does_not_win() -> None:
    """Losses around those of answering alike; the least of them is that of the smallest rate."""
    prior = np.array([0.6, 0.7, 0.8, 0.7])
    noise = np.array([0.01, -0.01, 0.01, -0.01])
    flat = {3e-5: prior - noise, 1e-3: prior + 0.02 + noise, 3e-3: prior + 0.01 - noise}
    assert choose_rate(flat, prior, usual=1e-3) == 3e-3
    assert choose_rate(flat, prior, usual=1e-2) == 3e-3
    learned = {**flat, 3e-4: prior - 0.2 + noise}
    assert choose_rate(learned, prior, usual=1e-3) == 3e-4
    alike = {**learned, 1e-3: prior - 0.2 - noise / 2}
    assert choose_rate(alike, prior, usual=3e-5) == 1e-3, (
        "the largest of those that cannot be told apart"
    )
    assert choose_rate({3e-5: np.full(1, np.inf), 1e-3: prior - 0.1}, prior, usual=3e-5) == 1e-3


def test_a_long_run_tries_no_rate_with_which_only_a_short_run_is_ahead() -> None:
    assert list_rates(RATES, 4999) == list(RATES)
    assert list_rates(RATES, 5000) == [3e-5, 1e-4, 3e-4, 1e-3]


def test_a_group_is_never_divided_between_what_is_learned_and_what_is_tried() -> None:
    """Neither in the short runs nor in the folds; large groups too are held out."""
    for sizes in ([40] * 3, [200, 200], [1] * 50 + [150], [7] * 30, [90]):
        groups = [group for group, size in enumerate(sizes) for _ in range(size)]
        items = [Item(i, (), None, group=group) for i, group in enumerate(groups)]
        learned, held = split_held_out(items, 0)
        assert len(learned) + len(held) == len(items)
        assert 0 < len(held) <= len(items) / 2
        numbers = number_groups(items)
        folds = [*split_folds(numbers)]
        assert sum(len(tried) for _, tried in folds) == len(items)
        if len(sizes) == 1:  # which no split could leave whole
            continue
        assert not {item.group for item in learned} & {item.group for item in held}
        for learn, tried in folds:
            assert not {*numbers[learn].tolist()} & {*numbers[tried].tolist()}
