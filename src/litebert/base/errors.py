"""The errors that a user may meet, as a tree.

    LitebertError
    ├── ConfigError         a point outside the space, a misspelt field, an unreadable recipe file
    ├── DataError           corpus, tokenizer or shard files that cannot be used as they are
    ├── ModelError          weights or a model folder that do not fit what was asked
    ├── RunError            a run folder that is busy, of another run or without a checkpoint
    │   ├── NonFiniteError  a NaN or an infinity stopped the run before it reached the optimizer
    │   └── GroupError      another process of the run failed, and has reported why
    └── MissingExtraError   an optional dependency is not installed

Every message is one sentence that names the file, line or field and how to fix it. The command line
prints it alone and exits with status 2; `assert` is kept for our own invariants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path


class LitebertError(Exception):
    """Base of every error a user can cause and fix."""


class ConfigError(LitebertError):
    """A configuration that cannot be built."""


class DataError(LitebertError):
    """A corpus, tokenizer or shard file that cannot be used."""

    is_of_store = False
    """True where a store cannot be used, so that another try there would take long."""


class ModelError(LitebertError):
    """Weights or a model folder that do not fit what was asked of them."""


class RunError(LitebertError):
    """A run folder that cannot be used as asked."""


class NonFiniteError(RunError):
    """A non-finite loss or gradient, stopped before the optimizer step."""


class GroupError(RunError):
    """Another process of the run failed first and reports why; of this one nothing is printed."""


class MissingExtraError(LitebertError):
    """An optional dependency is missing; the message holds the install command."""

    def __init__(self, package: str, extra: str, reason: str = "") -> None:
        """Args: reason: why the package cannot be imported, where it is installed."""
        fault = f"cannot be imported ({reason})" if reason else "is not installed"
        options = "--force-reinstall " if reason else ""
        super().__init__(f"{package} {fault}; run: pip install {options}'litebert[{extra}]'")


TRAIN: Mapping[str, str] = {
    "torch": "torch",
    "pyarrow": "pyarrow",
    "sentencepiece": "sentencepiece",
    "google": "protobuf",
    "google.protobuf": "protobuf",
    "sklearn": "scikit-learn",
    "scipy": "scipy",
    "threadpoolctl": "threadpoolctl",
    "sentencex": "sentencex",
    "matplotlib": "matplotlib",
}
"""The modules of the extra `train`, and the packages that hold them."""


@contextmanager
def naming_extras() -> Iterator[None]:
    """Around imports: a missing library of the extra `train` becomes the line that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = TRAIN.get(error.name or "")
        if package is None:
            raise
        raise MissingExtraError(package, "train") from error


def suggest(name: object, valid: Iterable[str]) -> str:
    """A hint for a name that is misspelt: the valid one that is most like it; empty without one."""
    close = get_close_matches(str(name), valid, n=1)
    return f"did you mean '{close[0]}'?" if close else ""


def nearest(name: object, valid: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest valid one, else all of them."""
    names = sorted(filter(None, valid))
    if not names:
        return "there is nothing to choose from"
    return suggest(name, names) or f"choose one of: {', '.join(names)}"


def suggest_path(path: Path, remedy: str) -> str:
    """A hint for a path that does not exist: the one beside it that is most like it, or the
    remedy."""
    near = list[str]()
    with suppress(OSError):  # no folder, or none that may be read
        near += [entry.name for entry in path.parent.iterdir()]
    close = get_close_matches(path.name, near, n=1, cutoff=0.8)  # a shared .csv is not near
    return f"did you mean '{path.parent / close[0]}'?" if close else remedy


def require(condition: bool, message: str) -> None:
    """Refuse a point of the space that is impossible."""
    if not condition:
        raise ConfigError(message)
