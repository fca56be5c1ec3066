"""`litebert export`: an ONNX folder of a model, and of one with 8-bit weights what these cost on
labeled files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litebert.answer.engines.onnx_runtime import OnnxRuntime
from litebert.answer.evaluation import score_predictor
from litebert.answer.model import Model, load
from litebert.base import progress
from litebert.base.errors import ConfigError, ModelError
from litebert.config.finetuning import HeadName
from litebert.interop.onnx.folder import Written, save_onnx
from litebert.interop.sentence_modules import truncate_saved_vectors
from litebert.tasks.splits import Source

MAX_DROP = 0.5
"""Points that 8-bit weights may cost by default."""


@dataclass(frozen=True)
class Drop:
    """The cost of 8-bit weights on labeled files, in points (percent of a share)."""

    metric: str
    before: float
    """The score in float32, by PyTorch."""
    after: float
    """The score with 8-bit weights, by ONNX Runtime."""
    examples: int

    @property
    def points(self) -> float:
        """Points that were lost; below 0 where the score rose."""
        return self.before - self.after

    def __str__(self) -> str:
        return (
            f"{self.metric} goes from {self.before:.2f} to {self.after:.2f} on "
            f"{self.examples:,} examples"
        )


@dataclass(frozen=True)
class Export:
    """The folder that `export` wrote."""

    written: Written
    drop: Drop | None
    """None where nothing was scored."""


@progress.task("exporting")
def export(
    model: str | Path,
    out: str | Path,
    *,
    head: HeadName | None = None,
    int8: bool = False,
    data: Source | None = None,
    max_drop: float = MAX_DROP,
    vector_size: int | None = None,
    **options: Any,
) -> Export:
    """Write a model folder as ONNX, checked against PyTorch, for ONNX Runtime, OpenVINO and what
    builds on them.

    Args:
        head: of a fine-tuned model its own or backbone; of a pretrained one mlm or backbone, by
            default mlm if trained.
        int8: store the weights in 8 bits, once per shared weight.
        data: with `int8`, labeled files that the model is scored on before and after; read as
            `litebert evaluate` does.
        max_drop: with `data`, how many points of the task's main score may be lost.
        vector_size: as in `convert`.
        options: of `litebert evaluate`, those that say how `data` is read.

    Raises:
        ConfigError: `data` without `int8`, a negative `max_drop`, an option that the task does
            not take, or vectors that have no such size.
        ModelError: the model cannot be opened or exported, `out` is taken or cannot be
            written, the file differs from the model, or 8 bits cost more than `max_drop`. Then
            nothing is written.
        DataError: a labeled file is missing or malformed.
        MissingExtraError: onnx or onnxruntime is not installed.
    """
    if data is not None:
        _refuse_scoring(head, int8)
    if not max_drop >= 0:
        raise ConfigError(f"max_drop is {max_drop}; give 0 points or more")
    opened, drops = load(model, engine="torch", device="cpu", exit_confidence="off"), list[Drop]()
    opened = truncate_saved_vectors(opened, vector_size)

    def check(file: Path) -> None:
        if data is not None:
            drops.append(_measure_drop(opened, file, data, options))
            if not drops[-1].points <= max_drop:
                raise ModelError(
                    f"8-bit weights cost more than {max_drop:g} points: {drops[-1]}; nothing was "
                    "written: allow more with max_drop (--max-drop), or export float32"
                )

    written = save_onnx(opened, out, head, int8=int8, check=check)
    return Export(written, drops[0] if drops else None)


def _refuse_scoring(head: HeadName | None, int8: bool) -> None:
    """Refuse labeled files where nothing of an export can be scored on them."""
    if not int8:
        raise ConfigError(
            "data is scored with 8-bit weights only; give int8 (--int8) too, or leave data out"
        )
    if head == "backbone":
        raise ConfigError(
            "a backbone has no score to lose; leave data (--data) out, or export the "
            "model's own head"
        )


def _measure_drop(model: Model, file: Path, data: Source, options: dict[str, Any]) -> Drop:
    """Score a model and a file of it on the same labeled files."""
    plain = model.predictor
    before, after = (
        score_predictor(predictor, data, **options)
        for predictor in (plain, replace(plain, runtime=OnnxRuntime.of_file(file)))
    )
    assert before.examples is not None
    metric, points = plain.task.metric, 1.0 if plain.task.percent else 100.0
    if metric not in before.scores:  # of pairs without scores, which have others
        metric = next(iter(before.scores))
    return Drop(
        metric, points * before.scores[metric], points * after.scores[metric], before.examples
    )
