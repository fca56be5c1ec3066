"""The space holds what something uses: a recipe, a study, or a use that is named here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from litebert.config import Config
from litebert.recipes import RECIPES
from litebert.studies.papers import STUDIES
from litebert.studies.study import make_base_config

FOREIGN = {"window_rotary_base", "always_project", "untied", "init_std"}
"""Fields of the encoder that folders of other libraries set."""
TABLE = {"window", "context", "std"}
"""Fields of `table` that the speedrun's ladder compares."""
TUNED = {
    "masking.geometric_p",
    "rtd.weight",
    "sbo.positions",
    "sbo.position_size",
    "train.optimizer.beta1",
    "train.optimizer.muon_learning_rate",
    "train.optimizer.muon_momentum",
}
"""Numbers of laws and optimizers in use, whose default is the one in use."""
RUNNING = {
    "recompute",
    "precision",
    "seed",
    "keep_checkpoints",
    "evaluate_every",
    "evaluate_sequences",
    "compile",
    "batch_processes",
}
"""Fields of `train` that say how a run is computed and saved."""
SET_BY_OTHERS = (
    {f"encoder.{name}" for name in FOREIGN}
    | {"encoder.global_tokens"}  # litebert convert --global-tokens
    | {"encoder.groups"}  # of ALBERT folders with num_hidden_groups
    | {"objective_settings"}  # of extensions
    | {"tracker", "table.model"}  # of a person
    | {f"table.{name}" for name in TABLE}
    | {f"train.{name}" for name in RUNNING}
    | TUNED
)
CHOICES = {
    "encoder.activation": {"relu", "silu"},  # of folders of other libraries
    "encoder.sharing": {"groups"},  # of ALBERT folders with num_hidden_groups
    "train.schedule.name": {"cosine"},
    "table.context": {"document"},
    "train.precision": {"float32", "bfloat16"},
    "train.micro_batch": {"auto"},
}
"""Choices of fields that no recipe and no study makes."""


def values_of(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for field in fields(config):
        value, name = getattr(config, field.name), f"{path}{field.name}"
        if is_dataclass(value):
            yield from values_of(value, f"{name}.")
        else:
            yield name, value


def hints_of(cls: type, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, hint in get_type_hints(cls).items():
        if is_dataclass(hint):
            assert isinstance(hint, type)
            yield from hints_of(hint, f"{path}{name}.")
        else:
            yield f"{path}{name}", hint


@cache
def collect_values() -> dict[str, set[Any]]:
    """The values of every field in all recipes and in all variants of the studies."""
    configs = [recipe() for recipe in RECIPES.values()]
    for study in STUDIES.values():
        configs += study(make_base_config("mini")).variants.values()
    used = defaultdict[str, set[Any]](set)
    for config in configs:
        for name, value in values_of(config):
            used[name].add(value)
    return used


def test_every_field_is_used_by_a_recipe_or_a_study_or_for_a_stated_reason() -> None:
    used = collect_values()
    defaults = dict(values_of(Config(name="")))
    unused = {name for name, value in defaults.items() if used[name] == {value}}
    unused = {name for name in unused if not name.startswith("distill.")}  # set by --teacher
    assert unused == SET_BY_OTHERS


def test_every_choice_is_made_by_a_recipe_or_a_study_or_for_a_stated_reason() -> None:
    used = collect_values()
    never = {}
    for name, hint in hints_of(Config):
        literals = [hint, *get_args(hint)]
        choices = {
            value for kind in literals if get_origin(kind) is Literal for value in get_args(kind)
        }
        if left := choices - used[name]:
            never[name] = left
    assert never == CHOICES
