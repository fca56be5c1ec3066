"""The time that a config costs: budgets in steps, seconds per step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from litebert.config import Config, MaskingConfig, SequenceConfig, cost
from litebert.model.pretrainer import Pretrainer
from litebert.train import measure as module
from litebert.train.device import choose
from litebert.train.measure import Rate, count_steps, make_batch, measure
from toys.pretraining import config

CPU = choose("float32", "cpu")


def budget(text: str, **train: Any) -> Config:
    return config(train={"budget": text, **train})


# ------------------------------------------------------------------------------------------ budgets


def test_budgets_in_steps_and_tokens_need_no_measurement() -> None:
    assert count_steps(budget("5k steps"), None) == 5000
    assert count_steps(budget("1M tokens"), None) == round(1e6 / (8 * 32))
    assert count_steps(budget("1M tokens", batch="100 sequences"), None) == round(1e6 / 3200)
    assert count_steps(budget("1 tokens"), None) == 1


@pytest.mark.parametrize("every", ["10%", "50%", "7 steps", "1000 steps"])
def test_a_time_budget_pays_for_steps_and_evaluations(every: str) -> None:
    rate = Rate(((0.25, 0.1), (0.75, 0.3)), evaluation_seconds=2.0)
    assert rate.mean_step_seconds == pytest.approx(0.25)
    point = budget("10m", evaluate_every=every)
    steps = count_steps(point, rate)
    evaluations = steps / int(every.split()[0]) if "steps" in every else 100 / int(every[:-1])
    assert steps * 0.25 + evaluations * 2.0 == pytest.approx(600, abs=2.5)
    assert count_steps(point, Rate(((1.0, 1e9),), 1e9)) == 1
    assert count_steps(budget("10m"), rate, spent=300) == pytest.approx(
        count_steps(budget("5m"), rate), abs=1
    )


# ----------------------------------------------------------------------------- share of the machine


def test_the_share_of_the_products_speed_counts_both_passes_and_the_depth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = config(encoder={"layers": 6}, train={"depth_schedule": ((0.5, 2),)})
    monkeypatch.setattr(module, "measure_matmul_speed", lambda *_: 1e9)
    share = module.build_share_of_peak(point, CPU)
    assert share(1000, 6) == pytest.approx(3 * cost.forward_flops(point) * 1000 / 1e9)
    assert share(1000, 2) < share(1000, 6) / 2
    fast = 2e9 / (3 * cost.forward_flops(point))
    assert share(fast, 6) == pytest.approx(1), "what the machine has shown, it can do"
    assert share(fast / 2, 6) == pytest.approx(0.5)


def test_products_are_as_fast_as_the_machine_multiplies() -> None:
    """The speed is above what one multiplier gives, and below what no machine does."""
    assert 1e8 < module.measure_matmul_speed(CPU, seconds=0.05) < 1e15


# --------------------------------------------------------------------------------------------- time


def test_the_clock_is_read_at_every_depth_of_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    depths: list[int | None] = []
    forward = Pretrainer.forward

    def spy(self: Pretrainer, batch: Any, layers: int | None = None) -> Any:
        assert batch.attention_mask is not None, "as in nearly every batch of text"
        depths.append(layers)
        return forward(self, batch, layers)

    monkeypatch.setattr(Pretrainer, "forward", spy)
    point = config(encoder={"layers": 6}, train={"depth_schedule": ((0.25, 1), (0.6, 3))})
    rate = measure(point, CPU, seconds=0.0)
    assert [share for share, _ in rate.step_seconds] == pytest.approx([0.25, 0.35, 0.4])
    assert depths == [1, 1, 3, 3, 6, 6, None, None, None]
    assert all(seconds > 0 for _, seconds in rate.step_seconds)
    assert rate.evaluation_seconds > 0


def test_accumulation_multiplies_the_passes_and_not_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a clock that moves by one second at every look, passes take one and updates one."""
    clock = iter(range(10_000))
    monkeypatch.setattr(vars(module)["time"], "perf_counter", lambda: float(next(clock)))
    whole = measure(config(train={"batch": "12 sequences"}), CPU, seconds=0.0)
    parts = measure(config(train={"batch": "12 sequences", "micro_batch": 3}), CPU, seconds=0.0)
    assert whole.mean_step_seconds == 1 + 1
    assert parts.mean_step_seconds == 4 + 1
    # 16 held-out sequences at once, for masked words and again for sentence pairs.
    assert whole.evaluation_seconds == parts.evaluation_seconds == 2
    many = measure(config(train={"evaluate_sequences": 320}, objectives=("mlm",)), CPU, seconds=0.0)
    assert many.evaluation_seconds == 10


def test_a_made_up_batch_is_what_the_config_asks() -> None:
    point = config(sequences=SequenceConfig(length=48), masking=MaskingConfig(rate=0.2))
    batch = make_batch(point, 10)
    assert batch.input_ids.shape == batch.token_type_ids.shape == (10, 48)
    assert batch.attention_mask is None
    assert len(batch.masked_labels) == len(batch.masked_positions) == 96
    assert (batch.masked_positions.diff() > 0).all()
    assert 0 <= int(batch.masked_positions.min()) <= int(batch.masked_positions.max()) < 480
    assert int(batch.input_ids.max()) < 400
    assert torch.equal(batch.input_ids, make_batch(point, 10).input_ids)
