"""The teacher of a run: its fingerprint, the layers that are compared, and its fields in the run's
JSON file. `finetuning.teachers` has the teachers of tasks.
"""

from __future__ import annotations

import hashlib
import logging
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from litebert import hub
from litebert.base.errors import ConfigError, DataError, ModelError, RunError
from litebert.config import Config, EncoderConfig, replace
from litebert.config.distillation import LayersConfig
from litebert.config.serialization import to_json
from litebert.data.mixture import TrainingData
from litebert.interop import LoadedModel, read_folder
from litebert.interop.loaded import require_tokenizer_of
from litebert.model.pretrainer import Pretrainer
from litebert.model.teacher import Teacher
from litebert.tokenizer.alignment import Alignment

log = logging.getLogger("litebert")

L = TypeVar("L", bound=LayersConfig)
PATH, FINGERPRINT = "teacher", "teacher_fingerprint"


# ----------------------------------------------------------------------------- teachers of all runs


def compute_fingerprint(loaded: LoadedModel) -> str:
    """Compute the sha256 (hex) of a model's weights and config, without heads drawn at random."""
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
    """Complete a distillation config from student and teacher: pairs of layers, heads and width."""
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
    path = None if source is None else hub.format_source(source)
    return {PATH: path, **hub.record_revision(source, PATH), FINGERPRINT: fingerprint}


def refuse_other_teacher(
    folder: Path,
    run: Mapping[str, Any],
    source: str | Path | Sequence[str] | None,
    fingerprint: object,
) -> None:
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
    loaded, alignment, head = read_folder(source), None, None
    words, model = loaded.tokenizer, loaded.model

    # The tokens.
    if words is None or words.fingerprint == shards.tokenizer.fingerprint:
        require_tokenizer_of(shards.path, shards.tokenizer, loaded, source)
    elif "soft" in config.objectives:
        raise DataError(
            f"{shards.name} was prepared with another tokenizer than {source} has, so it "
            f"predicts other tokens; prepare the data with --tokenizer {loaded.path}, or set "
            "distill.soft=0 and learn states or relations"
        )
    else:
        log.info(
            f"the teacher {source} has another tokenizer; each token learns the mean of those that "
            "overlap it in characters"
        )
        alignment = Alignment(shards.tokenizer, words)

    # The head that guesses masked tokens.
    if "soft" in config.objectives:
        trained = (
            isinstance(model, Pretrainer)
            and "mlm" in model.objectives
            and "mlm" not in loaded.untrained
        )
        if not trained or loaded.config.generator is not None:
            lacks = "has no head that guesses masked tokens"
            what = "guesses by a generator only" if trained else lacks
            raise ModelError(
                f"the teacher {source} {what}; name another, or set distill.soft=0 and learn its "
                "states or relations"
            )
        head = model.get_submodule("objectives.mlm.head")

    # The layers, and the texts that it can read.
    shape, longest = model.encoder.config, config.sequences.length
    if longest > shape.max_positions:
        raise ConfigError(
            f"sequences.length is {longest} and the teacher {source} reads {shape.max_positions} "
            f"tokens; set sequences.length to at most {shape.max_positions}"
        )
    distill = match_layers(config.distill, config.encoder, shape, source)
    teacher = Teacher(model.encoder, head, compute_fingerprint(loaded), alignment)
    return replace(config, distill=distill), teacher
