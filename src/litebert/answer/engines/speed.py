"""The speed of every engine with a model on this machine, and how far their outputs are apart.

Engines compute the same rows of random tokens in turns, so that a busy moment slows all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from litebert.answer.model import Model
from litebert.answer.predicting import Predictor
from litebert.base.errors import ModelError
from litebert.base.registry import ENGINES
from litebert.kernels.packing import DTYPES, Dtype
from litebert.tasks.values import EncodedRow, Item

ROWS = 64
SHORTEST, LONGEST = 8, 64
"""Tokens of a row, as sentences have them."""
SECONDS = 2.0
"""Time that is measured for each engine, about."""
LEAST_ROUNDS, MOST_ROUNDS = 2, 20

Outputs = Sequence[NDArray[np.float32]] | NDArray[np.float32]
"""The output for each row: logits, of all its tokens for some heads, or a sentence vector."""
Compute = Callable[[], Outputs]
Way = tuple[str, Dtype]
"""An engine and the type of its products."""


@dataclass(frozen=True)
class EngineSpeed:
    """How an engine computes a model."""

    engine: str
    dtype: str
    texts_per_second: float | None = None
    """The median of several rounds; None where it cannot compute the model."""
    difference: float | None = None
    """The largest difference of a logit, or of a number of a vector, to the first engine's."""
    fault: str = ""
    """Why it cannot compute the model."""


def measure_engines(model: Model) -> list[EngineSpeed]:
    """Measure every registered engine that can compute a model, and say why the others cannot:
    logits of a fine-tuned model, through all layers, or vectors of any other.
    """
    model.require_tokenizer()
    draw, shape = np.random.default_rng(0), model.config.encoder
    longest = min(LONGEST, shape.max_positions)
    rows = [
        EncodedRow(
            draw.integers(0, shape.vocab_size, length).astype(np.int32), np.zeros(length, np.int32)
        )
        for length in draw.integers(min(SHORTEST, longest), longest + 1, ROWS)
    ]
    gives_vectors = model.task_record.get("kind", "backbone") == "backbone"
    computations: dict[Way, Compute] = {}
    outputs: dict[Way, Outputs] = {}
    faults: dict[Way, str] = {}
    ways: list[Way] = [
        (name, dtype)
        for name, engine in ENGINES.items()
        for dtype in engine.capabilities.dtypes or DTYPES[:1]
    ]
    for way in ways:
        try:
            engine, dtype = way
            answering = replace(model, engine=engine, dtype=dtype, exit_confidence="off")
            compute: Compute
            if gives_vectors:
                compute = partial(answering.vectors_by("mean", False).of_rows, rows)
            else:
                compute = partial(_compute_logits, answering.predictor, rows)
            outputs[way] = compute()  # the first pass does what is done once
            computations[way] = compute
        except Exception as error:  # the errors of libraries share no base
            faults[way] = str(error).partition("\n")[0] or type(error).__name__
    if not computations:
        reasons = "; ".join(
            f"{engine}, {dtype}: {fault}" for (engine, dtype), fault in faults.items()
        )
        raise ModelError(f"no engine can compute {model.path} ({reasons})")
    seconds: dict[Way, list[float]] = {way: [] for way in computations}
    end = time.perf_counter() + SECONDS * len(computations)
    for turn in range(MOST_ROUNDS):
        if turn >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        for way, compute in computations.items():
            start = time.perf_counter()
            compute()
            seconds[way].append(time.perf_counter() - start)
    rates = {way: ROWS / statistics.median(times) for way, times in seconds.items()}
    reference = next(iter(outputs.values()))
    differences = {
        way: max(float(np.abs(a - b).max()) for a, b in zip(output, reference, strict=True))
        for way, output in outputs.items()
    }
    return [
        EngineSpeed(*way, rates.get(way), differences.get(way), faults.get(way, "")) for way in ways
    ]


def _compute_logits(predictor: Predictor, rows: Sequence[EncodedRow]) -> Outputs:
    each = 2 if predictor.task.apart else 1
    return predictor.logits([Item(number, (row,) * each, None) for number, row in enumerate(rows)])[
        0
    ]
