"""A fine-tuned model that teaches a task: a student learns its answers beside the labels, or in
their place. Its layers may be learned too. `finetuning.teachers` has all teachers of a run.

It may have any width and depth, and for answers about whole texts a tokenizer of its own. Where
layers are compared it has the student's tokenizer, and computes beside the student.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.errors import ModelError
from litebert.finetuning.items import EncodedPart
from litebert.finetuning.outputs import Output, restore_output
from litebert.finetuning.scoring import Logits, compute_logits
from litebert.finetuning.task import Task
from litebert.interop import LoadedModel, read_folder
from litebert.interop.names import find_exported_graph
from litebert.model.distillation import Teacher
from litebert.registry import ENGINES
from litebert.storage import sha256_of
from litebert.tokenizer import Tokenizer
from litebert.train.teacher import compute_fingerprint

if TYPE_CHECKING:
    from litebert.finetuning.prepared import PreparedTask


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

    @property
    def key(self) -> bytes:
        """The facts that its answers to a row depend on."""
        return self.fingerprint.encode() + repr(self.order).encode()

    def compute_logits(
        self, prepared: PreparedTask, parts: Sequence[EncodedPart], device: str, folder: Path
    ) -> list[Logits]:
        """Compute the logits of the items of each part, in the task's order of labels."""
        exported = find_exported_graph(self.loaded.path) is not None  # which answers on the CPU
        runtime = ENGINES["onnx" if exported else "torch"](
            self.loaded, "cpu" if exported else device
        )
        return [_compute_logits(self, runtime, prepared, part) for part in parts]

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


def _compute_logits(
    teacher: TaskTeacher, runtime: Any, prepared: PreparedTask, part: EncodedPart
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
    most = runtime.capabilities.tokens
    logits = compute_logits(
        runtime.logits, items, teacher.output, teacher.tokenizer.pad_id, positions, most=most
    )
    return (
        [row_logits[..., list(teacher.order)] for row_logits in logits] if teacher.order else logits
    )
