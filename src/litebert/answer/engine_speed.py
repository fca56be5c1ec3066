"""The speed of every engine with a model on this machine, and how far their outputs are apart.

Engines compute the same rows of random tokens in turns, so that a busy moment slows all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines import Engine
from litebert.answer.predictor import Model
from litebert.answer.vectors import SentenceEncoder
from litebert.errors import ModelError
from litebert.finetuning.items import EncodedRow
from litebert.finetuning.rows import by_length, pad_rows
from litebert.finetuning.scoring import EVALUATION_TOKENS
from litebert.registry import ENGINES

ROWS = 64
SHORTEST, LONGEST = 8, 64
"""Tokens of a row, as sentences have them."""
SECONDS = 2.0
"""Time that is measured for each engine, about."""
LEAST_ROUNDS, MOST_ROUNDS = 2, 20

Outputs = Sequence[NDArray[np.float32]] | NDArray[np.float32]
"""The output for each row: logits, of all its tokens for some heads, or a sentence vector."""
Compute = Callable[[], Outputs]


@dataclass(frozen=True)
class EngineSpeed:
    """How an engine computes a model."""

    engine: str
    texts_per_second: float | None = None
    """The median of several rounds; None where it cannot compute the model."""
    difference: float | None = None
    """The largest difference of a logit, or of a number of a vector, to the first engine's."""
    fault: str = ""
    """Why it cannot compute the model."""


def measure_engines(model: Model, device: str = "auto") -> list[EngineSpeed]:
    """Measure every registered engine that can compute a model, and say why the others cannot.

    A fine-tuned model computes logits, through all layers. Any other model computes vectors.

    Raises:
        ModelError: the model has no tokenizer, or no engine can compute it.
    """
    if model.tokenizer is None:
        raise ModelError(f"{model.path} has no tokenizer; put the one it was trained with there")
    positions, rows = model.config.encoder.max_positions, _draw_rows(model)
    computations: dict[str, Compute] = {}
    outputs: dict[str, Outputs] = {}
    faults: dict[str, str] = {}
    for name in ENGINES:
        try:
            compute: Compute
            if model.task_record.get("kind", "backbone") == "backbone":
                encoder = SentenceEncoder.of(model, name, device, "mean", False)
                compute = partial(encoder.of_rows, rows)
            else:
                engine = ENGINES[name](model, device)
                compute = partial(_compute_logits, engine, rows, model.tokenizer.pad_id, positions)
            outputs[name] = compute()  # the first pass does what is done once
            computations[name] = compute
        except Exception as error:  # the errors of libraries share no base
            faults[name] = str(error).partition("\n")[0] or type(error).__name__
    if not computations:
        reasons = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise ModelError(f"no engine can compute {model.path} ({reasons})")
    rates = _measure_rates(computations)
    reference = next(iter(outputs.values()))
    differences = {name: _largest_difference(output, reference) for name, output in outputs.items()}
    return [
        EngineSpeed(name, rates.get(name), differences.get(name), faults.get(name, ""))
        for name in ENGINES
    ]


def _draw_rows(model: Model) -> list[EncodedRow]:
    """The same rows of random tokens for all engines."""
    draw, shape = np.random.default_rng(0), model.config.encoder
    longest = min(LONGEST, shape.max_positions)
    lengths = draw.integers(min(SHORTEST, longest), longest + 1, ROWS)
    return [
        EncodedRow(
            draw.integers(0, shape.vocab_size, length).astype(np.int32), np.zeros(length, np.int32)
        )
        for length in lengths
    ]


def _compute_logits(
    engine: Engine, rows: Sequence[EncodedRow], pad_id: int, positions: int
) -> list[NDArray[np.float32]]:
    """The logits of each row, in batches as the engine wants them."""
    most, padding = getattr(engine, "tokens", EVALUATION_TOKENS), getattr(engine, "padding", None)
    logits: dict[int, NDArray[np.float32]] = {}
    for places in by_length([len(row.ids) for row in rows], most, padding=padding):
        batch = engine.logits(pad_rows([rows[place] for place in places], pad_id, positions))
        for place, values in zip(places, batch, strict=True):
            logits[place] = values if values.ndim == 1 else values[: len(rows[place].ids)]
    return [logits[place] for place in range(len(rows))]


def _measure_rates(computations: dict[str, Compute]) -> dict[str, float]:
    """Rows a second of each engine, by the median of rounds in which all take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in computations}
    end = time.perf_counter() + SECONDS * len(computations)
    for turn in range(MOST_ROUNDS):
        if turn >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        for name, compute in computations.items():
            start = time.perf_counter()
            compute()
            seconds[name].append(time.perf_counter() - start)
    return {name: ROWS / statistics.median(times) for name, times in seconds.items()}


def _largest_difference(outputs: Outputs, reference: Outputs) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(outputs, reference, strict=True))
