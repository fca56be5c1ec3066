"""A teacher's guesses of masked tokens on disk, so that other students of the same text need not
compute them again.

A file holds the guesses for one batch. Its name is a hash of all they depend on: the teacher's
weights, the masked text, and how many pieces are kept. Batches are a function of the data, the
recipe's sequences and masks, the batch size and the seed, so runs that share these find all guesses
of each other, and others find none and add their own.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import Config
from litebert.data.batches import Batch
from litebert.errors import ConfigError, ModelError
from litebert.interop.files import read_metadata, read_tensors, write_tensors
from litebert.model.distillation import Likeliest, Teacher
from litebert.storage import write_whole

log = logging.getLogger("litebert")


class TeacherAnswers:
    """A folder of guesses; several runs may use it at a time."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        """`fingerprint`: of the teacher's weights."""
        self.folder, self._fingerprint = folder, fingerprint
        self.batches_read = self.batches_computed = 0
        """Batches whose guesses were there, and that the teacher was asked."""

    def likeliest(
        self, batch: Batch, question: tuple[int, int, float], compute: Callable[[], Likeliest]
    ) -> Likeliest:
        """Return the likeliest tokens of a batch, from the folder or from `compute`
        (`model.distillation.Answers`).
        """
        name = self._name(batch, question)
        file, device = self.folder / name[:2] / f"{name[2:]}.safetensors", batch.input_ids.device
        if (saved := _read(file)) is not None:
            self.batches_read += 1
            return Likeliest(*(tensor.to(device) for tensor in saved))
        self.batches_computed += 1
        guesses = compute()
        _write(file, guesses)
        return guesses

    def _name(self, batch: Batch, question: tuple[int, int, float]) -> str:
        kind = batch.input_ids.device.type
        computed = (
            str(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else "float32"
        )
        facts = [self._fingerprint, list(batch.input_ids.shape), *question, kind, computed]
        digest = hashlib.sha256(json.dumps(facts).encode())
        for tensor in (
            batch.input_ids,
            batch.token_type_ids,
            batch.attention_mask,
            batch.masked_positions,
        ):
            digest.update(b"|" if tensor is None else tensor.cpu().numpy().tobytes() + b"|")
        return digest.hexdigest()[:40]


def open_answers(
    folder: str | Path | None, config: Config, teacher: Teacher | None, out: str | Path = ""
) -> TeacherAnswers | None:
    """The folder that a run keeps its teacher's guesses in, if it does.

    Args:
        out: the folder of the run.

    Raises:
        ConfigError: there is no teacher, no guess of it is learned, or all of each guess is, or the
            folder cannot be made or is the run's.
    """
    if folder is None:
        return None
    if not str(folder):
        raise ConfigError("--teacher-answers names no folder; give it one")
    if teacher is None:
        raise ConfigError(
            f"--teacher-answers {folder} keeps what a teacher says; name its folder with --teacher"
        )
    for name, value in (("soft", "1"), ("top_k", "32")):
        if not getattr(config.distill, name):
            raise ConfigError(
                f"--teacher-answers {folder} keeps the likeliest pieces of a teacher's "
                "guesses, and "
                f"distill.{name} is 0; set it above 0, such as {value}"
            )
    if out and Path(out).resolve() in (place := Path(folder).resolve(), *place.parents):
        raise ConfigError(
            f"--teacher-answers {folder} lies in the folder of the run, {out}; name one beside it"
        )
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ConfigError(f"--teacher-answers {folder} is a file; name a folder")
    if strangers := _list_strangers(Path(folder)):
        raise ConfigError(
            f"--teacher-answers {folder} holds {strangers[0]} too, which is no answer of a "
            "teacher; name a new folder"
        )
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--teacher-answers {folder} cannot be made ({error.strerror}); name another"
        ) from None
    return TeacherAnswers(Path(folder), teacher.fingerprint)


def _list_strangers(folder: Path) -> list[str]:
    """List the names in a folder that are no folder of answers, which has two hexadecimal digits
    for a name.
    """
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return [name for name in names if not re.fullmatch("[0-9a-f]{2}", name)]


def _checksum(pieces: Tensor, log_probabilities: Tensor) -> str:
    return hashlib.sha256(
        pieces.numpy().tobytes() + log_probabilities.numpy().tobytes()
    ).hexdigest()


def _write(file: Path, guesses: Likeliest) -> None:
    pieces, values = guesses.pieces.int().cpu(), guesses.log_probabilities.cpu()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(
        f"{file.stem}.{os.getpid()}{file.suffix}"
    )  # another run may be writing the same
    with write_whole(temporary) as aside:
        write_tensors(
            aside,
            {"pieces": pieces, "log_probabilities": values},
            {"sha256": _checksum(pieces, values)},
        )
    os.replace(temporary, file)


def _read(file: Path) -> Likeliest | None:
    """Read the guesses of a file; None where it does not exist, or is damaged and must be written
    again.
    """
    if not file.exists():
        return None
    try:
        tensors = read_tensors(file)
        pieces, values = tensors["pieces"], tensors["log_probabilities"]
    except (ModelError, KeyError):
        pieces = values = torch.zeros(0)
    if read_metadata(file).get("sha256") != _checksum(pieces, values):
        log.warning(f"{file} is damaged; the teacher is asked again")
        return None
    return Likeliest(pieces.long(), values)
