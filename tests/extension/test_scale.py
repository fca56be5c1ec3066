"""A task of one's own with a new kind of output, from files to answers without a change in
litebert.

Ordered grades, learnt by one question for each grade but the lowest, "is it better?", as Frank and
Hall (2001) do.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import Tensor
from torch.nn import functional as F

import litebert
from litebert import load
from litebert.answer.files import predict_file
from litebert.base.errors import ModelError
from litebert.base.registry import OUTPUTS, TASKS
from litebert.finetuning.run import finetune
from litebert.tasks.table import Table, TableFiles
from litebert.tasks.text_outputs import OneClass
from litebert.tasks.values import Answer
from toys.finetuning import config, recipe_file, write_table
from toys.refusals import refused

GRADES = ("bad", "fair", "good")


class Scale(OneClass):
    """Grades in order. The head gives the odds of being better than each grade but the best."""

    name, task = "scale", "grades"

    @property
    def width(self) -> int:
        return len(self.labels) - 1

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        better = (targets[:, None] > torch.arange(logits.shape[1], device=targets.device)).float()
        losses = F.binary_cross_entropy_with_logits(logits, better, reduction="none").mean(-1)
        losses = losses if weights is None else losses * weights
        return losses.sum(), ((logits > 0).sum(-1) == targets).sum()

    def answers(self, logits: Sequence[Any]) -> list[Answer]:
        better = [
            np.minimum.accumulate([1.0, *expit(logit.astype(np.float64)), 0.0]) for logit in logits
        ]
        return [Answer(self.labels[int((p > 0.5).sum()) - 1], p[:-1] - p[1:]) for p in better]


class GradeFiles(TableFiles):
    """A table whose labels are grades."""

    @classmethod
    def of(cls, *parts: Any, **options: Any) -> TableFiles:
        files = super().of(*parts, target="class", labels=GRADES, **options)
        files.task = replace(files.task, output=Scale(GRADES))
        return files


class Grades(Table):
    """The task of a table of grades."""

    name, files = "grades", GradeFiles


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    TASKS.add("grades", Grades)
    OUTPUTS.add("scale", Scale)


@pytest.mark.thorough
def test_a_new_kind_of_output_goes_all_the_way(
    tiny_tokenizer: Path, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    train, dev = (
        write_table(tmp_path / f"{name}.csv", rows, seed, GRADES)
        for name, rows, seed in (("train", 300, 0), ("dev", 60, 1))
    )
    task = litebert.open_task("grades", train, dev=dev)
    done = finetune(
        recipe_file(tmp_path), task, tmp_path / "run", config(epochs=16), tokenizer=tiny_tokenizer
    )
    assert done.scores["accuracy"] > 0.8
    status, out, _ = run("predict", tmp_path / "run", "--input", dev)
    assert (status, len(out.splitlines())) == (0, 61)
    answers = list(csv.DictReader(io.StringIO(out)))
    assert list(answers[0]) == ["prediction", "p_bad", "p_fair", "p_good"]
    with dev.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    right = [
        answer["prediction"] == row["label"] for answer, row in zip(answers, rows, strict=True)
    ]
    assert np.mean(right) == done.scores["accuracy"]
    json_lines = io.StringIO()
    predict_file(litebert.load(tmp_path / "run"), dev, json_lines, form="jsonl")
    records: list[Mapping[str, Any]] = [
        json.loads(line) for line in json_lines.getvalue().splitlines()
    ]
    assert records == litebert.load(tmp_path / "run").predict([row["text"] for row in rows])


def test_a_model_whose_output_is_not_registered_is_refused(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    train = write_table(tmp_path / "train.csv", 60, 0, GRADES)
    finetune(
        recipe_file(tmp_path),
        GradeFiles.of({"train": train}, task_class=Grades),
        tmp_path / "run",
        config(epochs=1),
        tokenizer=tiny_tokenizer,
    )
    about = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    (tmp_path / "run" / "model" / "task.json").write_text(json.dumps({**about, "problem": "marks"}))
    with refused(ModelError, "task.json", "problem", "'marks'"):
        load(tmp_path / "run")
