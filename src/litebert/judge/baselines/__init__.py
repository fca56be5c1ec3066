"""A baseline beside every score: what counting words and characters answers after seconds, on the
same rows (`fit_baseline`); its scores in a run folder, and advice from them. models.py has a model
for each kind of output.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from litebert.base import progress
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.base.json_reader import numbers, read_json
from litebert.base.storage import write_json
from litebert.config import FinetuneConfig
from litebert.judge.baselines.models import Baseline, make_baseline
from litebert.judge.seeds import compute_noise, judge
from litebert.tasks.scoring import name_metric, score_answers
from litebert.tasks.task import Task
from litebert.tasks.values import EncodedPart, Logits

log = logging.getLogger("litebert")

BASELINE = "baseline.json"
FIELD = "baseline"
"""The field of scores.json that holds them when training has ended."""


@dataclass(frozen=True)
class FittedBaseline:
    task: Task[Any]
    model: Baseline
    training_rows: int

    def logits(self, examples: Sequence[Any]) -> Logits:
        """Compute the logits of each example, in the form of `Output.of_item`."""
        with _limit_threads():
            return self.model.logits(self.task.plain_items(examples))

    def answers(self, examples: Sequence[Any]) -> list[Any]:
        with _limit_threads():
            return self.model.answers(self.task, examples, self.task.plain_items(examples))

    def scores_of(self, parts: Sequence[tuple[str, list[Any]]]) -> dict[str, float]:
        plain = [
            EncodedPart(name, examples, list(self.task.plain_items(examples)))
            for name, examples in parts
        ]
        return score_answers(self.task, plain, lambda part: self.answers(part.examples))


def fit_baseline(
    task: Task[Any], examples: Sequence[Any], config: FinetuneConfig | None = None
) -> FittedBaseline:
    """Fit the baseline of a task to its training examples, with the config's `class_weights`."""
    items, output = task.plain_items(examples), task.output
    if config is not None:
        targets = [item.target for item in items if item.target is not None]
        output = output.weigh(config, targets)
    model = make_baseline(output)
    if model is None or (examples and not items):
        raise ConfigError(
            f"the {task.name} task has no baseline; tasks of texts, pairs of texts and "
            "tags have one"
        )
    items = [item for item in items if item.target is not None or not model.supervised]
    with fitting():
        model.fit(items, task.output.width)
    return FittedBaseline(task, model, len(items))


@contextmanager
def fitting() -> Iterator[None]:
    try:
        with _limit_threads():
            yield
    except ValueError as error:
        raise DataError(
            f"the training part cannot be counted ({error}); give texts with words"
        ) from None


def _limit_threads() -> Any:
    """Sums on several threads would be other bits, and cores belong to training."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


@dataclass(frozen=True)
class BaselineScores:
    name: str
    scores: dict[str, float]
    """Named as the run's own."""
    rows: int
    training_rows: int

    @property
    def note(self) -> str:
        """Description of the baseline, with the rows it read where it did not read all of them."""
        part = (
            ""
            if self.rows == self.training_rows
            else f" on {self.rows:,} of {self.training_rows:,} training rows"
        )
        return self.name + part


@dataclass
class RunBaseline:
    """The baseline of a run: computed once, for all seeds, and kept in their folders."""

    config: FinetuneConfig
    task: Task[Any]
    train: EncodedPart
    others: Sequence[EncodedPart]

    def announce(self, folders: Sequence[Path]) -> None:
        ended = [(folder / "scores.json").exists() for folder in folders]
        saved = [_find_saved(folder) is not None for folder in folders]
        if not folders or not all(map(any, zip(ended, saved, strict=True))):
            _ = self._scores

    def keep(self, folder: Path) -> BaselineScores | None:
        """Return the folder's scores, or compute and write them; None, with a log, without
        baseline.
        """
        scores = _find_saved(folder) or self._scores
        if scores is not None and not (folder / BASELINE).exists():
            write_json(folder / BASELINE, asdict(scores))
        return scores

    @cached_property
    def _scores(self) -> BaselineScores | None:
        task, examples = self.task, self.train.examples
        if make_baseline(task.output) is None or not task.plain_items(examples[:1]):
            return None
        began = time.monotonic()
        try:
            with progress.task("fitting the baseline"):
                fitted = fit_baseline(task, examples, self.config)
                scores = fitted.scores_of([(part.name, part.examples) for part in self.others])
        except Exception as error:  # whatever it is, it must not stop a training that could go on
            log.info(f"there is no baseline for the scores: {error}")
            return None
        baseline = BaselineScores(
            fitted.model.name, scores, fitted.model.read, fitted.training_rows
        )
        metric = name_metric(task)
        log.info(
            f"the baseline scores {metric} {baseline.scores[metric]:.4g} on {task.dev[0]}, in "
            f"{time.monotonic() - began:.1f} seconds ({baseline.note})"
        )
        return baseline


def read_scores(file: Path) -> dict[str, float]:
    return numbers(
        {name: value for name, value in read_json(file, RunError).items() if name != FIELD}
    )


def read_baseline(file: Path) -> BaselineScores | None:
    """Read the baseline's scores in a scores.json; None where the run has none (--no-baseline)."""
    fields = read_json(file, RunError).get(FIELD)
    return None if fields is None else _from_fields(fields, file)


def build_scores_fields(
    scores: Mapping[str, Any], baseline: BaselineScores | None
) -> dict[str, Any]:
    return {**scores, **({} if baseline is None else {FIELD: asdict(baseline)})}


def _find_saved(folder: Path) -> BaselineScores | None:
    # With torch, which those who only read scores do without.
    from litebert.train.run_folder import ASIDE

    for file in (folder / BASELINE, folder / ASIDE / BASELINE):  # a restarted run has the same rows
        try:
            return _from_fields(read_json(file, RunError), file)
        except RunError:  # no such file, or a person changed it
            continue
    return None


def _from_fields(fields: Any, file: Path) -> BaselineScores:
    try:
        scores = {str(name): float(value) for name, value in numbers(fields["scores"]).items()}
        return BaselineScores(
            str(fields["name"]), scores, int(fields["rows"]), int(fields["training_rows"])
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise RunError(
            f"{file} was changed: '{FIELD}' does not hold the scores of a baseline; restore it"
        ) from None


def advise(
    metric: str,
    scores: Sequence[float],
    baseline: BaselineScores | None,
    rows: int,
    full: float = 1.0,
    fits: bool = False,
) -> str | None:
    """Advise where a model, by the scores of its seeds, is not better than a baseline; else None.

    `rows` and `full` are as in `judge`; `fits` says that `litebert fit` takes the task.
    """
    baseline_score = math.nan if baseline is None else baseline.scores.get(metric, math.nan)
    score = statistics.median(scores)
    if baseline is None or not math.isfinite(baseline_score + score):
        return None
    verdict = judge(scores, [baseline_score], rows, full)
    fit = "litebert fit takes the cheapest of the methods that are as good"
    if verdict == "level":
        noise = compute_noise(scores, [baseline_score], rows, full)
        return (
            f"the model is level with the baseline ({baseline.note}): {metric} {score:.4g} against "
            f"{baseline_score:.4g}, and on {rows:,} rows a difference below {noise:.2g} is inside "
            "the noise" + (f"; {fit}" if fits else "")
        )
    if verdict == "better" or baseline_score <= score:
        return None
    remedy = (
        fit
        if fits
        else "pretrain longer or on more text, start from a published encoder, or learn from a "
        "larger model with --teacher"
    )
    return (
        f"the baseline ({baseline.note}) is better, with {metric} {baseline_score:.4g} against "
        f"{score:.4g}: {remedy}"
    )
