"""A budget in time holds, whatever was measured before the run; by a simulated clock."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import Config, replace
from litebert.train import measure, metrics
from litebert.train.measure import Rate
from litebert.train.ranks import Ranks
from litebert.train.schedule import Plan
from toys.killed import Killed
from toys.pretraining import config, pretrain, result

BUDGET = 60.0
STEP = 0.5
"""The seconds of a step that are measured before each run: 120 steps."""


class Machine:
    """Steps that take simulated seconds by their work, and evaluations."""

    def __init__(self, seconds: Callable[[int], float], evaluation: float = 0.0) -> None:
        self.seconds, self.evaluation, self.now = seconds, evaluation, 100.0
        self.kill_at: int | None = None
        self.lengths: list[int] = []

    def on_step(self, loop: Any) -> None:
        planned, total = loop.plan.locate(loop.step - 1), loop.plan.planned_ends[-1]
        work = (loop.work(planned + 1) - loop.work(planned)) / loop.work(total) * total
        self.now += work * self.seconds(loop.step - 1)
        rows = loop.trainable.batch(loop.step - 1, slice(0, 8))
        self.lengths.append(rows.input_ids.shape[1])
        if loop.step == self.kill_at:
            raise Killed

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        self.now += self.evaluation
        return {"mlm_loss": 1.0}


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], Machine]:
    def put(machine: Machine) -> Machine:
        clock = SimpleNamespace(monotonic=lambda: machine.now, perf_counter=time.perf_counter)
        for module in ("loop", "measure", "pretrain"):
            monkeypatch.setattr(f"litebert.train.{module}.time", clock)
        monkeypatch.setattr("litebert.train.pretrain.evaluate_split", machine.evaluate)
        monkeypatch.setattr(
            "litebert.train.measure.measure", lambda *_, **__: Rate(((1.0, STEP),), 0.0)
        )
        return machine

    return put


def point(**train: Any) -> Config:
    return config(train={"budget": f"{BUDGET:g}s", "save_every": "20 steps", **train})


@pytest.mark.parametrize(
    ("seconds", "evaluation"),
    [
        pytest.param(lambda _: 4.7 * STEP, 0.0, id="slow"),
        pytest.param(lambda _: STEP / 3.3, 0.0, id="fast", marks=pytest.mark.thorough),
        pytest.param(lambda _: STEP / 25, 0.0, id="far faster than measured"),
        pytest.param(lambda step: STEP * (1 if step else 40), 0.0, id="compiles"),
        pytest.param(
            lambda step: STEP * (1 if step < 40 else 1.8),
            0.0,
            id="grows busy",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            lambda step: STEP * (0.6 + step % 3 * 0.4), 0.0, id="uneven", marks=pytest.mark.thorough
        ),
        pytest.param(lambda _: STEP, 2.0, id="evaluates slowly", marks=pytest.mark.thorough),
    ],
)
def test_a_run_ends_when_its_time_does(
    seconds: Callable[[int], float],
    evaluation: float,
    simulate: Callable[[Machine], Machine],
    tiny_data: Path,
    tmp_path: Path,
) -> None:
    machine = simulate(Machine(seconds, evaluation))
    run = pretrain(point(evaluate_every="20%"), tiny_data, tmp_path, on_step=machine.on_step)
    assert run.outcome.finished
    assert run.outcome.seconds == pytest.approx(BUDGET, rel=0.035)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["steps"] == run.steps == len(machine.lengths)
    rows = metrics.read(tmp_path / "metrics.jsonl")
    rates = [row["learning_rate"] for row in rows if row["kind"] == "train"]
    assert max(rates) > 15 * rates[-1], "the rate comes to its end"
    rise = rates.index(max(rates))
    assert rates == [*sorted(rates[:rise]), *sorted(rates[rise:], reverse=True)]
    assert len([row for row in rows if row["kind"] == "heldout"]) == 5


def test_a_run_whose_start_took_all_its_time_ends_soon(
    simulate: Callable[[Machine], Machine], tiny_data: Path, tmp_path: Path
) -> None:
    machine = simulate(Machine(lambda step: STEP * (1 if step else 115)))
    run = pretrain(point(evaluate_every="100%"), tiny_data, tmp_path, on_step=machine.on_step)
    assert run.outcome.finished
    assert run.outcome.seconds < 1.2 * BUDGET
    assert run.steps > 20


def test_a_time_that_was_measured_well_is_kept(
    simulate: Callable[[Machine], Machine], tiny_data: Path, tmp_path: Path
) -> None:
    machine = simulate(Machine(lambda step: STEP * (0.995 + step % 2 * 0.01)))
    run = pretrain(point(), tiny_data, tmp_path / "time", on_step=machine.on_step)
    assert run.steps == 120
    assert "corrections" not in json.loads((tmp_path / "time" / "run.json").read_text())
    steps = pretrain(point(budget="120 steps"), tiny_data, tmp_path / "steps")
    assert steps.steps == 120
    same = ["model.safetensors", "optimizer.safetensors"]
    assert [result(tmp_path / "time")[name] for name in same] == [
        result(tmp_path / "steps")[name] for name in same
    ]


def test_schedules_keep_their_shares_and_a_killed_run_continues_bit_for_bit(
    simulate: Callable[[Machine], Machine], tiny_data: Path, tmp_path: Path
) -> None:
    grown = point(length_schedule=((0.5, 8), (0.75, 16)), depth_schedule=((0.5, 1),))

    def seconds(step: int) -> float:
        return STEP * (1.7 if step < 30 else 1.2)

    whole = simulate(Machine(seconds))
    run = pretrain(grown, tiny_data, tmp_path / "whole", on_step=whole.on_step)
    corrections = json.loads((tmp_path / "whole" / "run.json").read_text())["corrections"]
    assert corrections
    assert run.outcome.seconds == pytest.approx(BUDGET, rel=0.035)
    shares = [whole.lengths.count(length) / run.steps for length in (8, 16, 32)]
    plan = Plan((run.steps,), tuple((c["step"], c["from"], c["to"]) for c in corrections))
    assert shares == pytest.approx(
        [
            plan.find(60) / run.steps,
            (plan.find(90) - plan.find(60)) / run.steps,
            1 - plan.find(90) / run.steps,
        ]
    )
    assert [plan.locate(plan.find(share)) for share in (60, 90)] == pytest.approx([60, 90], abs=2)
    rows = metrics.read(tmp_path / "whole" / "metrics.jsonl")
    depths = [row["layers"] for row in rows if row["kind"] == "train"]
    assert depths == sorted(depths)
    assert depths.index(2) == pytest.approx(plan.find(60), abs=1)

    # Killed before a checkpoint holds the last correction; and before any does, with batches that a
    # process makes.
    machine = simulate(Machine(seconds))
    machine.kill_at = corrections[-1]["step"] + 1
    with pytest.raises(Killed):
        pretrain(grown, tiny_data, tmp_path / "cut", on_step=machine.on_step)
    for path in ("run.json", "recipe.json", "tokenizer"):
        (tmp_path / "bare").mkdir(exist_ok=True)
        copy = shutil.copytree if path == "tokenizer" else shutil.copy
        copy(tmp_path / "whole" / path, tmp_path / "bare" / path)
    for name, processes in (("cut", 0), ("bare", 1)):
        machine = simulate(Machine(seconds))
        freed = replace(grown, train=replace(grown.train, batch_processes=processes))
        pretrain(freed, tiny_data, tmp_path / name, on_step=machine.on_step)
        assert result(tmp_path / name) == result(tmp_path / "whole")

    # Killed later, it looks at the clock at other steps, and still ends in time.
    machine = simulate(Machine(seconds))
    machine.kill_at = run.steps - 20
    with pytest.raises(Killed):
        pretrain(grown, tiny_data, tmp_path / "late", on_step=machine.on_step)
    machine = simulate(Machine(seconds))
    done = pretrain(grown, tiny_data, tmp_path / "late", on_step=machine.on_step)
    assert done.outcome.seconds == pytest.approx(BUDGET, rel=0.035)
    record = json.loads((tmp_path / "late" / "run.json").read_text())
    assert record["corrections"][: len(corrections)] == corrections


def test_an_extension_keeps_its_time_too(
    simulate: Callable[[Machine], Machine], tiny_data: Path, tmp_path: Path
) -> None:
    machine = simulate(Machine(lambda _: 2 * STEP))
    first = pretrain(point(), tiny_data, tmp_path, on_step=machine.on_step)
    longer = pretrain(point(), tiny_data, tmp_path, add_budget="30s", on_step=machine.on_step)
    assert longer.outcome.seconds - first.outcome.seconds == pytest.approx(30, rel=0.05)
    plan = Plan.of_record(json.loads((tmp_path / "run.json").read_text()))
    assert plan.ends == (first.steps, longer.steps)
    assert plan.planned_ends == (120, 180)


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=3),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 400)), max_size=4),
)
def test_a_plan_passes_every_planned_step_once(
    parts: list[int], turns: list[tuple[float, int]]
) -> None:
    ends = [sum(parts[: number + 1]) for number in range(len(parts))]
    plan, start = Plan(tuple(ends)), (0, *ends)[-2]
    for share, more in turns:
        step = start + 1 + int(share * (plan.steps - start - 1))
        if step >= plan.steps:
            break
        plan, start = plan.correct(step, step + more), step
    record = {
        "steps": plan.steps,
        "extensions": [{"from_step": end} for end in plan.ends[:-1]],
        "corrections": [{"step": s, "from": old, "to": new} for s, old, new in plan.corrections],
    }
    assert Plan.of_record(record) == plan
    assert plan.planned_ends == tuple(ends)
    places = [plan.locate(step) for step in range(plan.steps + 1)]
    assert places[0] == 0
    assert places == sorted(set(places))
    assert places[-1] == pytest.approx(ends[-1])
    if not plan.corrections:
        assert places == list(range(plan.steps + 1))
    for planned in (0, ends[-1] // 3, ends[-1] // 2):
        step = plan.find(planned)
        assert plan.locate(step) >= planned - 1e-6
        assert step == 0 or plan.locate(step - 1) < planned + 1e-6
    work = plan.spread(lambda done: done * done)
    assert work(0) == 0
    assert all(work(step) < work(step + 1) for step in range(plan.steps))


def test_a_gpu_gets_the_batch_that_learns_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens a second grow with the batch until 16,384 tokens fill the device."""

    def measured(point: Config, *_: Any) -> Rate:
        tokens = point.batch_sequences * point.sequences.length
        return Rate(((1.0, max(tokens, 16_384) / 1e6),), 0.0)

    monkeypatch.setattr(measure, "measure", measured)
    plain = config(train={"batch": "auto", "budget": "80s"})
    chosen = {}
    for kind in ("cpu", "cuda"):
        machine = SimpleNamespace(device=SimpleNamespace(type=kind), answers_at_once=kind == "cpu")
        chosen[kind] = measure.choose_batch(plain, machine, Ranks()) * plain.sequences.length  # type: ignore[arg-type]
    assert chosen["cpu"] < 16_384 <= chosen["cuda"] <= 32_768


def test_a_gpu_that_holds_not_even_the_least_batch_leaves_it_to_the_check_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measured(*_: Any) -> Rate:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(measure, "measure", measured)
    plain = config(train={"batch": "auto", "budget": "1000 tokens"})
    machine = SimpleNamespace(device=SimpleNamespace(type="cuda"), answers_at_once=False)
    assert measure.choose_batch(plain, machine, Ranks(size=4)) == 4  # type: ignore[arg-type]
