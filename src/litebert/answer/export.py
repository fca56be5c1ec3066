"""`litebert export`: a folder that answers on CPUs, with its weights as they are read; or one for
ONNX. Of fewer bits, what they cost on labeled files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from litebert.answer.evaluation import score_predictor
from litebert.answer.model import Model, load
from litebert.answer.predicting import Predictor
from litebert.base import progress
from litebert.base.errors import ConfigError, ModelError, nearest
from litebert.config.finetuning import HeadName
from litebert.interop.files import new_folder
from litebert.interop.models import write_litebert
from litebert.interop.names import WEIGHTS
from litebert.interop.sentence_modules import truncate_saved_vectors
from litebert.kernels.network import find_odd_size, find_refusal
from litebert.kernels.packing import DTYPES, Dtype
from litebert.tasks.splits import Source

Format = Literal["litebert", "onnx"]
MAX_DROP = 0.5
"""Points that fewer bits may cost by default."""


@dataclass(frozen=True)
class Drop:
    """The cost of fewer bits on labeled files, in points (percent of a share)."""

    metric: str
    before: float
    """The score in float32."""
    after: float
    """The score of the export."""
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

    path: Path
    dtype: Dtype
    """The type of its weights."""
    size: int
    """Bytes of the file of the weights, or of the graph."""
    notes: tuple[str, ...]
    drop: Drop | None
    """None where nothing was scored."""
    head: HeadName | None = None
    """The head of a graph."""
    difference: float | None = None
    """The largest difference of a graph from PyTorch in float32 over random rows."""
    opened_by: str = ""
    """The class of optimum that opens a graph."""


@progress.task("exporting")
def export(
    model: str | Path,
    out: str | Path,
    *,
    format: Format = "litebert",  # noqa: A002
    dtype: Dtype | None = None,
    head: HeadName | None = None,
    data: Source | None = None,
    max_drop: float = MAX_DROP,
    vector_size: int | None = None,
    **options: Any,
) -> Export:
    """Write a model folder for answers: by litebert's own engine, with the weights as it reads
    them; or as ONNX, checked against PyTorch, for ONNX Runtime, OpenVINO and what builds on them.

    Args:
        format: litebert or onnx.
        dtype: of the weights: by default int8, and of ONNX float32; bfloat16 of litebert alone.
        head: of ONNX: of a fine-tuned model its own or backbone; of a pretrained one mlm or
            backbone, by default mlm if trained.
        data: labeled files that the model is scored on in float32 and as it is exported, if that
            differs; read as `litebert evaluate` does.
        max_drop: with `data`, how many points of the task's main score may be lost.
        vector_size: as in `convert`.
        options: of `litebert evaluate`, those that say how `data` is read.

    Raises:
        ConfigError: a format or a type that there is not, `data` with weights in float32, a `head`
            of another format than ONNX, a negative `max_drop`, an option that the task does not
            take, or vectors that have no such size.
        ModelError: the model cannot be opened or exported, `out` is taken or cannot be
            written, a graph differs from the model, or fewer bits cost more than `max_drop`. Then
            nothing is written.
        DataError: a labeled file is missing or malformed.
        MissingExtraError: of ONNX, onnx, onnxruntime or torch is not installed.
    """
    if format not in ("litebert", "onnx"):
        raise ConfigError(f"format is '{format}'; {nearest(format, ['litebert', 'onnx'])}")
    known = DTYPES if format == "litebert" else ("float32", "int8")
    dtype = dtype or ("int8" if format == "litebert" else "float32")
    if dtype not in known:
        raise ConfigError(f"dtype of {format} is '{dtype}'; {nearest(dtype, known)}")
    if head is not None and format == "litebert":
        raise ConfigError(
            "an export of litebert has all heads of its model; give --format onnx too, or leave "
            "head (--head) out"
        )
    if data is not None:
        _refuse_scoring(head, dtype)
    if not max_drop >= 0:
        raise ConfigError(f"max_drop is {max_drop}; give 0 points or more")
    engine = "torch" if format == "onnx" else "compiled"
    opened = load(model, engine=engine, dtype="float32", device="cpu", exit_confidence="off")
    opened = truncate_saved_vectors(opened, vector_size)
    drops = list[Drop]()

    def check(make: Callable[[Path], Predictor], place: Path) -> None:
        if data is not None:
            drops.append(_measure_drop(opened.predictor, make(place), data, options))
            if not drops[-1].points <= max_drop:
                raise ModelError(
                    f"{dtype} costs more than {max_drop:g} points: {drops[-1]}; nothing was "
                    "written: allow more with max_drop (--max-drop), or export another dtype "
                    "(--dtype)"
                )

    if format == "litebert":
        return _write(opened, Path(out), dtype, check, drops)
    from litebert.answer.engines.onnx_runtime import OnnxRuntime
    from litebert.interop.onnx.folder import save_onnx

    def make(graph: Path) -> Predictor:
        return replace(opened.predictor, runtime=OnnxRuntime.of_file(graph))

    int8 = dtype == "int8"
    written = save_onnx(opened, out, head, int8=int8, check=lambda file: check(make, file))
    return Export(
        written.path,
        dtype,
        written.size,
        written.notes,
        drops[0] if drops else None,
        written.head,
        written.difference,
        written.opened_by,
    )


def _write(
    opened: Model,
    out: Path,
    dtype: Dtype,
    check: Callable[[Callable[[Path], Predictor], Path], None],
    drops: list[Drop],
) -> Export:
    config = opened.config.encoder
    if refusal := find_refusal(config) or find_odd_size(config, dtype):
        raise ConfigError(f"{refusal}; give another --dtype, or --format onnx")
    with new_folder(out) as partial:
        notes = write_litebert(opened, partial, dtype)
        exported = load(partial, engine="compiled", exit_confidence="off")
        check(lambda place: exported.predictor, partial)
        size = (partial / WEIGHTS).stat().st_size
    return Export(out, dtype, size, notes, drops[0] if drops else None)


def _refuse_scoring(head: HeadName | None, dtype: Dtype) -> None:
    """Refuse labeled files where nothing of an export can be scored on them."""
    if dtype == "float32":
        raise ConfigError(
            "data is scored where weights have fewer bits than float32; give another dtype "
            "(--dtype), or leave data (--data) out"
        )
    if head == "backbone":
        raise ConfigError(
            "a backbone has no score to lose; leave data (--data) out, or export the "
            "model's own head"
        )


def _measure_drop(
    plain: Predictor, exported: Predictor, data: Source, options: dict[str, Any]
) -> Drop:
    """Score a model and its export on the same labeled files."""
    before, after = (score_predictor(each, data, **options) for each in (plain, exported))
    assert before.examples is not None
    metric, points = plain.task.metric, 1.0 if plain.task.percent else 100.0
    if metric not in before.scores:  # of pairs without scores, which have others
        metric = next(iter(before.scores))
    return Drop(
        metric, points * before.scores[metric], points * after.scores[metric], before.examples
    )
