"""The one training loop: steps, checkpoints, held-out scores, interruption, resumption.

It knows nothing of what it trains: a `Trainable` gives losses for a batch, a batch is a pure function of the step,
and everything random inside a step is a pure function of (seed, step). So a run that was killed and started again
is the same run, bit for bit, and resuming costs nothing at any step.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from litebert.config import LoopConfig
from litebert.config.amounts import parse_amount
from litebert.errors import NonFiniteError
from litebert.model.objectives import Loss
from litebert.train import checkpoint, device, schedule
from litebert.train.metrics import MetricsLog
from litebert.train.optim import Optimizers

Say = Callable[[str], None]


class TrainBatch(Protocol):
    """A micro-batch: it moves to a device and knows its tokens."""

    @property
    def tokens(self) -> int:
        """Tokens, padding aside."""
        ...

    def to(self, device: torch.device) -> Any:
        """The same batch on a device."""
        ...


B = TypeVar("B", bound=TrainBatch)


class Trainable(Protocol[B]):
    """What the loop trains; `Pretrainer` is one."""

    layers: int
    memory: dict[str, Any]
    """Plain values that `remarks` keeps between rows; saved with checkpoints."""

    @property
    def module(self) -> nn.Module:
        """What has the parameters."""
        ...

    def batch(self, step: int, rows: slice) -> B:
        """Rows of the batch of a step, a pure function."""
        ...

    def counts(self, batch: B) -> dict[str, int]:
        """Predictions per loss in a batch, by which the sums over micro-batches are divided."""
        ...

    def losses(self, batch: B, layers: int) -> dict[str, Loss]:
        """One `Loss` per name."""
        ...

    def weights(self) -> Mapping[str, float]:
        """The weight of each loss in the sum."""
        ...

    def rates(self) -> Mapping[str, float]:
        """Factors of the learning rate by parameter name; 1 where a name is absent."""
        ...

    def evaluate(self) -> dict[str, float]:
        """Held-out scores now."""
        ...

    def remarks(self, step: int, row: Mapping[str, Any]) -> list[str]:
        """What should be said in words about a row of metrics."""
        ...


@dataclass
class Window:
    """Sums since the last row of metrics; saved with checkpoints, so that a resumed run writes the same rows."""

    steps: int = 0
    gradient_norm: float = 0.0
    total: dict[str, float] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    correct: dict[str, int] = field(default_factory=dict)
    extras: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, name: str, loss: Loss) -> None:
        """Add one loss of one micro-batch."""
        self.total[name] = self.total.get(name, 0.0) + loss.total.item()
        self.count[name] = self.count.get(name, 0) + int(loss.count)
        self.correct[name] = self.correct.get(name, 0) + int(loss.correct)
        extras = self.extras.setdefault(name, {})
        for extra, value in loss.extras.items():
            extras[extra] = extras.get(extra, 0.0) + value.item()

    def row(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Means over the window."""
        means = {name: self.total[name] / max(1, self.count[name]) for name in self.total}
        row = {"loss": sum(weights[name] * mean for name, mean in means.items())}
        for name, mean in means.items():
            row[f"{name}_loss"] = mean
            row[f"{name}_accuracy"] = self.correct[name] / max(1, self.count[name])
            for extra, value in self.extras.get(name, {}).items():  # a checkpoint of an older version has none
                row[f"{name}_{extra}"] = value / max(1, self.count[name])
        row["gradient_norm"] = self.gradient_norm / max(1, self.steps)
        return row


@dataclass(frozen=True)
class Outcome:
    """How a call of the loop ended."""

    step: int
    finished: bool
    signal: int | None
    scores: dict[str, float]
    tokens: int
    seconds: float


@dataclass
class Loop(Generic[B]):
    """Train for `steps` optimizer steps in a run folder whose lock the caller holds."""

    work: Trainable[B]
    config: LoopConfig
    steps: int
    batch_sequences: int
    device: device.Device
    folder: Path
    say: Say
    depth_schedule: tuple[tuple[float, int], ...] = ()
    """As `TrainConfig` has it."""
    tensorboard: bool = False
    on_step: Callable[[Loop[B]], None] = lambda loop: None

    def __post_init__(self) -> None:
        module = self.work.module
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.optimizers = Optimizers(module, self.config.optimizer, self.work.rates())
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.window = Window()
        self.scores: dict[str, float] = {}
        micro = self.config.micro_batch or self.batch_sequences
        self.rows = [slice(i, min(i + micro, self.batch_sequences)) for i in range(0, self.batch_sequences, micro)]
        self.log_every = max(1, self.steps // 200)
        every = parse_amount(self.config.evaluate_every, "train.evaluate_every", ("share", "steps"))
        self.evaluate_every = max(1, round(every.value * self.steps) if every.unit == "share" else int(every.value))

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        """Where they are."""
        return self.folder / "checkpoints"

    def resume(self) -> None:
        """Continue from the newest whole checkpoint, saying which damaged ones were passed over."""
        found = checkpoint.newest(self.checkpoints)
        if found is not None:
            for path, reason in found.damaged:
                self.say(f"checkpoint {path.name} is damaged ({reason}); taking the older {found.path.name}")
            state = found.state
            self.work.module.load_state_dict(found.model(), strict=True)
            self.optimizers.load(found.optimizer())
            self.step, self.tokens, self.seconds = found.step, state["tokens"], state["seconds"]
            self.window, self.scores = Window(**state["window"]), state["scores"]
            self.work.memory.update(state["memory"])
            self.say(f"continuing from step {self.step} of {self.steps}")
        self.log = MetricsLog(self.folder, None if found is None else self.step, self.tensorboard)

    def save(self) -> None:
        """Write a checkpoint of this instant, which a run may continue from: its weights must be finite."""
        if not all(p.isfinite().all() for p in self.parameters):
            raise self._nonfinite(f"weights after step {self.step} are")
        state = {
            "tokens": self.tokens,
            "seconds": self.seconds,
            "window": vars(self.window),
            "scores": self.scores,
            "memory": self.work.memory,
        }
        self.log.sync()
        checkpoint.save(self.checkpoints, self.step, self.work.module.state_dict(), self.optimizers.state(), state)
        checkpoint.prune(self.checkpoints, self.config.keep_checkpoints)

    # ---- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Train to the end, or until a signal asks to leave."""
        every = parse_amount(self.config.save_every, "train.save_every", ("time", "steps"))
        if self.step == self.steps:
            return Outcome(self.step, True, None, self.scores, self.tokens, self.seconds)
        began = last_save = time.monotonic()
        before = self.seconds
        self.work.module.train()
        with _signals() as received, ThreadPoolExecutor(1) as worker:
            ahead = worker.submit(self._micro_batches, self.step)
            while self.step < self.steps and received.number is None:
                batches = ahead.result()
                if self.step + 1 < self.steps:
                    ahead = worker.submit(self._micro_batches, self.step + 1)
                self._train_step(batches)
                self.step += 1
                self.seconds = before + time.monotonic() - began
                self.on_step(self)
                self._report()
                now = time.monotonic()
                due = now - last_save >= every.value if every.unit == "time" else self.step % int(every.value) == 0
                if due and self.step < self.steps:
                    self.save()
                    last_save = time.monotonic()
            ahead.cancel()
            self.seconds = before + time.monotonic() - began
            self.save()
        return Outcome(self.step, self.step == self.steps, received.number, self.scores, self.tokens, self.seconds)

    def _micro_batches(self, step: int) -> list[B]:
        return [self.work.batch(step, rows) for rows in self.rows]

    def _train_step(self, batches: list[B]) -> None:
        """One optimizer step; the gradient is that of the weighted sum of mean losses over the whole batch."""
        device.seed_step(self.config.seed, self.step)
        layers = schedule.depth_at(self.depth_schedule, self.work.layers, self.step, self.steps)
        weights = self.work.weights()
        counts: dict[str, int] = {}
        for batch in batches:
            for name, count in self.work.counts(batch).items():
                counts[name] = counts.get(name, 0) + count
        for batch in batches:
            with self.device.autocast_context():
                losses = self.work.losses(batch.to(self.device.device), layers)
            parts = [weights[name] * loss.total / max(1, counts[name]) for name, loss in losses.items()]
            value = torch.stack(parts).sum()
            if not math.isfinite(value.item()):
                raise self._nonfinite(f"loss of step {self.step + 1} is")
            value.backward()  # type: ignore[no-untyped-call]
            for name, loss in losses.items():
                self.window.add(name, loss)
            self.tokens += batch.tokens
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip or math.inf).item()
        if not math.isfinite(norm):
            raise self._nonfinite(f"gradient of step {self.step + 1} is")
        self.window.gradient_norm += norm
        self.window.steps += 1
        self.optimizers.step(schedule.factor(self.config.schedule, self.step, self.steps))
        self.optimizers.zero_grad()

    def _nonfinite(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"the {what} not finite, so the run stopped and saved nothing of it; start another --out with a lower "
            "train.optimizer.learning_rate or a longer train.schedule.warmup"
        )

    def _report(self) -> None:
        last = self.step == self.steps
        if self.step % self.log_every == 0 or last:
            row = self.window.row(self.work.weights())
            row["layers"] = schedule.depth_at(self.depth_schedule, self.work.layers, self.step - 1, self.steps)
            row["learning_rate"] = self.config.optimizer.learning_rate * schedule.factor(
                self.config.schedule, self.step - 1, self.steps
            )
            row["tokens"] = self.tokens
            self.log.write("train", self.step, **row)
            self.window = Window()
            for remark in self.work.remarks(self.step, row):
                self.log.write("event", self.step, message=remark)
                self.say(remark)
        # One that falls just before the end would only say twice what the last one says.
        soon = 2 * (self.steps - self.step) < self.evaluate_every
        if last or (self.step % self.evaluate_every == 0 and not soon):
            self.scores = self.work.evaluate()
            self.log.write("heldout", self.step, **self.scores)


@dataclass
class _Received:
    number: int | None = None


@contextmanager
def _signals() -> Iterator[_Received]:
    """Turn SIGTERM and the first Ctrl-C into a request to save and leave; a second Ctrl-C stops at once."""
    received = _Received()

    def handle(number: int, frame: FrameType | None) -> None:
        if received.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.number = number

    try:
        before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, where Python delivers signals: leave them alone
        before = {}
    try:
        yield received
    finally:
        for number, old in before.items():
            signal.signal(number, old)
