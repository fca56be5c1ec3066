"""The teachers of a run: one fine-tuned model, several, the baseline, or a model of sentence
vectors. Of several, a student learns the mean of their answers.

Their logits for every training row are computed once, before training, and stay in the run folder
in half precision (numbers in single precision). So a step costs as much as without a teacher, and a
run that continues learns the very same.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.errors import ConfigError, ModelError, require
from litebert.finetuning.baselines import fit_baseline
from litebert.finetuning.items import EncodedPart, Item
from litebert.finetuning.scoring import Logits, name_metric, score_parts
from litebert.finetuning.similarity import Similarity
from litebert.finetuning.task import Task
from litebert.finetuning.task_teacher import TaskTeacher, open_teacher
from litebert.finetuning.text_outputs import Number
from litebert.finetuning.vector_teacher import VectorTeacher, delete_blocks, open_vector_teacher
from litebert.interop import files
from litebert.storage import write_whole
from litebert.tokenizer import Tokenizer
from litebert.train.teacher import FINGERPRINT, PATH, build_record

if TYPE_CHECKING:
    from litebert.finetuning.prepared import PreparedTask

log = logging.getLogger("litebert")

KEPT = "teacher.safetensors"
"""Name of the file of the teachers' logits in a run folder."""
BASELINE = "baseline"
"""The name of the baseline among teachers; a folder of this name is written ./baseline."""


@dataclass(frozen=True)
class BaselineTeacher:
    """The baseline of a task, fitted on the labels of the training rows, as a teacher."""

    task: Task[Any]
    examples: Sequence[Any] = ()
    """The examples of the training part."""

    source = BASELINE

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 (hex) of what it learns from: its kind and the training rows."""
        model, items = self.task.output.baseline(), self.task.plain_items(self.examples)
        assert model is not None
        digest = hashlib.sha256(model.name.encode())
        for item in items:
            digest.update(repr((item.texts, item.target)).encode("utf-8", "backslashreplace"))
        return digest.hexdigest()

    @property
    def key(self) -> bytes:
        """The facts that its answers to a row depend on."""
        return self.fingerprint.encode()

    def compute_logits(
        self, prepared: PreparedTask, parts: Sequence[EncodedPart], device: str, folder: Path
    ) -> list[Logits]:
        """Fit it, and compute the logits of the items of each part."""
        fitted = fit_baseline(self.task, self.examples)
        answers = [fitted.logits(part.examples) for part in parts]
        return [
            [logits[item.example] for item in part.items]
            for part, logits in zip(parts, answers, strict=True)
        ]


Member: TypeAlias = "TaskTeacher | BaselineTeacher | VectorTeacher"


@dataclass(frozen=True)
class TaskTeachers:
    """The teachers of a run, in the order in which they were named."""

    members: tuple[Member, ...]
    computed: dict[str, Logits] = field(default_factory=dict)
    """Their answers so far, by what `_compute_key` calls them; seeds share them."""

    def with_examples(self, examples: Sequence[Any]) -> TaskTeachers:
        """Return the teachers, of whom a baseline knows the examples that it learns from."""
        members = tuple(
            replace(member, examples=examples) if isinstance(member, BaselineTeacher) else member
            for member in self.members
        )
        return replace(self, members=members)

    def require_network(self) -> TaskTeacher:
        """Return the only teacher, whose layers can be compared.

        Raises:
            ConfigError: there are several, or it is the baseline.
        """
        fix = "name one fine-tuned model, or set distill.states and distill.relations to 0"
        require(
            len(self.members) == 1,
            f"the layers of one teacher are compared, and --teacher names {len(self.members)}; "
            f"{fix}",
        )
        (member,) = self.members
        if isinstance(member, BaselineTeacher):
            raise ConfigError(f"--teacher {BASELINE} has no layers to compare; {fix}")
        if isinstance(member, VectorTeacher):
            raise ConfigError(
                "a teacher of sentence vectors teaches vectors and no layers; set distill.states "
                "and distill.relations to 0"
            )
        return member

    @property
    def vector_width(self) -> int:
        """The numbers of a vector of a teacher of sentence vectors; 0 of other teachers."""
        return max(
            member.width if isinstance(member, VectorTeacher) else 0 for member in self.members
        )

    @property
    def fingerprint(self) -> str | list[str]:
        """The fingerprint of the only teacher, or the fingerprints of several."""
        fingerprints = [member.fingerprint for member in self.members]
        return fingerprints[0] if len(fingerprints) == 1 else fingerprints

    def build_record(self) -> dict[str, Any]:
        """Build the fields of finetune.json that name the teachers; of several they hold lists."""
        records = [_build_record(member) for member in self.members]
        if len(records) == 1:
            return records[0]
        names = dict.fromkeys(name for record in records for name in record)
        return {name: [record.get(name) for record in records] for name in names}


def _build_record(member: Member) -> dict[str, Any]:
    if isinstance(member, BaselineTeacher):
        return {PATH: BASELINE, FINGERPRINT: member.fingerprint}
    return build_record(member.source, member.fingerprint)


def list_sources(
    teacher: str | Path | Sequence[str | Path] | None,
) -> tuple[str | Path, ...]:
    """List the teachers that a caller names: none, one, or several."""
    if teacher is None or isinstance(teacher, (str, Path)):
        return () if teacher is None else (teacher,)
    return tuple(teacher)


def open_teachers(
    sources: Sequence[str | Path], task: Task[Any], words: Tokenizer, length: int
) -> TaskTeachers:
    """Open the teachers of a run: folders as `open_teacher` takes them, and the baseline by its
    name.

    Args:
        words: the student's tokenizer.
        length: the student's longest row.

    Raises:
        ConfigError: the task has no baseline of whole texts, several teachers cannot be averaged on
            it, or a teacher is named twice.
        ModelError: as `open_teacher`.
    """
    about_texts = task.output.head == "sequence" and task.output.width > 0
    require(
        about_texts or BASELINE not in map(str, sources),
        f"--teacher {BASELINE} answers with a class, labels or a number for a whole text, and the "
        f"{task.name} task answers with '{task.output.name}'; name a fine-tuned model",
    )
    require(
        about_texts or len(sources) == 1,
        "several teachers are averaged on tasks that answer with a class, labels or a number; this "
        f"one answers with '{task.output.name}', so name one teacher",
    )
    members: list[Member] = []
    for source in sources:
        if str(source) == BASELINE:
            _require_baseline(task)
            members.append(BaselineTeacher(task))
        elif isinstance(task.output, Similarity):
            members.append(open_vector_teacher(source))
        else:
            members.append(open_teacher(source, task, words, length))
    identities = [
        None if isinstance(member, BaselineTeacher) else member.fingerprint for member in members
    ]
    for place, identity in enumerate(identities):
        require(
            identity not in identities[:place],
            f"--teacher names {sources[place]} twice, or two folders of the same weights; name "
            "each teacher once",
        )
    return TaskTeachers(tuple(members))


def _require_baseline(task: Task[Any]) -> None:
    """Refuse a task without a baseline.

    Raises:
        ConfigError: it has none.
    """
    require(
        task.output.baseline() is not None,
        f"the {task.name} task has no baseline; name a fine-tuned model with --teacher",
    )


def encode_unlabeled(
    task: Task[Any], examples: list[Any], words: Tokenizer, length: int
) -> EncodedPart:
    """Encode texts of a task without labels.

    Raises:
        ConfigError: its answers are not about whole texts, or there is no text.
    """
    if task.output.head != "sequence" and not isinstance(task.output, Similarity):
        raise ConfigError(
            "--unlabeled adds texts to tasks that answer with a class, labels, a number or a "
            f"vector; this one answers with '{task.output.name}', so leave it out"
        )
    if not examples:
        raise ConfigError(
            "--unlabeled names files without a single text; name others, or leave it out"
        )
    with progress.task("tokenizing the unlabeled texts"):
        items = task.encode(examples, words, length)
    return EncodedPart(
        "unlabeled", examples, [Item(item.example, item.rows, None) for item in items]
    )


def compute_teacher_logits(
    teachers: TaskTeachers, prepared: PreparedTask, folder: Path, device: str
) -> Logits:
    """Return the teachers' logits for the training rows and then the unlabeled ones, from the
    folder, or computed and written into it.
    """
    parts = [prepared.train, *([prepared.unlabeled] if prepared.unlabeled else [])]
    key = _compute_key(teachers, parts)
    if key in teachers.computed:
        _write_logits(folder / KEPT, key, teachers.computed[key])
    elif (saved := _read_logits(folder / KEPT, key)) is not None:
        teachers.computed[key] = saved
    else:
        answers = _ask(teachers, prepared, parts, device, folder)
        dtype = np.float32 if isinstance(prepared.task.output, Number) else np.float16
        teachers.computed[key] = [
            row_logits.astype(dtype) for part_logits in answers for row_logits in part_logits
        ]
        _write_logits(folder / KEPT, key, teachers.computed[key])
        delete_blocks(folder)
    return teachers.computed[key]


def _ask(
    teachers: TaskTeachers,
    prepared: PreparedTask,
    parts: Sequence[EncodedPart],
    device: str,
    folder: Path,
) -> list[Logits]:
    """Compute the logits of parts, and log the scores of the teachers on the first development
    part.
    """
    task, dev = prepared.task, prepared.dev[0]
    metric = name_metric(task)

    def log_score(name: str, logits: Logits) -> None:
        score = score_parts(task, (dev,), {dev.name: logits})[metric]
        log.info(f"{name} scores {metric} {score:.4g} on {dev.name}")

    by_member = []
    for member in teachers.members:
        counts_texts = isinstance(member, VectorTeacher)  # and shows how many it has embedded
        with nullcontext() if counts_texts else progress.task("asking the teacher"):
            by_member.append(member.compute_logits(prepared, (*parts, dev), device, folder))
        log_score(f"the teacher {member.source}", by_member[-1][-1])
    if len(by_member) == 1:
        return by_member[0][:-1]
    means = [
        [task.output.average(rows).astype(np.float32) for rows in zip(*part, strict=True)]
        for part in zip(*by_member, strict=True)
    ]
    log_score(f"the mean of {len(by_member)} teachers", means[-1])
    return means[:-1]


def _compute_key(teachers: TaskTeachers, parts: list[EncodedPart]) -> str:
    """Compute the key of the answers: a hash of the teachers and the rows."""
    digest = hashlib.sha256(b"".join(member.key for member in teachers.members))
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
        log.warning(f"{file} is damaged; the teacher answers again")
        return None
    shapes: NDArray[np.int32] = tensors["shapes"]
    ends = np.cumsum(shapes.prod(axis=1))
    return [
        row_logits.reshape(shape)
        for row_logits, shape in zip(np.split(tensors["logits"], ends[:-1]), shapes, strict=True)
    ]
