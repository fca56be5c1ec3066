"""The scores of a baseline in a run folder, and advice from them."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from litebert import progress
from litebert.config import FinetuneConfig
from litebert.errors import RunError
from litebert.finetuning.baselines.fitted import fit_baseline
from litebert.finetuning.items import EncodedPart
from litebert.finetuning.scoring import name_metric
from litebert.finetuning.seeds import compute_noise, judge
from litebert.finetuning.task import Task, TaskFiles
from litebert.hub import PREFIX
from litebert.json_reader import numbers, read_json
from litebert.storage import write_json
from litebert.text.records import Notes

log = logging.getLogger("litebert")

BASELINE = "baseline.json"
"""The file of a run folder that holds the scores of its baseline from before training on."""
FIELD = "baseline"
"""The field of scores.json that holds them when training has ended."""


@dataclass(frozen=True)
class BaselineScores:
    """The scores of a baseline on the parts that a run scores."""

    name: str
    """Short description of the baseline."""
    scores: dict[str, float]
    """Named as the run's own."""
    rows: int
    """Training rows that it learned from."""
    training_rows: int
    """Training rows that there are."""

    @property
    def note(self) -> str:
        """Description of the baseline, with the rows it read where it did not read all of them."""
        part = (
            ""
            if self.rows == self.training_rows
            else f" on {self.rows:,} of {self.training_rows:,} training rows"
        )
        return self.name + part


def score_baseline(files: TaskFiles[Any], config: FinetuneConfig | None = None) -> BaselineScores:
    """Fit the baseline of a task and score it, without a network.

    Args:
        config: as in `fit_baseline`.

    Returns:
        The scores of the development parts, and of the test parts with labels.

    Raises:
        ConfigError: the task has no baseline.
        DataError: a file of the task cannot be used.
    """
    task, examples = files.task, {}
    for name in ("train", *task.dev, *task.tests):
        notes = Notes()
        examples[name] = files.read(name, notes)
        for note in notes.notes():
            log.info(f"{name}: {note}")
    train = examples.pop("train")
    return _score(task, train, list(examples.items()), config)


class RunBaseline:
    """The baseline of a run: computed once, for all seeds, and kept in their folders."""

    def __init__(self, config: FinetuneConfig | None = None) -> None:
        self._config = config
        self._parts: tuple[Task[Any], EncodedPart, Sequence[EncodedPart]] | None = None

    def announce(
        self,
        task: Task[Any],
        train: EncodedPart,
        others: Sequence[EncodedPart],
        folders: Sequence[Path] = (),
    ) -> None:
        """Take the parts of the run, and log the score unless each of the folders has it."""
        self._parts = (task, train, others)
        ended = [(folder / "scores.json").exists() for folder in folders]
        saved = [_find_saved(folder) is not None for folder in folders]
        if not folders or not all(map(any, zip(ended, saved, strict=True))):
            _ = self._scores

    def keep(self, folder: Path) -> BaselineScores | None:
        """Return the scores of the folder, or compute and write them; None where there is no
        baseline, and a log says why.
        """
        scores = _find_saved(folder) or self._scores
        if scores is not None and not (folder / BASELINE).exists():
            write_json(folder / BASELINE, asdict(scores))
        return scores

    @cached_property
    def _scores(self) -> BaselineScores | None:
        assert self._parts is not None
        task, train, others = self._parts
        if task.output.baseline() is None or not task.plain_items(train.examples[:1]):
            return None
        began = time.monotonic()
        try:
            parts = [(part.name, part.examples) for part in others]
            baseline = _score(task, train.examples, parts, self._config)
        except Exception as error:  # whatever it is, it must not stop a training that could go on
            log.info(f"there is no baseline for the scores: {error}")
            return None
        metric = name_metric(task)
        log.info(
            f"the baseline scores {metric} {baseline.scores[metric]:.4g} on {task.dev[0]}, in "
            f"{time.monotonic() - began:.1f} seconds ({baseline.note})"
        )
        return baseline


def _score(
    task: Task[Any],
    train: Sequence[Any],
    parts: Sequence[tuple[str, list[Any]]],
    config: FinetuneConfig | None,
) -> BaselineScores:
    """Fit the baseline to the training examples, and score it on the parts by name."""
    with progress.task("fitting the baseline"):
        fitted = fit_baseline(task, train, config)
        scores = fitted.scores_of(parts)
    return BaselineScores(fitted.model.name, scores, fitted.model.read, fitted.training_rows)


def read_scores(file: Path) -> dict[str, float]:
    """Read the run's own scores in a scores.json.

    Raises:
        RunError: the file cannot be read.
    """
    return numbers(
        {name: value for name, value in read_json(file, RunError).items() if name != FIELD}
    )


def read_baseline(file: Path) -> BaselineScores | None:
    """Read the baseline's scores in a scores.json; None where the run has none (--no-baseline).

    Raises:
        RunError: the file cannot be read, or was changed.
    """
    fields = read_json(file, RunError).get(FIELD)
    return None if fields is None else _from_fields(fields, file)


def build_scores_fields(
    scores: Mapping[str, Any], baseline: BaselineScores | None
) -> dict[str, Any]:
    """Build the content of scores.json or seeds.json: the scores, and the baseline's in a field."""
    return {**scores, **({} if baseline is None else {FIELD: asdict(baseline)})}


def _find_saved(folder: Path) -> BaselineScores | None:
    """Return the scores in the baseline.json of a run folder; None where it has none."""
    # With torch, which those who only read scores do without.
    from litebert.train.run_folder import ASIDE

    # A restarted run has the rows of the run before it.
    return _read_saved(folder / BASELINE) or _read_saved(folder / ASIDE / BASELINE)


def _read_saved(file: Path) -> BaselineScores | None:
    """Read the scores in a baseline.json; None without such a file, or if a person changed it."""
    try:
        return _from_fields(read_json(file, RunError), file)
    except RunError:
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
    source: str | Path = "",
) -> str | None:
    """Advise where a model is not better than a baseline; None where it is, or nothing is known.

    Args:
        scores: the score of each seed.
        rows, full: as in `judge`.
        source: the model that fine-tuning began with.
    """
    baseline_score = math.nan if baseline is None else baseline.scores.get(metric, math.nan)
    score = statistics.median(scores)
    if baseline is None or not math.isfinite(baseline_score + score):
        return None
    verdict = judge(scores, [baseline_score], rows, full)
    if verdict == "level":
        noise = compute_noise(scores, [baseline_score], rows, full)
        return (
            f"the model is level with the baseline ({baseline.note}): {metric} {score:.4g} against "
            f"{baseline_score:.4g}, and on {rows:,} rows a difference below {noise:.2g} is inside "
            "the noise"
        )
    if verdict == "better" or baseline_score <= score:
        return None
    remedy = (
        "adapt the encoder to your text (litebert pretrain --from)"
        if _is_published(source)
        else "pretrain longer or on more text, start from a published encoder"
    )
    return (
        f"the baseline ({baseline.note}) is better, with {metric} {baseline_score:.4g} against "
        f"{score:.4g}: {remedy}, or learn from a larger model with --teacher"
    )


def _is_published(source: str | Path) -> bool:
    """Return True for a model of the Hub, and for a folder that litebert did not write."""
    if str(source).startswith(PREFIX):
        return True
    folder = Path(source)
    return (folder / "config.json").is_file() and not (folder / "recipe.json").is_file()
