"""A baseline that has learned a task: it answers, and the task scores it as it scores a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litebert.config import FinetuneConfig
from litebert.errors import ConfigError, DataError
from litebert.finetuning.items import EncodedPart
from litebert.finetuning.scoring import score_answers
from litebert.finetuning.task import Task

if TYPE_CHECKING:
    from litebert.finetuning.baselines.models import Baseline
    from litebert.finetuning.scoring import Logits


@dataclass(frozen=True)
class FittedBaseline:
    """A baseline and the task that it learned."""

    task: Task[Any]
    model: Baseline
    training_rows: int
    """Rows of the training part; `model.read` says how many of them it learned from."""

    def logits(self, examples: Sequence[Any]) -> Logits:
        """Compute the logits of each example, in the form of `Output.of_item`: (C,) of classes,
        labels or a number, (words, C) of tags.
        """
        with limit_threads():
            return self.model.logits(self.task.plain_items(examples))

    def answers(self, examples: Sequence[Any]) -> list[Any]:
        """Return one answer per example, as `Task.score` and `Task.record` take it."""
        with limit_threads():
            return self.model.answers(self.task, examples, self.task.plain_items(examples))

    def predict(self, values: Sequence[Any]) -> list[dict[str, Any]]:
        """Return a record for each input, as `load(...).predict` gives of a fine-tuned model.

        Raises:
            TypeError: an input is of another form than `task.inputs` says.
        """
        examples = [self.task.example(value, str(place)) for place, value in enumerate(values)]
        return [
            self.task.record(*both) for both in zip(examples, self.answers(examples), strict=True)
        ]

    def scores_of(self, parts: Sequence[tuple[str, list[Any]]]) -> dict[str, float]:
        """Compute the scores of parts by name; of a test part only where it has labels."""
        plain = [
            EncodedPart(name, examples, list(self.task.plain_items(examples)))
            for name, examples in parts
        ]
        return score_answers(self.task, plain, lambda part: self.answers(part.examples))


def fit_baseline(
    task: Task[Any], examples: Sequence[Any], config: FinetuneConfig | None = None
) -> FittedBaseline:
    """Fit the baseline of a task.

    Args:
        examples: the examples of its training part.
        config: a config of fine-tuning, whose `class_weights` the baseline takes too.

    Raises:
        ConfigError: there is no baseline for this kind of task (questions, choices).
        DataError: the training part has nothing to learn from.
    """
    items, output = task.plain_items(examples), task.output
    if config is not None:
        targets = [item.target for item in items if item.target is not None]
        output = output.weigh(config, targets)
    model = output.baseline()
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
    """Fit a baseline in a block, on one thread.

    Raises:
        DataError: scikit-learn cannot, as of texts without a single word.
    """
    try:
        with limit_threads():
            yield
    except ValueError as error:
        raise DataError(
            f"the training part cannot be counted ({error}); give texts with words"
        ) from None


def limit_threads() -> Any:
    """Limit a block to one thread: sums in another order would be other bits, and cores belong to
    training.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)
