"""The teacher of a task: a fine-tuned model whose answers a student learns beside the labels, or in
their place. Its layers may be learned too.

Its logits for every training row are computed once, before training, and stay in the run folder in
half precision (numbers in single precision). So a step costs as much as without a teacher, and a
run that continues learns the very same. It may have any width and depth, and for answers about
whole texts a tokenizer of its own. Where layers are compared it has the student's tokenizer, and
computes beside the student.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.errors import ConfigError, ModelError
from litebert.finetuning.items import EncodedPart, Item
from litebert.finetuning.outputs import Output, restore_output
from litebert.finetuning.scoring import (
    EVALUATION_TOKENS,
    Logits,
    compute_logits,
    name_metric,
    score_parts,
)
from litebert.finetuning.task import Task
from litebert.finetuning.text_outputs import Number
from litebert.interop import LoadedModel, files, read_folder
from litebert.interop.onnx.exports import find_exported_graph
from litebert.model.distillation import Teacher
from litebert.registry import ENGINES
from litebert.storage import sha256_of, write_whole
from litebert.tokenizer import Tokenizer
from litebert.train.teacher import compute_fingerprint

if TYPE_CHECKING:
    from litebert.finetuning.prepared import PreparedTask

log = logging.getLogger("litebert")

KEPT = "teacher.safetensors"
"""Name of the file of a teacher's logits in a run folder."""


@dataclass(frozen=True)
class TaskTeacher:
    """A fine-tuned model that answers the same task."""

    source: str
    loaded: LoadedModel
    fingerprint: str
    tokenizer: Tokenizer
    output: Output
    """The teacher's output, with the teacher's order of labels."""
    order: tuple[int, ...]
    """The place of each of the task's labels among its own; empty where the order is the same."""
    computed: dict[str, Logits] = field(default_factory=dict)
    """Its answers so far, by what `_compute_key` calls them; seeds share them."""

    @cached_property
    def layers(self) -> Teacher:
        """Its encoder, whose states and relations are learned."""
        return Teacher(self.loaded.model.encoder, None, self.fingerprint)

    def require_layers(self, words: Tokenizer, length: int) -> None:
        """See to it that its layers can be compared with those of a student.

        Raises:
            ModelError: it has another tokenizer, fewer positions, or is an exported graph.
        """
        fix = "set distill.states and distill.relations to 0"
        if find_exported_graph(self.loaded.path) is not None:
            raise ModelError(
                f"the teacher {self.source} is an exported graph, which shows its answers only; "
                f"name the folder it was exported from, or {fix}"
            )
        if self.tokenizer.fingerprint != words.fingerprint:
            raise ModelError(
                f"the teacher {self.source} has another tokenizer than the student, and layers are "
                f"compared token by token; name one with the student's tokenizer, or {fix}"
            )
        if length > (positions := self.loaded.config.encoder.max_positions):
            raise ModelError(
                f"the teacher {self.source} reads {positions} tokens, and rows have up to "
                f"{length}; set --length to what it reads, or {fix}"
            )


def open_teacher(source: str | Path, task: Task[Any], words: Tokenizer, length: int) -> TaskTeacher:
    """Open the teacher in a folder: a fine-tuned run, a litebert or Hugging Face folder of one, or
    an exported one.

    Args:
        words: the student's tokenizer.
        length: the student's longest row.

    Raises:
        ConfigError: the task has no answers that a teacher could give.
        ModelError: it cannot be opened, is not fine-tuned, has no tokenizer, answers another kind
            of question or with other labels, or has another tokenizer where answers stand at
            tokens.
    """
    if not task.output.width:
        raise ConfigError(
            f"the {task.name} task learns vectors, and a teacher gives answers; leave --teacher out"
        )
    graph = find_exported_graph(Path(source))
    loaded = read_folder(source, task.output.head, lazy=graph is not None)
    record = loaded.task_record
    if not record:
        raise ModelError(f"the teacher {source} is not fine-tuned; fine-tune it on this task first")
    output, wanted = restore_output(record), task.output
    if output.name != wanted.name or output.width != wanted.width:
        answers = f"'{output.name}' ({output.width} numbers)"
        raise ModelError(
            f"the teacher {source} answers with {answers} and this task with '{wanted.name}' "
            f"({wanted.width}); fine-tune the teacher on this task"
        )
    if loaded.labels and set(loaded.labels) != set(wanted.labels):
        raise ModelError(
            f"the teacher {source} has the labels {', '.join(loaded.labels)}, and this task has "
            f"{', '.join(wanted.labels)}; fine-tune it on this task, or rename the labels in its "
            "config.json or task.json"
        )
    order = tuple(loaded.labels.index(name) for name in wanted.labels) if loaded.labels else ()
    tokenizer = _require_tokenizer(source, loaded, wanted, words, length)
    fingerprint = sha256_of(graph) if graph is not None else compute_fingerprint(loaded)
    return TaskTeacher(
        str(source),
        loaded,
        fingerprint,
        tokenizer,
        output,
        () if order == tuple(range(len(order))) else order,
    )


def _require_tokenizer(
    source: str | Path, loaded: LoadedModel, wanted: Output, words: Tokenizer, length: int
) -> Tokenizer:
    """Return the teacher's tokenizer, which is the student's where answers stand at tokens.

    Raises:
        ModelError: it has none, another one, or fewer positions than the student's rows.
    """
    if (tokenizer := loaded.tokenizer) is None:
        raise ModelError(
            f"the teacher {source} has no tokenizer; put the one it was trained with there"
        )
    if not wanted.reads_cls and tokenizer.fingerprint != words.fingerprint:
        raise ModelError(
            f"the teacher {source} has another tokenizer than the student, and answers of "
            f"'{wanted.name}' stand at tokens; name a teacher with the student's tokenizer"
        )
    if not wanted.reads_cls and length > loaded.config.encoder.max_positions:
        raise ModelError(
            f"the teacher {source} reads {loaded.config.encoder.max_positions} tokens, and rows "
            f"have up to {length}; set --length to what it reads"
        )
    return tokenizer


def encode_unlabeled(
    task: Task[Any], examples: list[Any], words: Tokenizer, length: int
) -> EncodedPart:
    """Encode texts of a task without labels.

    Raises:
        ConfigError: its answers are not about whole texts, or there is no text.
    """
    if task.output.head != "sequence":
        raise ConfigError(
            "--unlabelled adds texts to tasks that answer with a class, labels or a number; this "
            f"one answers with '{task.output.name}', so leave it out"
        )
    if not examples:
        raise ConfigError(
            "--unlabelled names files without a single text; name others, or leave it out"
        )
    with progress.task("tokenizing the unlabelled texts"):
        items = task.encode(examples, words, length)
    return EncodedPart(
        "unlabelled", examples, [Item(item.example, item.rows, None) for item in items]
    )


def compute_teacher_logits(
    teacher: TaskTeacher, prepared: PreparedTask, folder: Path, device: str
) -> Logits:
    """Return the teacher's logits for the training rows and then the unlabelled ones, from the
    folder, or computed and written into it.
    """
    parts = [prepared.train, *([prepared.unlabelled] if prepared.unlabelled else [])]
    key = _compute_key(teacher, parts)
    if key in teacher.computed:
        _write_logits(folder / KEPT, key, teacher.computed[key])
    elif (saved := _read_logits(folder / KEPT, key)) is not None:
        teacher.computed[key] = saved
    else:
        exported = find_exported_graph(teacher.loaded.path) is not None  # which answers on the CPU
        engine = (
            ENGINES["onnx"](teacher.loaded, "cpu")
            if exported
            else ENGINES["torch"](teacher.loaded, device)
        )
        dev = prepared.dev[0]
        with progress.task("asking the teacher"):
            answers = [_compute_logits(teacher, engine, prepared, part) for part in (*parts, dev)]
        scores = score_parts(prepared.task, (dev,), {dev.name: answers.pop()})
        name = name_metric(prepared.task)
        log.info(f"the teacher {teacher.source} scores {name} {scores[name]:.4g} on {dev.name}")
        dtype = np.float32 if isinstance(teacher.output, Number) else np.float16
        teacher.computed[key] = [
            row_logits.astype(dtype) for part_logits in answers for row_logits in part_logits
        ]
        _write_logits(folder / KEPT, key, teacher.computed[key])
    return teacher.computed[key]


def _compute_logits(
    teacher: TaskTeacher, engine: Any, prepared: PreparedTask, part: EncodedPart
) -> Logits:
    task, length = prepared.task, prepared.config.length
    positions = teacher.loaded.config.encoder.max_positions
    items = part.items
    read = min(positions, max(length, int(teacher.loaded.task_record.get("length", length))))
    whole = (
        read > length and teacher.output.reads_cls
    )  # answers by token must be those of the student's tokens
    if (
        teacher.tokenizer.fingerprint != prepared.start.tokenizer.fingerprint
        or length > positions
        or whole
    ):
        encoded = {
            item.example: item for item in task.encode(part.examples, teacher.tokenizer, read)
        }
        items = [encoded[item.example] for item in items]
    most = getattr(engine, "tokens", EVALUATION_TOKENS)
    logits = compute_logits(
        engine.logits, items, teacher.output, teacher.tokenizer.pad_id, positions, most=most
    )
    return (
        [row_logits[..., list(teacher.order)] for row_logits in logits] if teacher.order else logits
    )


def _compute_key(teacher: TaskTeacher, parts: list[EncodedPart]) -> str:
    """Compute the key of a teacher's answers: a hash of the teacher and the rows."""
    digest = hashlib.sha256(teacher.fingerprint.encode() + repr(teacher.order).encode())
    for part in parts:
        for row in (row for item in part.items for row in item.rows):
            digest.update(row.ids.tobytes() + b"|")
    return digest.hexdigest()


def _write_logits(file: Path, key: str, logits: Logits) -> None:
    if _read_logits(file, key) is not None:
        return
    flat, sizes = (
        np.concatenate([row_logits.ravel() for row_logits in logits]),
        np.array([row_logits.shape for row_logits in logits], np.int32),
    )
    tensors = {"logits": torch.from_numpy(flat), "shapes": torch.from_numpy(sizes)}
    with write_whole(file) as aside:
        files.write_tensors(aside, tensors, {"key": key})


def _read_logits(file: Path, key: str) -> Logits | None:
    if files.read_metadata(file).get("key") != key:
        return None
    try:
        tensors = {name: tensor.numpy() for name, tensor in files.read_tensors(file).items()}
    except ModelError:
        log.warning(f"{file} is damaged; the teacher is asked again")
        return None
    shapes: NDArray[np.int32] = tensors["shapes"]
    ends = np.cumsum(shapes.prod(axis=1))
    return [
        row_logits.reshape(shape)
        for row_logits, shape in zip(np.split(tensors["logits"], ends[:-1]), shapes, strict=True)
    ]
