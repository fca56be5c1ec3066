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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from litebert.base.errors import nearest, require
from litebert.config import Config, TableConfig
from litebert.config.serialization import from_dict, to_dict
from litebert.recipes.files import recipe

Scale = Literal["toy", "micro", "claim", "tiny", "mini", "base"]
Equal = Literal["steps", "tokens", "time", "operations"]

PRIMARY = "mlm_loss"
"""The deciding score by default: held-out loss in nats per masked token."""


@dataclass(frozen=True)
class Published:
    source: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    """The figures by variant; a variant that the paper lacks has no row."""

    @classmethod
    def of(cls, source: str, column: str, figures: Mapping[str, str]) -> Published:
        return cls(source, (column,), {name: (figure,) for name, figure in figures.items()})


@dataclass(frozen=True)
class Study:
    """A grid of configs, one for each variant; budgets and seeds are set when it runs."""

    question: str
    variants: Mapping[str, Config]
    baseline: str
    scores: tuple[str, ...] = (PRIMARY,)
    """Held-out scores to compare, the first of which decides; lower is better if named `...loss`.
    """
    chance: tuple[str, ...] = ()
    """Accuracies that a variant without their head has by always giving the most frequent answer.
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
                0 < share < 1,
                f"the share of data of '{variant}' is {share}; it must be between 0 and 1",
            )
        slugs = [make_slug(name) for name in names]
        require(
            len({*slugs}) == len(slugs),
            f"names of variants are too alike for folders: {', '.join(slugs)}",
        )
        require(len(self.scores) > 0, "a study names at least one score to compare")
        for field_name, known, kind in (
            ("data", names, "no variant"),
            ("expected", names, "no variant"),
            ("unjudged", self.scores, "none of the scores"),
            ("chance", self.scores, "none of the scores"),
        ):
            for name in getattr(self, field_name):
                require(
                    name in known,
                    f"{field_name} names '{name}', which is {kind}; {nearest(name, known)}",
                )

    def list_judged(self, extras: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(name for name in (*self.scores, *extras) if name not in self.unjudged)


def make_slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "variant"


def vary(base: Config, **changes: Any) -> Config:
    """Return a config with some fields changed: `vary(base, encoder={"layers": 3})`."""
    return from_dict(Config, changes, base=base)


def make_base_config(scale: Scale) -> Config:
    """Make the config that the studies vary: a shared encoder trained on masked words and sentence
    order. toy to mini have the block of the small recipes, which learns within minutes; base is the
    paper's. Depth does not grow, so that every variant trains each layer for as long.

    The token table is drawn at random, as in the papers, except at scale claim, where it starts
    from counts: runs from a random table leave the frequencies of tokens at another moment with
    each seed, which is most of their noise. claim is micro with twice as much text in each step,
    and scored on four times as many sequences. micro is trained on single masked tokens alone,
    because a few seconds of training can learn no more.
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


def make_identity(study: Study) -> dict[str, Any]:
    facts = {
        "variants": {name: to_dict(config) for name, config in study.variants.items()},
        "after": dict(study.after),
        "data_shares": dict(study.data),
        "equal": study.equal,
    }
    # As JSON reads them back, because they are compared with those of a file.
    identity: dict[str, Any] = json.loads(json.dumps(facts))
    return identity
