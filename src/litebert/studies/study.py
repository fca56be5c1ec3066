"""A study: a question, a grid of configs that differ in one thing, and the scores to compare.

Your own study is a function `mine.py:function` that takes the base config and returns a `Study`,
or a TOML file:

    question = "Does a wider embedding help?"
    baseline = "E 64"
    [variants."E 64".encoder]
    embedding_size = 64
    [variants."E 128".encoder]
    embedding_size = 128
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from litebert.config import Config, TableConfig
from litebert.config.serialization import from_dict, to_dict
from litebert.errors import ConfigError, LitebertError, nearest, require
from litebert.recipes.files import recipe
from litebert.registry import STUDIES, python_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Scale = Literal["toy", "micro", "claim", "tiny", "mini", "base"]
Equal = Literal["steps", "tokens", "time", "operations"]

PRIMARY = "mlm_loss"
"""The deciding score by default: held-out loss in nats per masked token."""


@dataclass(frozen=True)
class Published:
    """The figures of a paper for the variants, as printed."""

    source: str
    """The paper, and the table in it."""
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    """The figures by variant; a variant that the paper lacks has no row."""


@dataclass(frozen=True)
class Study:
    """A grid of configs, one for each variant; budgets and seeds are set when it runs."""

    question: str
    """The question that the comparison answers, in a sentence."""
    variants: Mapping[str, Config]
    baseline: str
    """The variant that every other variant is compared with."""
    scores: tuple[str, ...] = (PRIMARY,)
    """Held-out scores to compare; the first decides. A lower score is better if its name ends in
    `loss`.
    """
    chance: tuple[str, ...] = ()
    """Accuracies that a variant without the head for them has by chance: that of always giving the
    most frequent answer.
    """
    unjudged: tuple[str, ...] = ()
    """Scores without a verdict, because they mean something else in each variant."""
    equal: Equal = "steps"
    """The budget that is the same for every variant."""
    after: Mapping[str, str] = field(default_factory=dict)
    """Variants that start from the trained weights of an earlier variant."""
    data: Mapping[str, float] = field(default_factory=dict)
    """Variants that learn from a share of the training documents, in (0, 1)."""
    paper: Published | None = None
    finding: str = ""
    """The result of the paper, in a sentence."""
    naming: str = ""
    """The meaning of the names of the variants, in a sentence or two."""
    expected: Mapping[str, Literal["better", "worse"]] = field(default_factory=dict)
    """The result of the paper for a variant without figures, against the baseline."""
    remarks: tuple[str, ...] = ()
    """Sentences that a reader of the table should know."""

    def __post_init__(self) -> None:
        names = list(self.variants)
        require(len(names) >= 2, f"a study compares variants and has {len(names)}; give at least 2")
        require(
            self.baseline in names,
            f"the baseline '{self.baseline}' is no variant; {nearest(self.baseline, names)}",
        )
        for later, earlier in self.after.items():
            require(
                later in names and earlier in names[: names.index(later)],
                f"'{later}' cannot start from '{earlier}': both must be variants, and "
                f"'{earlier}' must come first",
            )
        for variant, share in self.data.items():
            require(
                variant in names,
                f"data names '{variant}', which is no variant; {nearest(variant, names)}",
            )
            require(
                0 < share < 1,
                f"the share of data of '{variant}' is {share}; it must be between 0 and 1",
            )
        slugs = [make_slug(name) for name in names]
        require(
            len({*slugs}) == len(slugs),
            f"names of variants are too alike for folders: {', '.join(slugs)}",
        )
        require(len(self.scores) > 0, "a study names at least one score to compare")
        for variant in self.expected:
            require(
                variant in names,
                f"expected names '{variant}', which is no variant; {nearest(variant, names)}",
            )
        for place in ("unjudged", "chance"):
            for name in getattr(self, place):
                require(
                    name in self.scores,
                    f"{place} names '{name}', which is none of the scores; "
                    f"{nearest(name, self.scores)}",
                )

    def list_judged(self, extras: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the scores that have verdicts, of the study and of `extras`."""
        return tuple(name for name in (*self.scores, *extras) if name not in self.unjudged)


def make_slug(name: str) -> str:
    """Turn the name of a variant into the name of a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "variant"


def vary(base: Config, **changes: Any) -> Config:
    """Return a config with some fields changed.

    The fields of a nested config are a dictionary: `vary(base, encoder={"layers": 3})`.
    """
    return from_dict(Config, changes, base=base)


def make_base_config(scale: Scale) -> Config:
    """Make the config that the studies vary.

    It is a shared encoder trained on masked words and sentence order. toy to mini have the block of
    the small recipes, which learns within minutes; base is the paper's. Depth does not grow, so
    that every variant trains each layer for as long. The token table is drawn at random, as in the
    papers, except at scale claim. micro is trained on single masked tokens alone, because a few
    seconds of training can learn no more. claim has the same network, reads twice as much text in
    each step, and is scored on four times as many sequences. Its token table starts from counts.
    Runs from a random table leave the frequencies of tokens at another moment with each seed, which
    is most of their noise.
    """
    config = recipe({"mini": "albert-mini", "base": "albert-base"}.get(scale, "albert-tiny"))
    config = replace(config, table=TableConfig(), train=replace(config.train, depth_schedule=()))
    if scale == "toy":
        shape = {
            "hidden_size": 32,
            "embedding_size": 16,
            "layers": 2,
            "heads": 2,
            "intermediate_size": 64,
        }
        train = {"batch": "16 sequences", "evaluate_sequences": 32}
        return vary(config, encoder=shape, sequences={"length": 32}, train=train)
    if scale in ("micro", "claim"):
        shape = {
            "hidden_size": 64,
            "embedding_size": 32,
            "layers": 3,
            "heads": 2,
            "intermediate_size": 128,
        }
        length, evaluated = 32, 128
        if scale == "claim":
            length, evaluated = 64, 512
            config = replace(config, table=TableConfig(start="cooccurrence"))
        return vary(
            config,
            encoder=shape,
            sequences={"length": length},
            train={"batch": "32 sequences", "evaluate_sequences": evaluated},
            masking={"unit": "token", "span": "single"},
            objectives=["mlm"],
        )
    return config


def make_study(name: str, scale: Scale) -> Study:
    """Make the study of a name: a name in `STUDIES`, a TOML file, or `file.py:function`."""
    if scale not in get_args(Scale):
        raise ConfigError(f"scale is '{scale}'; {nearest(scale, get_args(Scale))}")
    base = make_base_config(scale)
    if name in STUDIES:
        return _call(STUDIES[name], base, name)
    path, _, function = name.partition(":")
    if path.endswith(".py"):
        return _call(_load_function(Path(path), function), base, name)
    if name.endswith(".toml"):
        return _read_toml(Path(name), base)
    raise ConfigError(
        f"'{name}' is no study, no TOML file and no file.py:function; {nearest(name, STUDIES)}"
    )


def _load_function(path: Path, name: str) -> Callable[[Config], Study]:
    if not path.is_file():
        raise ConfigError(f"study file {path} does not exist")
    try:
        namespace = python_file(path.resolve())
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"study file {path} cannot be run: {type(error).__name__}: {error}"
        ) from error
    value = namespace.get(name)
    if not callable(value):
        names = [
            key for key, value in namespace.items() if callable(value) and not key.startswith("_")
        ]
        raise ConfigError(f"study file {path} has no function '{name}'; {nearest(name, names)}")
    function: Callable[[Config], Study] = value
    return function


def _call(function: Callable[[Config], Study], base: Config, name: str) -> Study:
    try:
        study = function(base)
    except LitebertError as error:
        raise ConfigError(f"study {name}: {error}") from None
    except Exception as error:
        raise ConfigError(f"study {name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(study, Study):
        raise ConfigError(
            f"study {name} returned {type(study).__name__}; it must return a litebert Study"
        )
    return study


_KEYS = ("question", "base", "baseline", "scores", "equal", "after", "data", "variants")


def _read_toml(path: Path, base: Config) -> Study:
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"study file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"study file {path} is not valid TOML: {error}") from None
    try:
        return _parse_study(fields, base, default_question=path.stem)
    except (ConfigError, TypeError, ValueError) as error:
        raise ConfigError(f"study file {path}: {error}") from None


def _parse_study(fields: Mapping[str, Any], base: Config, default_question: str) -> Study:
    for key in fields:
        require(key in _KEYS, f"unknown field '{key}'; {nearest(key, _KEYS)}")
    variants = fields.get("variants")
    require(isinstance(variants, dict), "it has no variants; give a table [variants.NAME] for each")
    assert isinstance(variants, dict)
    if "base" in fields:
        base = recipe(str(fields["base"]))
    configs = {
        name: from_dict(Config, changes, f"variants.{name}.", base)
        for name, changes in variants.items()
    }
    equal = fields.get("equal", "steps")
    require(equal in get_args(Equal), f"equal is '{equal}'; {nearest(str(equal), get_args(Equal))}")
    after = dict(fields.get("after", {}))
    data = dict(fields.get("data", {}))
    return Study(
        question=str(fields.get("question", default_question)),
        variants=configs,
        baseline=str(fields.get("baseline", next(iter(configs), ""))),
        scores=tuple(map(str, fields.get("scores", (PRIMARY,)))),
        equal=equal,
        after={str(later): str(earlier) for later, earlier in after.items()},
        data={str(name): float(share) for name, share in data.items()},
    )


def make_identity(study: Study) -> dict[str, Any]:
    """Return the facts that are equal for two studies only if their runs are the same."""
    facts = {
        "variants": {name: to_dict(config) for name, config in study.variants.items()},
        "after": dict(study.after),
        "data_shares": dict(study.data),
        "equal": study.equal,
    }
    # As JSON reads them back, because they are compared with those of a file.
    identity: dict[str, Any] = json.loads(json.dumps(facts))
    return identity
