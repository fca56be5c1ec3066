"""The teacher of a pretraining run: which folder it may be, what the config takes from it, and that
it stays.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from litebert.config import Config, EncoderConfig, replace
from litebert.config.distillation import LayersConfig
from litebert.config.serialization import to_json
from litebert.data.shards import Shards
from litebert.errors import ConfigError, ModelError, RunError
from litebert.interop import LoadedModel, read_folder
from litebert.interop.loaded import require_tokenizer_of
from litebert.model.distillation import Teacher
from litebert.model.pretrainer import Pretrainer

L = TypeVar("L", bound=LayersConfig)
PATH, FINGERPRINT = "teacher", "teacher_fingerprint"
"""Fields of the JSON file of a run that name its teacher."""


def compute_fingerprint(loaded: LoadedModel) -> str:
    """sha256 (hex) of a model's weights and config."""
    digest = hashlib.sha256(to_json(replace(loaded.config, name="")).encode())
    for name, tensor in sorted(loaded.model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def open_teacher(
    source: str | Path | None, config: Config, shards: Shards
) -> tuple[Config, Teacher | None]:
    """The config with what it takes from its teacher, and the teacher; of a config that learns from
    none, as it is.

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
                "distill.soft compares guesses of masked tokens, and objectives has no "
                "mlm; add it, or "
                "set distill.soft=0"
            )
    loaded = read_folder(source)
    require_tokenizer_of(shards.path, shards.tokenizer, loaded, source)
    teacher = Teacher(
        loaded.model.encoder, _select_head(source, loaded, config), compute_fingerprint(loaded)
    )
    shape, longest = teacher.encoder.config, config.sequences.length
    if longest > shape.max_positions:
        raise ConfigError(
            f"sequences.length is {longest} and the teacher {source} reads "
            f"{shape.max_positions} tokens; "
            f"set sequences.length to at most {shape.max_positions}"
        )
    return replace(
        config, distill=match_layers(config.distill, config.encoder, shape, source)
    ), teacher


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
                "layers that it "
                "has"
            )
        if teacher_last > teacher.layers:
            raise ConfigError(
                f"distill.{name} names layer {teacher_last} of the teacher {source}, which has "
                f"{teacher.layers}; name layers that it has"
            )
    if any(width % distill.relation_heads for width in widths):
        raise ConfigError(
            f"distill.relation_heads is {distill.relation_heads}, and the hidden sizes of "
            "student and "
            f"teacher, {widths[0]} and {widths[1]}, are not both multiples of it; give a "
            "common divisor"
        )
    return distill


def _select_head(source: str | Path, loaded: LoadedModel, config: Config) -> Any:
    """The head of a teacher's guesses, where these are learned."""
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
            f"the teacher {source} {what}; name another, or set distill.soft=0 and learn "
            "its states or "
            "relations"
        )
    return model.get_submodule("objectives.mlm.head")


def build_record(source: str | Path | None, fingerprint: str | None) -> dict[str, Any]:
    """Build the fields of a run's JSON file that name its teacher."""
    return {PATH: None if source is None else str(Path(source).resolve()), FINGERPRINT: fingerprint}


def refuse_other_teacher(
    folder: Path, run: Mapping[str, Any], source: str | Path | None, fingerprint: str | None
) -> None:
    """Compare the teacher of a run in a folder with the one that is asked for now.

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
    other = "" if source is None else f", whose weights are not those of {source}"
    fix = f"give --teacher {shlex.quote(str(was))} as it was, or start another --out"
    raise RunError(f"the run in {folder} learns from the teacher {was}{other}; {fix}")
