"""Recipes by name or in files: the values of RECIPE on the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from litebert.base.errors import ConfigError, nearest
from litebert.base.json_reader import parse_json
from litebert.base.registry import python_file
from litebert.config import Config
from litebert.config.serialization import from_dict
from litebert.recipes import RECIPES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def recipe(name: str, seen: tuple[Path, ...] = ()) -> Config:
    """Return the config of a recipe, of a TOML or JSON file, or of `file.py:function`.

    A file names the fields that it sets. `base = "RECIPE"` at its top starts from a recipe.

    Raises:
        ConfigError: there is no such recipe or file, or a field is not allowed.
    """
    if name in RECIPES:
        return RECIPES[name]()
    path, _, function = name.partition(":")
    if path.endswith(".py"):
        return _run_python(Path(path), function)
    if path.endswith((".toml", ".json")):
        return _read_file(Path(name), seen)
    raise ConfigError(f"no recipe is called '{name}'; {nearest(name, RECIPES)}")


def read_base(name: str, file: Path, seen: tuple[Path, ...] = ()) -> Config:
    """The recipe that a file is based on; another file is named relative to it."""
    beside = file.parent / name.partition(":")[0]
    return recipe(str(file.parent / name) if beside.is_file() else name, seen)


def is_recipe_name(word: str) -> bool:
    return word in RECIPES or word.endswith((".toml", ".json")) or ".py:" in word


def _read_file(path: Path, seen: tuple[Path, ...]) -> Config:
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
            base = read_base(str(data.pop("base")), path, (*seen, real))
        return from_dict(Config, data, base=base)
    except ConfigError as error:
        raise ConfigError(f"recipe file {path}: {error}") from None


def load_function(path: Path, name: str, kind: str) -> Callable[..., Any]:
    """Run a person's Python file of a recipe or a study, and return its function of a name."""
    if not path.is_file():
        raise ConfigError(f"{kind} file {path} does not exist")
    try:
        namespace = python_file(path.resolve())
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{kind} file {path} cannot be run: {type(error).__name__}: {error}"
        ) from error
    function: Any = namespace.get(name)
    if callable(function):
        found: Callable[..., Any] = function
        return found
    names = [key for key, value in namespace.items() if callable(value) and key[:1] != "_"]
    raise ConfigError(f"{kind} file {path} has no function '{name}'; {nearest(name, names)}")


def _run_python(path: Path, name: str) -> Config:
    function = load_function(path, name, "recipe")
    try:
        config = function()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path}:{name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(config, Config):
        raise ConfigError(
            f"{path}:{name} returned {type(config).__name__}; it must return a litebert Config"
        )
    return config
