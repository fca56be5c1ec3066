"""The learning rate and the depth as pure functions of the step, and the plan of a run's steps.
Steps count from 0 and `steps` (T) is the length of the run; nothing is kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from litebert.config import ScheduleConfig

REWARM = 0.05
"""Share of an extension over which the rate rises again."""


@dataclass(frozen=True)
class Plan:
    """The steps of a run, and where its schedules stand at each of them.

    Where a budget in time was counted anew in the middle of a run, what was left of the plan is
    spread over more steps or fewer: each schedule goes on from where it stood to its end.
    """

    ends: tuple[int, ...]
    """The steps at which the run ended before each of its extensions, and will end."""
    corrections: tuple[tuple[int, int, int], ...] = ()
    """(step, the end until then, the end from then on), in order."""

    @classmethod
    def of_record(cls, fields: Mapping[str, Any]) -> Plan:
        """Read the plan of a run.json; ValueError, or what `fault_of` describes, if it is none."""
        ends = [int(extension["from_step"]) for extension in fields.get("extensions", [])]
        corrections = [
            (int(each["step"]), int(each["from"]), int(each["to"]))
            for each in fields.get("corrections", [])
        ]
        plan = cls((*ends, int(fields["steps"])), tuple(corrections))
        steps = [step for step, *_ in corrections]
        if (
            [0, *plan.ends] != sorted({0, *plan.ends})
            or steps != sorted({*steps})
            or not all(0 < step < min(before, after) for step, before, after in corrections)
        ):
            raise ValueError(f"steps {plan.steps}")
        return plan

    @property
    def steps(self) -> int:
        return self.ends[-1]

    @cached_property
    def planned_ends(self) -> tuple[int, ...]:
        """`ends` as they were planned, which is what the schedules count."""
        planned, total = [], 0
        for start, end in pairwise((0, *self.ends)):
            total += next((aim for step, aim, _ in self.corrections if start <= step < end), end)
            total -= start
            planned.append(total)
        return tuple(planned)

    def correct(self, step: int, end: int) -> Plan:
        return Plan((*self.ends[:-1], end), (*self.corrections, (step, self.steps, end)))

    def locate(self, step: int) -> float:
        start, origin, pace = next(
            (start, origin, pace)
            for start, _, origin, pace in reversed(self._pieces)
            if start <= step
        )
        return origin + pace * (step - start)

    def find(self, planned: float) -> int:
        """Return the first step that stands at a planned step, or beyond it."""
        step = 0
        for start, end, origin, pace in self._pieces:
            step = start + max(0, math.ceil((planned - origin) / pace))
            if step <= end:
                break
        return step

    def spread(self, work: Callable[[float], float]) -> Callable[[float], float]:
        """Return the work of a number of first steps, given that of a number of planned ones."""

        def first(done: float) -> float:
            return sum(
                (work(origin + pace * (min(done, end) - start)) - work(origin)) / pace
                for start, end, origin, pace in self._pieces
                if start < done
            )

        return first if self.corrections else work

    @cached_property  # for each step asks
    def _pieces(self) -> list[tuple[int, int, float, float]]:
        """The first step and the end of each part of one pace, the planned step at which it begins,
        and the planned steps that a step of it covers."""
        pieces: list[tuple[int, int, float, float]] = []
        origin: float = 0
        for (start, end), planned_end in zip(
            pairwise((0, *self.ends)), self.planned_ends, strict=True
        ):
            for step, aim, _ in self.corrections:
                if start <= step < end:
                    pace = (planned_end - origin) / (aim - start)
                    pieces.append((start, step, origin, pace))
                    start, origin = step, origin + pace * (step - start)
            if start < end:
                pieces.append((start, end, origin, (planned_end - origin) / (end - start)))
            origin = planned_end
        return pieces


def compute_extended_factor(config: ScheduleConfig, step: float, ends: Sequence[int]) -> float:
    """Compute the factor of an extended run: `ends` are the steps at which it ended, and will end
    now.

    An extension reaches the schedule of a run that was as long from the start within the first
    `REWARM` of its steps (re-warming and re-decaying: Ibrahim et al. 2024, "Simple and Scalable
    Strategies to Continually Pre-train Large Language Models").
    """
    part = next(i for i, end in enumerate(ends) if step < end)
    target = compute_factor(config, step, ends[part])
    if part == 0:
        return target
    start = ends[part - 1]
    last = compute_extended_factor(config, start - 1, ends[:part])
    return last + (target - last) * min(
        1.0, (step - start + 1) / count_rewarm_steps(ends[part] - start)
    )


def count_rewarm_steps(steps: int) -> int:
    return max(1, round(REWARM * steps))


def compute_factor(config: ScheduleConfig, step: float, steps: int) -> float:
    """Compute the learning rate of step `step` as a share of the peak.

    `tf_linear` and `product_linear` start at exactly 0, as BERT, ALBERT and ELECTRA did. The others
    warm up by (step + 1) / W, and their first rate of 0 would be that of step T.
    """
    assert 0 <= step < steps
    warmup = round(config.warmup * steps) if config.warmup < 1 else round(config.warmup)
    if config.name == "tf_linear":
        return step / warmup if step < warmup else 1 - step / steps
    if config.name == "product_linear":
        return (1 - step / steps) * (min(1.0, step / warmup) if warmup else 1.0)
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if config.name == "trapezoid":
        start = steps - round(config.cooldown * steps)
        # The run may be so short that both slopes meet.
        return min(rise, 1 - _compute_progress(step, start, steps))
    done = _compute_progress(step, warmup, steps)
    if config.name == "cosine":
        done = (1 - math.cos(math.pi * done)) / 2
    return min(rise, 1 - done)


def _compute_progress(step: float, start: int, end: int) -> float:
    return max(0, step - start) / max(1, end - start)


def find_depth(
    schedule: tuple[tuple[float, int], ...], layers: int, step: float, steps: int
) -> int:
    """The layers of a step: those of the first pair whose share is not over, then all."""
    return next((depth for share, depth in schedule if step < round(share * steps)), layers)
