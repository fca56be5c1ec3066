"""The teacher of a run: its fingerprint, the layers that are compared, and its fields in the run's
JSON file; for pretraining also its answers on disk. `finetuning.teachers` has the teachers of
tasks.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from litebert import hub
from litebert.config import Config, EncoderConfig, replace
from litebert.config.distillation import LayersConfig
from litebert.config.serialization import to_json
from litebert.data.batches import Batch
from litebert.data.mixture import TrainingData
from litebert.errors import ConfigError, DataError, ModelError, RunError
from litebert.interop import LoadedModel, read_folder
from litebert.interop.files import read_metadata, read_tensors, write_tensors
from litebert.interop.loaded import require_tokenizer_of
from litebert.model.distillation import Likeliest, Teacher
from litebert.model.pretrainer import Pretrainer
from litebert.storage import write_whole
from litebert.tokenizer.alignment import Alignment

log = logging.getLogger("litebert")

L = TypeVar("L", bound=LayersConfig)
PATH, FINGERPRINT = "teacher", "teacher_fingerprint"
"""Fields of the JSON file of a run that name its teacher."""


# ----------------------------------------------------------------------------- teachers of all runs


def compute_fingerprint(loaded: LoadedModel) -> str:
    """Compute the sha256 (hex) of a model's weights and config. Heads that the folder lacks do not
    count, because they start at random.
    """
    digest = hashlib.sha256(to_json(replace(loaded.config, name="")).encode())
    fresh = tuple(f"objectives.{name}." for name in loaded.untrained)
    for name, tensor in sorted(loaded.model.state_dict().items()):
        if name.startswith(fresh):
            continue
        digest.update(name.encode() + tensor.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def match_layers(
    distill: L, student: EncoderConfig, teacher: EncoderConfig, source: str | Path
) -> L:
    """Complete a distillation config from the shapes of student and teacher: pairs of layers, heads
    and width.

    Raises:
        ConfigError: layers or heads that it has not.
    """
    even = tuple(
        (i, max(1, round(i * teacher.layers / student.layers)))
        for i in range(1, student.layers + 1)
    )
    widths = student.hidden_size, teacher.hidden_size
    fits = all(width % teacher.heads == 0 for width in widths)
    distill = replace(
        distill,
        width=teacher.hidden_size,
        state_layers=distill.state_layers or even,
        relation_layers=distill.relation_layers or ((student.layers, teacher.layers),),
        relation_heads=distill.relation_heads
        or (teacher.heads if fits else math.gcd(*widths, teacher.heads)),
    )
    for name in ("state_layers", "relation_layers"):
        last, teacher_last = (max(layers) for layers in zip(*getattr(distill, name), strict=True))
        if last > student.layers:
            raise ConfigError(
                f"distill.{name} names layer {last} of a student with {student.layers}; name "
                "layers that it has"
            )
        if teacher_last > teacher.layers:
            raise ConfigError(
                f"distill.{name} names layer {teacher_last} of the teacher {source}, which has "
                f"{teacher.layers}; name layers that it has"
            )
    if any(width % distill.relation_heads for width in widths):
        raise ConfigError(
            f"distill.relation_heads is {distill.relation_heads}, and the hidden sizes of student "
            f"and teacher, {widths[0]} and {widths[1]}, are not both multiples of it; give a "
            "common divisor"
        )
    return distill


def build_record(source: str | Path | None, fingerprint: str | None) -> dict[str, Any]:
    """Build the fields of a run's JSON file that name its teacher."""
    path = None if source is None else hub.format_source(source)
    return {PATH: path, **hub.record_revision(source, PATH), FINGERPRINT: fingerprint}


def refuse_other_teacher(
    folder: Path,
    run: Mapping[str, Any],
    source: str | Path | Sequence[str] | None,
    fingerprint: object,
) -> None:
    """Compare the teacher, or the teachers, of a run in a folder with those of a request.

    Raises:
        RunError: they differ.
    """
    was, recorded = run.get(PATH), run.get(FINGERPRINT)
    if recorded == fingerprint:
        return
    if recorded is None:
        raise RunError(
            f"the run in {folder} learns from no teacher; leave --teacher out, or start "
            "another --out"
        )
    names, others = (
        [str(source)] if isinstance(source, (str, Path)) else list(source or ())
        for source in (was, source)
    )
    other = f", whose weights are not those of {' and '.join(others)}" if others else ""
    fix = f"give --teacher {shlex.join(names)} as it was, or start another --out"
    raise RunError(
        f"the run in {folder} learns from the teacher {' and '.join(names)}{other}; {fix}"
    )


# -------------------------------------------------------------------------- teachers of pretraining


def open_teacher(
    source: str | Path | None, config: Config, shards: TrainingData
) -> tuple[Config, Teacher | None]:
    """Open the teacher of a config, and complete the config from its shape; a config that learns
    from none stays as it is.

    Raises:
        ConfigError: objectives without a teacher, a teacher without objectives, or layers and heads
            that it has not.
        ModelError: the folder cannot be opened, or lacks the head that is asked for.
        DataError: the data was prepared with another tokenizer than the teacher's, or the teacher
            has none.
    """
    taught = [name for name, objective in config.build_objectives().items() if objective.taught]
    if source is None:
        if taught:
            raise ConfigError(
                f"objective {taught[0]} learns from a teacher; name its folder with --teacher"
            )
        return config, None
    wanted = config.distill.objectives
    if not wanted:
        raise ConfigError(
            f"--teacher {source} has nothing to teach: distill.soft, distill.states and "
            "distill.relations are all 0; set one of them above 0"
        )
    if set(taught) != set(wanted):
        config = replace(
            config,
            objectives=(*(name for name in config.objectives if name not in taught), *wanted),
        )
        if "soft" in wanted and "mlm" not in config.objectives:
            raise ConfigError(
                "distill.soft compares predictions of masked tokens, and objectives has no mlm; "
                "add it, or set distill.soft=0"
            )
    loaded = read_folder(source)
    alignment = _align(source, loaded, config, shards)
    teacher = Teacher(
        loaded.model.encoder,
        _select_head(source, loaded, config),
        compute_fingerprint(loaded),
        alignment,
    )
    shape, longest = teacher.encoder.config, config.sequences.length
    if longest > shape.max_positions:
        raise ConfigError(
            f"sequences.length is {longest} and the teacher {source} reads {shape.max_positions} "
            f"tokens; set sequences.length to at most {shape.max_positions}"
        )
    return replace(
        config, distill=match_layers(config.distill, config.encoder, shape, source)
    ), teacher


def _align(
    source: str | Path, loaded: LoadedModel, config: Config, shards: TrainingData
) -> Alignment | None:
    """Align the tokens of the data with those of a teacher that has other ones; None where they are
    the same.

    Raises:
        DataError: the teacher has no tokenizer, or another one and its guesses are learned.
    """
    words = loaded.tokenizer
    if words is None or words.fingerprint == shards.tokenizer.fingerprint:
        require_tokenizer_of(shards.path, shards.tokenizer, loaded, source)
        return None
    if "soft" in config.objectives:
        raise DataError(
            f"{shards.name} was prepared with another tokenizer than {source} has, so it "
            f"predicts other tokens; prepare the data with --tokenizer {loaded.path}, or set "
            "distill.soft=0 and learn states or relations"
        )
    log.info(
        f"the teacher {source} has another tokenizer; each token learns the mean of those that "
        "overlap it in characters"
    )
    return Alignment(shards.tokenizer, words)


def _select_head(source: str | Path, loaded: LoadedModel, config: Config) -> Any:
    """Select the head of a teacher's guesses, where these are learned."""
    if "soft" not in config.objectives:
        return None
    model = loaded.model
    trained = (
        isinstance(model, Pretrainer)
        and "mlm" in model.objectives
        and "mlm" not in loaded.untrained
    )
    if not trained or loaded.config.generator is not None:
        what = (
            "guesses by a generator only" if trained else "has no head that guesses masked tokens"
        )
        raise ModelError(
            f"the teacher {source} {what}; name another, or set distill.soft=0 and learn its "
            "states or relations"
        )
    return model.get_submodule("objectives.mlm.head")


# ---------------------------------------------------------------------------------- answers on disk


class TeacherAnswers:
    """A folder of guesses of masked tokens, which other students of the same text need not compute
    again. Several runs may use it at a time.

    A file holds the guesses for one batch. Its name is a hash of all they depend on: the teacher's
    weights, the masked text, and how many tokens of each guess are kept. Batches are a function of
    the data, the recipe's sequences and masks, the batch size and the seed. So runs that share
    these find all guesses of each other; others find none and add their own.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        """`fingerprint` is that of the teacher's weights."""
        self.folder, self._fingerprint = folder, fingerprint
        self.batches_read = self.batches_computed = 0
        """Batches whose guesses were in the folder, and that the teacher computed."""

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
    """Open the folder in which a run keeps its teacher's guesses, if it does.

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
                f"--teacher-answers {folder} keeps the likeliest tokens that a teacher predicts, "
                f"and distill.{name} is 0; set it above 0, such as {value}"
            )
    if out and Path(out).resolve() in (place := Path(folder).resolve(), *place.parents):
        raise ConfigError(
            f"--teacher-answers {folder} lies in the folder of the run, {out}; name another folder"
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


def _compute_checksum(pieces: Tensor, log_probabilities: Tensor) -> str:
    return hashlib.sha256(
        pieces.numpy().tobytes() + log_probabilities.numpy().tobytes()
    ).hexdigest()


def _write(file: Path, guesses: Likeliest) -> None:
    pieces, values = guesses.tokens.int().cpu(), guesses.log_probabilities.cpu()
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(file) as aside:  # another run may be writing the same
        write_tensors(
            aside,
            {"pieces": pieces, "log_probabilities": values},
            {"sha256": _compute_checksum(pieces, values)},
        )


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
    if read_metadata(file).get("sha256") != _compute_checksum(pieces, values):
        log.warning(f"{file} is damaged; the teacher answers again")
        return None
    return Likeliest(pieces.long(), values)
