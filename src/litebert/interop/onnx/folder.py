"""Folders of an exported model: `model.onnx`, and what other software and litebert need beside it
to answer with it.

    model.onnx          the network (graph.py); above 1.8 GB its weights are in model.onnx_data
    config.json, tokenizer.json ...
                        as in a Hugging Face folder, which the ORTModelFor* classes of optimum and
                        sentence-transformers (backend="onnx") open
    recipe.json, task.json
                        as in a litebert model folder, for litebert's own engines
    README.md           the model card

A file is checked against PyTorch before its folder takes its name, and nothing stays of one that
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.base.errors import ModelError
from litebert.config import cost
from litebert.config.finetuning import HeadName
from litebert.config.serialization import to_json
from litebert.interop import files
from litebert.interop.cards import CARD, make_exported_card
from litebert.interop.hf.families import ALBERT, MODERNBERT
from litebert.interop.hf.settings import choose_family, settings_of
from litebert.interop.hf.writing import parts_of, write_tokenizer
from litebert.interop.loaded import LoadedModel
from litebert.interop.onnx.exports import write_digests
from litebert.interop.onnx.graph import choose_head, compute_outputs, has_blocks, onnx_model
from litebert.interop.onnx.operators import Int8Graph
from litebert.interop.onnx.session import session
from litebert.interop.sentence_modules import VectorSettings, carry_modules, vector_settings
from litebert.model.task_model import TaskModel

NAME = "model.onnx"
ALLOWED = 1e-4
"""The largest difference from PyTorch in float32, relative to the largest output where that is
above 1.
"""
_LARGEST_FILE = 1_800_000_000
"""Bytes; a file of protobuf cannot hold 2 GB."""
_LENGTHS = (5, 24, 64)
"""The lengths of the rows that are compared, in tokens, as far as the model has positions. With
windows there is a longer one, for in these nothing may lie outside a window.
"""
_CLASSES = {
    "backbone": "ForFeatureExtraction",
    "mlm": "ForMaskedLM",
    "sequence": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
"""How the names of optimum's classes end."""


class Written(NamedTuple):
    """The result of `save_onnx`, as `answer.export.Export` has it."""

    size: int
    notes: tuple[str, ...]
    head: HeadName
    difference: float
    opened_by: str


def save_onnx(
    loaded: LoadedModel,
    folder: str | Path,
    head: HeadName | None = None,
    *,
    int8: bool = False,
    check: Callable[[Path], None] = lambda file: None,
) -> Written:
    """Write the folder of an export, all of it or nothing.

    Args:
        head: as in `onnx_model`.
        int8: with weights of 8 bits.
        check: called with the file before the folder takes its name; what it raises leaves nothing
            behind.
    """
    head = choose_head(loaded, head)
    opened_by = f"ORTModel{_CLASSES[head]}"
    with files.new_folder(Path(folder)) as partial:
        graph = Int8Graph(multiplies_words=head == "mlm") if int8 else None
        model = onnx_model(loaded, head, graph)
        import onnx  # which the line above asks for in words

        onnx.save_model(
            model,
            partial / NAME,
            save_as_external_data=sum(len(tensor.raw_data) for tensor in model.graph.initializer)
            > _LARGEST_FILE,
            location=f"{NAME}_data",
        )
        size = sum(file.stat().st_size for file in partial.glob(f"{NAME}*"))
        difference, scale = differences(loaded, partial / NAME, head)
        if not int8 and not difference <= ALLOWED * max(1.0, scale):
            raise ModelError(
                f"the exported {loaded.path} differs from PyTorch by {difference:.2g} in "
                f"outputs of up to {scale:.2g}, "
                "so nothing was written; check the operations of your own parts"
            )
        check(partial / NAME)
        write_digests(partial / NAME)
        settings, notes = _settings(loaded, head)
        shape, longest = loaded.config.encoder, loaded.config.encoder.max_positions
        is_long = cost.window_block(shape, longest) > 0
        if any(shape.window_map()) and is_long and not has_blocks(loaded.model.encoder):
            notes.append(
                "the graph scores all pairs of tokens, although the model has windows: with a "
                f"text of {longest:,} tokens, a layer takes "
                f"{4 * shape.heads * longest**2 / 1e9:.2g} GB for them; for long texts take the "
                "engine torch"
            )
        files.write_settings(partial / "config.json", settings)
        (partial / "recipe.json").write_text(to_json(loaded.config), encoding="utf-8")
        task = _task_record(loaded, head)
        if task:
            files.write_settings(partial / "task.json", task)
        if loaded.tokenizer is None:
            notes.append(
                f"{loaded.path} has no tokenizer, so whoever uses the export has to "
                "tokenize on their own"
            )
        write_tokenizer(loaded, partial)
        (partial / CARD).write_text(make_exported_card(loaded, head, opened_by), encoding="utf-8")
        notes += carry_modules(loaded, partial, foreign=head == "backbone")
    return Written(size, tuple(notes), head, difference, opened_by)


def _task_record(loaded: LoadedModel, head: HeadName) -> dict[str, Any]:
    """The task.json of an export, from which litebert answers; a backbone without a task gives
    vectors.
    """
    if isinstance(loaded.model, TaskModel) and head == loaded.head:
        return loaded.task_record
    if head != "backbone":
        return {}
    try:
        settings = vector_settings(loaded) or VectorSettings()
    except ModelError:  # of modules that are carried along, and nothing here computes
        return {}
    vectors: dict[str, Any] = {"pooling": settings.pooling, "normalized": settings.normalized}
    if settings.map is not None:
        vectors["map"] = settings.map_folder
    length = settings.length or int(loaded.task.get("length", loaded.config.sequences.length))
    return {
        "task": "pairs",
        "kind": head,
        "classes": 0,
        "problem": "similarity",
        "pair": True,
        "length": length,
        "vectors": vectors,
    }


def _settings(loaded: LoadedModel, head: HeadName) -> tuple[dict[str, Any], list[str]]:
    model, notes, shape = loaded.model, list[str](), loaded.config.encoder
    tuned = model if isinstance(model, TaskModel) else None
    try:
        family, _ = choose_family(shape, parts_of(loaded), tuned.dense if tuned else None)
    except ModelError:
        family = MODERNBERT if shape.norm == "pre" else ALBERT
        notes.append(
            "no class of transformers computes this network, so config.json says "
            f"{family.model_type}: enough for optimum, which computes what model.onnx says"
        )
    labels = loaded.labels if tuned and len(loaded.labels) == tuned.classes else ()
    named = labels or tuple(f"LABEL_{i}" for i in range(tuned.classes if tuned else 0))
    problem, pooling = loaded.task.get("problem"), tuned.pooling if tuned else "cls"
    return settings_of(family, shape, head, loaded.tokenizer, named, 0.0, problem, pooling), notes


def differences(loaded: LoadedModel, file: Path, head: HeadName) -> tuple[float, float]:
    """The largest difference of a file's outputs from PyTorch's on random rows with padding, and
    the largest output.
    """
    running, worst, scale = session(file), 0.0, 0.0
    loaded.model.to("cpu").eval()
    for inputs in random_rows(loaded, head):
        expected = compute_outputs(
            loaded, head, {name: torch.from_numpy(array) for name, array in inputs.items()}
        )
        outputs = running.run(
            list(expected), {value.name: inputs[value.name] for value in running.get_inputs()}
        )
        real = inputs["attention_mask"].astype(bool)
        for tensor, output in zip(expected.values(), outputs, strict=True):
            by_token = head in ("tokens", "span", "mlm", "backbone")
            wanted = tensor.numpy()[real] if by_token else tensor.numpy()
            actual = output[real] if by_token else output
            gap = float(np.abs(actual - wanted).max())
            worst, scale = (
                (max(worst, gap) if gap == gap else gap),
                max(scale, float(np.abs(wanted).max())),
            )
    return worst, scale


def random_rows(loaded: LoadedModel, head: HeadName) -> Iterator[dict[str, NDArray[np.int64]]]:
    """Four random rows of each length, one of them padded, in two segments; with choices, four of
    one example.
    """
    shape, random = loaded.config.encoder, np.random.default_rng(0)
    pad = 0 if loaded.tokenizer is None else loaded.tokenizer.pad_id
    lengths: tuple[int, ...] = _LENGTHS
    if any(shape.window_map()):  # longer than a window, and than four blocks
        block = cost.window_block(shape, shape.max_positions)
        lengths += (2 * (shape.window // 2) + 8, 4 * block + 1)
    for length in sorted({min(length, shape.max_positions) for length in lengths}):
        ends = np.array([length, length, max(2, length // 2), length])
        mask = np.arange(length) < ends[:, None]
        ids = np.where(mask, random.integers(0, shape.vocab_size, mask.shape), pad)
        types = (
            (np.arange(length) >= length // 3) & mask
            if shape.segment_types > 1
            else np.zeros_like(mask)
        )
        rows = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        yield {
            name: array.astype(np.int64)[None if head == "choice" else ...]
            for name, array in rows.items()
        }
