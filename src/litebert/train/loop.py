"""The one training loop: steps, checkpoints, held-out scores, interruption, resumption.

A batch is a pure function of the step, and everything random inside a step of (seed, step). So a
run that was killed and started again is the same run, bit for bit. Between two rows of metrics or
checkpoints nothing here waits for an accelerator: sums stay on the device, and so does the check
that a step is finite.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Protocol

import torch
from torch import Tensor, nn

from litebert.base.errors import NonFiniteError, RunError
from litebert.base.json_reader import fault_of, numbers
from litebert.base.progress import Task, task
from litebert.config import LoopConfig
from litebert.config.amounts import parse_amount
from litebert.model.objectives import Loss
from litebert.train import checkpoint, device, schedule
from litebert.train.metrics import MetricsLog, format_scores
from litebert.train.optim import Optimizers, has_float32_iteration
from litebert.train.parallel import accumulate_gradients, load_state
from litebert.train.ranks import ALONE, Ranks
from litebert.train.supply import B, prefetch

log = logging.getLogger("litebert")

LEAVING = (signal.SIGTERM, signal.SIGINT)
LOOK_EVERY = 0.1
"""Share of a budget in time, or of its steps, after which a run looks at its clock again."""
MISSED = 0.02
"""Share of a budget in time that a run may miss before it counts its steps anew."""


class Trainable(Protocol[B]):
    """A model that the loop trains, with its batches, losses and held-out scores."""

    layers: int
    metric: str
    """The held-out score that chooses the weights; empty where the last weights count."""
    diagnostic_state: dict[str, Any]
    """Plain values that checkpoints save; the loop ends early where `stopped` is true."""

    @property
    def module(self) -> nn.Module:
        """The module that has the parameters."""

    @property
    def network(self) -> nn.Module:
        """The network that computes the losses: the module, or its wrapper in a group."""

    def batch(self, step: int, rows: slice) -> B:
        """Return some rows of the batch of a step; a pure function."""

    def count_predictions(self, batch: B) -> dict[str, int]:
        """Count the predictions of each loss in a batch, which divide sums of losses."""

    def compute_losses(self, batch: B, layers: int) -> dict[str, Loss]:
        """Return the losses of a batch by name."""

    def get_weights(self) -> Mapping[str, float]:
        """Return the weight of each loss in the sum."""

    def get_rate_scales(self) -> Mapping[str, float]:
        """Factors of the learning rate by parameter name; 1 where a name is absent."""

    def evaluate(self) -> dict[str, float]:
        """Compute held-out scores now."""

    def diagnose(self, step: int, row: Mapping[str, Any]) -> list[str]:
        """Return warnings about a row of metrics, in words."""


class Signals:
    """SIGTERM or the first Ctrl-C, which ask to save and leave; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.received: int | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Listen for signals meanwhile; earlier ones are forgotten."""
        self.received = None

        def handle(number: int, frame: FrameType | None) -> None:
            if self.received is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.received = number

        before = {}
        with suppress(ValueError):  # not in the main thread, where Python delivers signals
            before = {number: signal.signal(number, handle) for number in LEAVING}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


@dataclass(frozen=True)
class Outcome:
    step: int
    finished: bool
    signal: int | None
    scores: dict[str, float]
    tokens: int
    seconds: float


@dataclass
class Loop(Generic[B]):
    """Train for the steps of `plan` in a run folder whose lock the caller holds, from its newest
    whole checkpoint on. `train_step` takes one step; `run` all that are left.
    """

    trainable: Trainable[B]
    config: LoopConfig
    plan: schedule.Plan
    batch_sequences: int
    device: device.Device
    folder: Path
    depth_schedule: tuple[tuple[float, int], ...] = ()
    time_budget: tuple[float, float] | None = None
    """Seconds of training at which the steps since the last extension begin and end, or None."""
    correct: Callable[[schedule.Plan], None] | None = None
    """Records a plan that keeps `time_budget`, before a step is taken by it."""
    ahead: int = 1
    """Steps whose batches may have been made already; a correction leaves them as they are."""
    trackers: tuple[str, ...] = ()
    on_step: Callable[[Loop[B]], None] | None = None
    ranks: Ranks = ALONE
    remarks: list[str] = field(default_factory=list)
    """Warnings collected with `metrics.collect_remarks`, which the metrics get as events."""
    scores_start: bool = False
    """Also evaluate before the first step, because the weights there may be the best."""
    share_of_peak: Callable[[float, int], float] | None = None
    """Converts tokens per second at a depth into a share of the machine's speed, if known."""
    work: Callable[[float], float] = float
    """The work of a number of first planned steps, by which progress and time left are judged."""

    def __post_init__(self) -> None:
        module = self.trainable.module
        self.checkpoints = self.folder / "checkpoints"
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.optimizers = Optimizers(
            module,
            self.config.optimizer,
            self.trainable.get_rate_scales(),
            self.ranks,
            has_float32_iteration(self.device),
        )
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.signals = Signals()
        self.leaving: int | None = None
        """The signal that any process has received, as soon as all of them know."""
        self.due = False
        """True if the main process's clock asks for a checkpoint."""
        self.window = Window()
        self.row: dict[str, float] = {}  # the newest of the metrics
        self.scores: dict[str, float] = {}
        share = self.ranks.share(self.batch_sequences)
        micro = self.config.at_once or len(share)
        self.rows = [slice(i, min(i + micro, share.stop)) for i in share[::micro]]
        # The planned steps that rows and evaluations divide.
        *before, end = self.plan.planned_ends
        self.first = before[-1] if before else 0
        length = end - self.first
        self.log_every = max(1, length // 200)
        self._evaluated = 0.0  # seconds of this call in evaluations, and of the last one
        self._evaluation = 0.0
        self._paced: tuple[float, float] | None = None
        every = parse_amount(self.config.evaluate_every, "train.evaluate_every", ("share", "steps"))
        self.evaluate_every = max(
            1, round(every.value * length) if every.unit == "share" else int(every.value)
        )
        self.save_every = parse_amount(
            self.config.save_every, "train.save_every", ("time", "steps")
        )
        self._saved = time.monotonic()
        self._failures = torch.zeros(2, dtype=torch.int64, device=self.device.device)
        """The first steps whose loss or gradient was not finite, from 1; 0 while there is none."""
        self._resume()

    @property
    def steps(self) -> int:
        return self.plan.steps

    # ---------------------------------------------------------------------------------- checkpoints

    def _resume(self) -> None:
        newest: checkpoint.Checkpoint | None = self.ranks.do(
            lambda: checkpoint.find_newest(self.checkpoints) if self.ranks.main else None
        )
        if newest is not None:
            for path, reason in newest.damaged:
                log.warning(
                    f"checkpoint {path.name} is damaged ({reason}); using the older "
                    f"{newest.path.name}"
                )
        state, path = self.ranks.agree(
            (newest.state, newest.path) if newest else ({}, self.checkpoints)
        )
        self.resumed = bool(state)
        if not state:
            return
        model, optimizer = (
            (newest.load_model(), newest.load_optimizer()) if newest else (None, None)
        )
        load_state(self.trainable.module, model, self.ranks)
        self.optimizers.load(optimizer)
        self.step = state["step"]
        try:
            self.tokens = int(state["tokens"])
            self.seconds = float(state["seconds"])
            self.scores = numbers(state["scores"])
            if self.ranks.main:  # whose window holds the sums of all
                self.window = Window.from_state(state["window"], self.device.device)
            self.trainable.diagnostic_state.update(state["diagnostic_state"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            file = path / "state.json"
            raise RunError(
                f"{file} does not belong to this run ({fault_of(error)}); delete {path} to "
                "use an older one"
            ) from None
        log.info(f"continuing from step {self.step:,} of {self.steps:,}")

    def _save(self, metrics: MetricsLog | None) -> None:
        self._require_finite()
        if not all(p.isfinite().all() for p in self.parameters):
            raise _make_nonfinite_error(f"weights after step {self.step} are")
        state = {
            "tokens": self.tokens,
            "seconds": self.seconds,
            "window": self.window.state(self.ranks),
            "scores": self.scores,
            "diagnostic_state": self.trainable.diagnostic_state,
        }

        def write() -> None:
            if metrics is None:  # the main process writes
                return
            metrics.sync()
            tensors = self.trainable.module.state_dict(), self.optimizers.state()
            checkpoint.save(self.checkpoints, self.step, *tensors, state)
            checkpoint.prune(self.checkpoints, self.config.keep_checkpoints)
            log.info(f"checkpoint at step {self.step:,} of {self.steps:,}")

        self.ranks.do(write)
        self._saved = time.monotonic()

    # ------------------------------------------------------------------------------------- the loop

    def run(self, make: Callable[[int], list[B]] | None = None) -> Outcome:
        """Train to the end, or until a signal asks to leave.

        `make` gives what `make_batches` does for the steps that are left, asked for in order.
        """
        self._saved = time.monotonic()
        self._began = self._saved - self.seconds  # had training never been interrupted
        self.trainable.module.train()
        writer: AbstractContextManager[MetricsLog | None] = nullcontext()
        if self.ranks.main:
            writer = closing(
                MetricsLog(self.folder, self.step if self.resumed else None, self.trackers)
            )
        work = self.plan.spread(self.work)
        named = task("training", self.steps, "steps", self.step, tenths=True, work=work)
        report = named if self.ranks.main else nullcontext(Task("training"))
        supply = prefetch(
            make or self.make_batches, self.step, lambda: self.steps, self.device.device
        )
        with writer as metrics, self.signals.listen(), report as bar, supply as batches:
            self._timed_from = (self._saved, self.tokens)
            if metrics is not None:
                metrics.note(self.step, self.remarks)
            if not self._has_ended():
                if self.step == 0 and self.scores_start:
                    self._evaluate(metrics)
                self._take_steps(batches, metrics, bar)
                self._save(metrics)
            elif metrics is not None:  # a kill may have come between the last checkpoint and this
                checkpoint.prune(self.checkpoints, self.config.keep_checkpoints)
            self._exchange([])
        return Outcome(
            self.step, self._has_ended(), self.leaving, self.scores, self.tokens, self.seconds
        )

    def _take_steps(
        self, batches: Iterator[list[B]], metrics: MetricsLog | None, bar: Task
    ) -> None:
        mark = (self._saved, self.tokens)
        while not self._has_ended():
            self.train_step(next(batches))
            if self.leaving is not None:
                break
            self.seconds = time.monotonic() - self._began
            if self.on_step is not None:
                self.on_step(self)
            self._report(metrics)
            now = time.monotonic()
            if bar.total != self.steps:
                bar.total, bar.work = self.steps, self.plan.spread(self.work)
            bar.done = self.step
            if now - mark[0] > 1:
                bar.text = self._describe_progress((self.tokens - mark[1]) / (now - mark[0]))
                mark = (now, self.tokens)
            if self.save_every.unit == "steps":
                self.due = self.step % int(self.save_every.value) == 0
            if self.due and self.step < self.steps:
                self._save(metrics)
                self._timed_from = (self._saved, self.tokens)
        self.seconds = time.monotonic() - self._began

    def _keep_time(self) -> None:
        """Correct the plan where the run would miss the end of its time by more than `MISSED`;
        called where no work is queued on the device.
        """
        turn = self.step + 1 + self.ahead
        corrected_until = self.plan.corrections[-1][0] if self.plan.corrections else 0
        if self.time_budget is None or self.step <= corrected_until or turn >= self.steps:
            return
        steps = self.ranks.agree(self._count_steps_anew(turn))
        if steps is None or steps == self.steps:
            return
        log.info(f"the run ends at step {steps:,}, not {self.steps:,}, to keep its budget in time")
        self.plan = self.plan.correct(turn, steps)
        if self.correct is not None:
            self.correct(self.plan)

    def _count_steps_anew(self, turn: int) -> int | None:
        """Return the steps with which the run ends in time, changed from step `turn` on, or None.

        A unit of work takes the seconds that it took since the last look, without the first steps
        of a call, which compile and find memory. An evaluation takes as long as the last one did.
        """
        assert self.time_budget is not None
        begin, end = self.time_budget
        seconds, work = time.monotonic() - self._began, self.plan.spread(self.work)
        now = (seconds - self._evaluated, work(self.step))
        if self._paced is None:
            self._paced = now
        taken, done = now[0] - self._paced[0], now[1] - self._paced[1]
        whole = work(self.steps) - work((0, *self.plan.ends)[-2])
        if taken <= 0 or (taken < LOOK_EVERY * (end - begin) and done < LOOK_EVERY * whole):
            return None
        each = taken / done
        self._paced = now
        left_to_plan = self.plan.planned_ends[-1] - self.plan.locate(self.step)
        evaluations = self._evaluation * (left_to_plan // self.evaluate_every + 1)
        before = each * (work(turn) - now[1])
        needed = each * (work(self.steps) - work(turn))
        left = end - seconds - evaluations - before
        # However late it is, the schedules come to their end over a few steps.
        least = LOOK_EVERY * (end - begin)
        if abs(needed - left) <= MISSED * (end - begin) or max(needed, left) < least:
            return None
        return turn + max(1, round((self.steps - turn) * max(left, least) / needed))

    def _has_ended(self) -> bool:
        return self.step == self.steps or bool(self.trainable.diagnostic_state.get("stopped"))

    def _describe_progress(self, rate: float) -> str:
        """The rate, and the newest row's scores: the window would have to wait for the device."""
        scores = {
            name: value
            for name, value in self.row.items()
            if name == "loss" or name.endswith("_accuracy")
        }
        share = self._compute_share_of_peak(rate)
        speed = f"{rate:,.0f} tokens/s" + (
            "" if share is None else f" ({share:.0%} of the machine's peak)"
        )
        return ", ".join(filter(None, (format_scores(scores), speed)))

    def _compute_share_of_peak(self, rate: float) -> float | None:
        """The share of the machine's peak, which a run's first second does not know yet."""
        if self.share_of_peak is None or self.seconds < 1:
            return None
        return self.share_of_peak(rate / self.ranks.size, self._look_up_schedule(self.step - 1)[0])

    def make_batches(self, step: int) -> list[B]:
        return [self.trainable.batch(step, rows) for rows in self.rows]

    def train_step(self, batches: list[B] | None = None) -> None:
        """Take one optimizer step, with the gradient of the weighted sum of mean losses over the
        whole batch; none where a process has been asked to leave.

        `batches` is what `self.make_batches(self.step)` gives, where it was made ahead.
        """
        batches = self.make_batches(self.step) if batches is None else batches
        layers, factor = self._look_up_schedule(self.step)
        weights, (counts, tokens) = self.trainable.get_weights(), self._count_predictions(batches)
        if self.leaving is not None:
            return
        total = torch.zeros((), device=self.device.device)
        for rows, batch in zip(self.rows, batches, strict=True):
            device.seed_step(self.config.seed, self.step, rows.start)
            with accumulate_gradients(self.trainable.network, last=rows is self.rows[-1]):
                with self.device.autocast_context():
                    losses = self.trainable.compute_losses(batch.to(self.device.device), layers)
                value = torch.stack(
                    [
                        weights[name] * loss.total / max(1, counts[name])
                        for name, loss in losses.items()
                    ]
                ).sum()
                value.backward()  # type: ignore[no-untyped-call]
            total += value.detach()
            for name, loss in losses.items():
                self.window.add(name, loss)
        self.ranks.sum([total])  # the gradients are summed already
        norm = self.optimizers.clip(self.config.clip, self.device.answers_at_once)
        self._drop_nonfinite(total, norm)
        self.window.end_step(norm)
        self.optimizers.step(factor)
        self.optimizers.zero_grad()
        self.tokens += tokens
        self.step += 1

    def _look_up_schedule(self, step: int) -> tuple[int, float]:
        planned, ends = self.plan.locate(step), self.plan.planned_ends
        layers = schedule.find_depth(self.depth_schedule, self.trainable.layers, planned, ends[0])
        return layers, schedule.compute_extended_factor(self.config.schedule, planned, ends)

    def _count_predictions(self, batches: list[B]) -> tuple[dict[str, int], int]:
        counts: Counter[str] = Counter()
        for batch in batches:
            counts.update(self.trainable.count_predictions(batch))
        *totals, tokens = self._exchange([*counts.values(), sum(batch.tokens for batch in batches)])
        return dict(zip(counts, totals, strict=True)), tokens

    def _exchange(self, numbers: list[int]) -> list[int]:
        """Sum numbers over the processes, together with pending signals and checkpoint requests, so
        that all agree to leave or to save.
        """
        late = (
            self.save_every.unit == "time"
            and time.monotonic() - self._saved >= self.save_every.value
        )
        flags = [*(self.signals.received == signal for signal in LEAVING), self.ranks.main and late]
        summed = torch.tensor([*numbers, *flags], dtype=torch.int64)
        self.ranks.sum([summed])
        *totals, terminated, interrupted, due = summed.tolist()
        counts = zip(LEAVING, (terminated, interrupted), strict=True)
        self.leaving = next((int(signal) for signal, count in counts if count), None)
        self.due = bool(due)
        return totals

    def _drop_nonfinite(self, loss: Tensor, norm: Tensor) -> None:
        """Let nothing of a step whose loss or gradient is not finite reach the optimizer."""
        broken = ~torch.stack((loss.float(), norm.float())).isfinite()
        self._failures = torch.where(broken & (self._failures == 0), self.step + 1, self._failures)
        if self.device.answers_at_once:
            self._require_finite()
            return
        # In this step or one before; the run will end at the next row.
        failed = self._failures.any()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.masked_fill_(failed, 0.0)

    def _require_finite(self) -> None:
        steps = self._failures.tolist()
        if any(steps):
            first = min(filter(None, steps))
            raise _make_nonfinite_error(
                f"{('loss', 'gradient')[steps.index(first)]} of step {first} is"
            )

    def _report(self, metrics: MetricsLog | None) -> None:
        last = self.step == self.steps
        before, done = (self.plan.locate(step) - self.first for step in (self.step - 1, self.step))
        # One that falls just before the end would only say twice what the last one says.
        soon = 2 * (self.plan.planned_ends[-1] - self.first - done) < self.evaluate_every
        row_due = done // self.log_every > before // self.log_every
        if last or row_due:
            self._require_finite()
            self.row = row = self.window.compute_row(self.trainable.get_weights(), self.ranks)
            row["layers"], factor = self._look_up_schedule(self.step - 1)
            row["learning_rate"] = self.config.optimizer.peak * factor
            row["tokens"] = self.tokens
            self.window = Window()
            warnings = self.trainable.diagnose(self.step, row)
            if metrics is not None:
                self._write_speed(metrics)
                metrics.write("train", self.step, **row)
                for warning in warnings:
                    log.warning(warning)
                metrics.note(self.step, self.remarks)
            self._timed_from = (time.monotonic(), self.tokens)
        if last or (done // self.evaluate_every > before // self.evaluate_every and not soon):
            self._require_finite()
            self._evaluate(metrics)
        if row_due and not last:
            self._keep_time()

    def _evaluate(self, metrics: MetricsLog | None) -> None:
        start = time.monotonic()
        self.scores = self.ranks.agree(self.trainable.evaluate())
        self._evaluation = time.monotonic() - start
        self._evaluated += self._evaluation
        if metrics is not None:
            metrics.write("heldout", self.step, **self.scores)
            now = f"step {self.step:,} of {self.steps:,}"
            log.info(f"{now}: held-out {format_scores(self.scores, self.trainable.metric)}")
            if self._has_ended() and self.step < self.steps:
                log.info(f"{now}: {self.trainable.metric} no longer rises, so the run ends here")
        self._timed_from = (time.monotonic(), self.tokens)

    def _write_speed(self, metrics: MetricsLog) -> None:
        """Write the tokens per second since the last row, evaluations and checkpoints aside."""
        then, tokens = self._timed_from
        rate = (self.tokens - tokens) / max(1e-9, time.monotonic() - then)
        share = self._compute_share_of_peak(rate)
        peak_share = {} if share is None else {"share_of_peak": share}
        metrics.write(
            "speed", self.step, seconds=self.seconds, tokens_per_second=rate, **peak_share
        )


def _make_nonfinite_error(what: str) -> NonFiniteError:
    return NonFiniteError(
        f"the {what} not finite, so the run stopped and saved nothing of it; start another --out "
        "with a lower train.optimizer.learning_rate or a longer train.schedule.warmup"
    )


# ------------------------------------------------------------------------------------------ metrics


_KEYS = ("total", "count", "correct")


class Window:
    """The sums of some steps; saved, so that a resumed run writes the same rows."""

    def __init__(self) -> None:
        self._steps = 0
        self._gradient_norm: Tensor | float = 0.0
        self._sums: dict[str, dict[str, Tensor]] = {}
        """The sums of each loss: total (nats), count, correct, and its extras."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any], device: torch.device) -> Window:
        window = cls()
        window._steps, window._gradient_norm = state["steps"], state["gradient_norm"]
        for name in state["total"]:
            sums = {key: state[key][name] for key in _KEYS if name in state[key]}
            sums |= state["extras"][name]
            window._sums[name] = {
                key: torch.tensor(value, dtype=_choose_dtype(device), device=device)
                for key, value in sums.items()
            }
        return window

    def add(self, name: str, loss: Loss) -> None:
        sums = self._sums.setdefault(name, {})
        judged = {} if loss.correct is None else {"correct": loss.correct}
        for key, value in {
            "total": loss.total,
            "count": loss.count,
            **judged,
            **loss.extras,
        }.items():
            sums[key] = sums.get(key, 0.0) + value.detach().to(_choose_dtype(value.device))

    def end_step(self, gradient_norm: Tensor) -> None:
        self._gradient_norm = self._gradient_norm + gradient_norm.to(
            _choose_dtype(gradient_norm.device)
        )
        self._steps += 1

    def state(self, ranks: Ranks = ALONE) -> dict[str, Any]:
        """Return the sums over the processes as plain numbers; this waits for the accelerator.

        Steps and gradient norm are not summed: every process takes the same steps, on the same
        summed gradient.
        """
        totals = torch.stack(
            [value for sums in self._sums.values() for value in sums.values()] or [torch.zeros(())]
        )
        ranks.sum([totals])
        numbers = iter(totals.tolist())
        sums = {name: {key: next(numbers) for key in sums} for name, sums in self._sums.items()}
        return {
            "steps": self._steps,
            "gradient_norm": float(self._gradient_norm),
            "total": {name: values["total"] for name, values in sums.items()},
            "count": {name: int(values["count"]) for name, values in sums.items()},
            "correct": {
                name: int(values["correct"]) for name, values in sums.items() if "correct" in values
            },
            "extras": {
                name: {key: values[key] for key in values if key not in _KEYS}
                for name, values in sums.items()
            },
        }

    def compute_row(self, weights: Mapping[str, float], ranks: Ranks = ALONE) -> dict[str, float]:
        sums = self.state(ranks)
        counts = {name: max(1, count) for name, count in sums["count"].items()}
        row = {
            "loss": sum(
                weights[name] * (total / counts[name]) for name, total in sums["total"].items()
            )
        }
        for name, count in sums["count"].items():
            if not count:  # such as of pairs without a label
                continue
            right = {"accuracy": sums["correct"][name]} if name in sums["correct"] else {}
            values = {"loss": sums["total"][name], **right, **sums["extras"][name]}
            row |= {f"{name}_{key}": value / count for key, value in values.items()}
        row["gradient_norm"] = sums["gradient_norm"] / max(1, self._steps)
        return row


def _choose_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
