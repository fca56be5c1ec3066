"""`litebert export`: a folder that answers on CPUs, with its weights as they are read; or one for
ONNX. Of fewer bits, what they cost on labeled files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from litebert.answer.evaluation import score_predictor
from litebert.answer.model import load
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
    if data is not None and dtype == "float32":
        raise ConfigError(
            "data is scored where weights have fewer bits than float32; give another dtype "
            "(--dtype), or leave data (--data) out"
        )
    if data is not None and head == "backbone":
        raise ConfigError(
            "a backbone has no score to lose; leave data (--data) out, or export the "
            "model's own head"
        )
    if not max_drop >= 0:
        raise ConfigError(f"max_drop is {max_drop}; give 0 points or more")
    engine = "torch" if format == "onnx" else "compiled"
    opened = load(model, engine=engine, dtype="float32", device="cpu", exit_confidence="off")
    opened = truncate_saved_vectors(opened, vector_size)
    drop: Drop | None = None

    def check(make_predictor: Callable[[], Predictor]) -> None:
        nonlocal drop
        if data is None:
            return
        plain = opened.predictor
        sides = plain, make_predictor()
        before, after = (score_predictor(each, data, **options) for each in sides)
        assert before.examples is not None
        metric, points = plain.task.metric, 1.0 if plain.task.percent else 100.0
        if metric not in before.scores:  # of pairs without scores, which have others
            metric = next(iter(before.scores))
        scores = before.scores[metric], after.scores[metric]
        drop = Drop(metric, points * scores[0], points * scores[1], before.examples)
        if not drop.points <= max_drop:
            raise ModelError(
                f"{dtype} costs more than {max_drop:g} points: {drop}; nothing was "
                "written: allow more with max_drop (--max-drop), or export another dtype "
                "(--dtype)"
            )

    if format == "litebert":
        config = opened.config.encoder
        if refusal := find_refusal(config) or find_odd_size(config, dtype):
            raise ConfigError(f"{refusal}; give another --dtype, or --format onnx")
        with new_folder(Path(out)) as partial:
            notes = write_litebert(opened, partial, dtype)
            exported = load(partial, engine="compiled", exit_confidence="off")
            check(lambda: exported.predictor)
            size = (partial / WEIGHTS).stat().st_size
        return Export(Path(out), dtype, size, notes, drop)
    from litebert.answer.engines.onnx_runtime import OnnxRuntime
    from litebert.interop.onnx.folder import save_onnx

    def check_graph(graph: Path) -> None:
        check(lambda: replace(opened.predictor, runtime=OnnxRuntime.of_file(graph)))

    written = save_onnx(opened, out, head, int8=dtype == "int8", check=check_graph)
    return Export(Path(out), dtype, drop=drop, **written._asdict())
