"""Small runs for the tests of the loop: a config that trains in a second, a run that a function
watches, a loop, what its folder holds at the end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from litebert.config import (
    Config,
    EncoderConfig,
    OptimizerConfig,
    ScheduleConfig,
    SequenceConfig,
    TrainConfig,
    replace,
)
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.train import memory
from litebert.train.device import choose
from litebert.train.loop import Loop
from litebert.train.pretrain import Pretrained, TrainablePretrainer, build_pretrainer
from litebert.train.pretrain import pretrain as pretrain_unwatched
from litebert.train.schedule import Plan

MIB = 1 << 20
CHECKPOINT = ("model.safetensors", "optimizer.safetensors")
ENCODER = """
[encoder]
embedding_size = 8
hidden_size = 16
layers = 2
heads = 2
intermediate_size = 32
max_positions = 64
hidden_dropout = 0.1
attention_dropout = 0.1

[sequences]
length = 32
"""
"""The same network as `config` gives, with dropout, as the beginning of a recipe file."""


def config(
    *, train: dict[str, Any] | None = None, encoder: dict[str, Any] | None = None, **fields: Any
) -> Config:
    """Two shared layers of H 16 in float32, twelve steps of eight short sequences; any field may be
    changed.
    """
    shape = EncoderConfig(
        vocab_size=400,
        embedding_size=8,
        hidden_size=16,
        layers=2,
        heads=2,
        intermediate_size=32,
        max_positions=64,
    )
    loop = TrainConfig(
        budget="12 steps",
        batch="8 sequences",
        precision="float32",
        save_every="100000 steps",
        evaluate_every="100%",
        evaluate_sequences=16,
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-2),
        schedule=ScheduleConfig(name="linear", warmup=0.1),
    )
    return Config(
        name=fields.pop("name", "tiny"),
        encoder=replace(shape, **(encoder or {})),
        sequences=fields.pop("sequences", SequenceConfig(length=32)),
        train=replace(loop, **(train or {})),
        **fields,
    )


def pretrain(
    *words: Any, on_step: Callable[[Loop[Batch]], None] | None = None, **options: Any
) -> Pretrained:
    """`litebert.pretrain` with a function that is called after every step of the run."""
    with patch("litebert.train.pretrain.Loop", partial(Loop, on_step=on_step)):
        return pretrain_unwatched(*words, **options)


def result(run: Path) -> dict[str, bytes]:
    """The bytes of the last checkpoint's tensors and of the metrics: what two equal runs have in
    common.
    """
    last = max((run / "checkpoints").glob("step-*"))
    return {name: (last / name).read_bytes() for name in CHECKPOINT} | {
        "step": last.name.encode(),
        "metrics": (run / "metrics.jsonl").read_bytes(),
    }


def loop_of(
    point: Config, data: Path, folder: Path, steps: int = 12, **changes: Any
) -> Loop[Batch]:
    """A loop ready to run, outside a run folder's checks."""
    machine = choose("float32", "cpu")
    trainable = TrainablePretrainer(
        point, build_pretrainer(point, machine), Shards.open(data), machine
    )
    folder.mkdir(parents=True, exist_ok=True)
    changes = {"depth_schedule": point.train.depth_schedule, **changes}
    return Loop(
        trainable, point.train, Plan((steps,)), point.batch_sequences, machine, folder, **changes
    )


def leave_at(step: int, number: int = signal.SIGTERM) -> Callable[[Loop[Any]], None]:
    """For `on_step`: a signal reaches this process after the step."""
    return lambda loop: signal.raise_signal(number) if loop.step == step else None


def with_free(
    monkeypatch: pytest.MonkeyPatch, count: int, each: int = MIB, again: int | None = None
) -> None:
    """So many free bytes, of which a sequence takes `each`, or `again` with recomputation; no
    estimate suffices.
    """
    monkeypatch.setattr(memory, "_PEAK", 1000)
    monkeypatch.setattr(memory, "measure_free_memory", lambda _: count)
    monkeypatch.setattr(
        memory,
        "measure_peak_bytes",
        lambda point, _: each if again is None or not point.train.recompute else again,
    )
