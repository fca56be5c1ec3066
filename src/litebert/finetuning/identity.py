"""The identity of a fine-tuning run, finetune.json: which model learns which task from which data,
and how. The same request finds its run again by it, and another one is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from litebert import hub
from litebert.config.serialization import to_dict
from litebert.errors import RunError
from litebert.finetuning.initial import InitialModel
from litebert.finetuning.items import Item
from litebert.finetuning.prepared import PreparedTask
from litebert.finetuning.scoring import name_metric
from litebert.train.run_folder import RunFolder
from litebert.train.teacher import build_record, refuse_other_teacher

_FREE = (
    "format",
    "model",
    "model_revision",
    "teacher",
    "teacher_revision",
    "teacher_fingerprint",
    "steps",
    "chosen",
    "tokenizer_fingerprint",
    "test_fingerprint",
    "dev_rows",
    "config.early_exits_max_drop",
    "config.examples",
    "config.train.save_every",
    "config.train.keep_checkpoints",
    "config.train.parallel",  # of earlier versions
    "config.train.recompute",
)
"""Fields of finetune.json that may change between calls: they change no weight, follow from the
rest, or are compared apart."""
_HELD_OUT = ("data_fingerprint", "dev_fingerprint")
"""Fields that depend on which training rows are held out for dev."""
_EARLIER = "or an earlier litebert made it, which held out other rows"


def claim_folder(folder: RunFolder, prepared: PreparedTask, items: Sequence[Item]) -> None:
    """Start a run in a folder, or check that the folder holds this very run.

    Args:
        items: all rows that are trained on, with the targets that are learned.

    Raises:
        RunError: the folder holds another run.
    """
    run = _build_identity(prepared, items)
    for before in folder.read_identities():
        refuse_other_teacher(folder.path, before, run["teacher"], run["teacher_fingerprint"])
        cause = () if "dev" in prepared.file_names else _HELD_OUT
        folder.refuse_other({**before, "files": run["files"]}, run, _FREE, (cause, _EARLIER))
        if before.get("test_fingerprint") != run["test_fingerprint"]:
            raise RunError(
                f"{folder.path} holds a run with another test part; give its own, or answer this "
                "one with litebert predict"
            )
    if not folder.identity_file.exists():
        folder.claim(run)


def _build_identity(prepared: PreparedTask, items: Sequence[Item]) -> dict[str, Any]:
    """Build the content of finetune.json, which identifies a run."""
    task, start = prepared.task, prepared.start
    dev = [item for part in prepared.dev for item in part.items]
    tests = [item for part in prepared.tests for item in part.items]
    teachers = prepared.teachers
    return {
        "format": 1,
        "task": task.full_name,
        "metric": name_metric(task),
        "model": prepared.source,
        **hub.record_revision(prepared.source, "model"),
        "files": prepared.file_names,  # by part, their names; for people and tables, never compared
        "steps": prepared.steps,
        "chosen": list(prepared.chosen),  # for people, never compared
        "dev_rows": len(prepared.dev[0].examples),
        "config": to_dict(prepared.config),
        **task.identity(),
        **(build_record(None, None) if teachers is None else teachers.build_record()),
        "model_fingerprint": _compute_digest(_read_weights(start)),
        "tokenizer_fingerprint": start.tokenizer.fingerprint,
        "data_fingerprint": _compute_digest(_read_tokens([*items, *dev], task.output.labels)),
        "test_fingerprint": _compute_digest(_read_tokens(tests, ())),
        # Of examples as their files have them: the same for every tokenizer.
        "dev_fingerprint": _compute_digest(
            repr(example).encode("utf-8", "backslashreplace")
            for part in prepared.dev
            for example in part.examples
        ),
    }


def _compute_digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _read_weights(start: InitialModel) -> Iterator[bytes]:
    yield json.dumps(to_dict(start.encoder)).encode()
    if start.pooling != "cls":
        yield start.pooling.encode()
    for name, tensor in (*(start.state or {}).items(), *start.head.items()):
        yield name.encode() + tensor.contiguous().numpy().tobytes()


def _read_tokens(items: Sequence[Item], labels: Sequence[str]) -> Iterator[bytes]:
    yield json.dumps(labels).encode()
    for item in items:
        for row in item.rows:
            yield row.ids.tobytes() + row.types.tobytes()
        yield (
            item.target.tobytes()
            if isinstance(item.target, np.ndarray)
            else repr(item.target).encode()
        )
        if item.weight != 1:
            yield repr(item.weight).encode()
