"""Recipes by name or in files: what a RECIPE on the command line may be."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from litebert.config import Config
from litebert.config.serialization import from_dict
from litebert.errors import ConfigError, nearest
from litebert.json_reader import parse_json
from litebert.recipes import RECIPES
from litebert.registry import python_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def recipe(name: str, seen: tuple[Path, ...] = ()) -> Config:
    """The config a name stands for: a recipe, a TOML or JSON file, or `file.py:function`.

    A file gives every field it wants to set; `base = "RECIPE"` at its top starts from a recipe.

    Raises:
        ConfigError: no such recipe or file, or a field outside the space.
    """
    if name in RECIPES:
        return RECIPES[name]()
    path, _, function = name.partition(":")
    if path.endswith(".py"):
        return _from_python(Path(path), function)
    if path.endswith((".toml", ".json")):
        return _from_file(Path(name), seen)
    raise ConfigError(f"no recipe is called '{name}'; {nearest(name, RECIPES)}")


def names_recipe(word: str) -> bool:
    """Whether a word has the form of what `recipe` takes."""
    return word in RECIPES or word.endswith((".toml", ".json")) or ".py:" in word


def _from_file(path: Path, seen: tuple[Path, ...]) -> Config:
    real = Path(os.path.realpath(path))  # where resolve() gives up at a loop of links
    if real in seen:
        raise ConfigError(
            f"recipe file {path} is its own base; base it on a recipe's name or another file"
        )
    try:
        content = path.read_bytes()
        data: Any = (
            parse_json(content)
            if path.suffix == ".json"
            else tomllib.loads(content.decode("utf-8-sig"))
        )
    except OSError as error:
        raise ConfigError(f"recipe file {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(
            f"recipe file {path} is nested too deeply; give each field once, as a plain value"
        ) from None
    except ValueError as error:  # both decoders name the line
        raise ConfigError(
            f"recipe file {path} is not valid {path.suffix[1:].upper()}: {error}"
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(f"recipe file {path} must hold a table of fields")
    data.setdefault("name", path.stem)
    base = Config(name=path.stem)
    try:
        if "base" in data:
            name = str(data.pop("base"))
            beside = path.parent / name.partition(":")[0]  # files are named as seen from this one
            base = recipe(str(path.parent / name) if beside.is_file() else name, (*seen, real))
        return from_dict(Config, data, base=base)
    except ConfigError as error:
        raise ConfigError(f"recipe file {path}: {error}") from None


def _from_python(path: Path, function: str) -> Config:
    if not path.is_file():
        raise ConfigError(f"recipe file {path} does not exist")
    try:
        namespace = python_file(path.resolve())
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"recipe file {path} cannot be run: {type(error).__name__}: {error}"
        ) from error
    if not callable(namespace.get(function)):
        names = [
            name
            for name, value in namespace.items()
            if callable(value) and not name.startswith("_")
        ]
        raise ConfigError(
            f"recipe file {path} has no function '{function}'; {nearest(function, names)}"
        )
    try:
        config = namespace[function]()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path}:{function} fails: {type(error).__name__}: {error}") from error
    if not isinstance(config, Config):
        raise ConfigError(
            f"{path}:{function} returned {type(config).__name__}; it must return a litebert Config"
        )
    return config
