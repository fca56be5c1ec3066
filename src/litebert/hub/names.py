"""The names of models on the Hub, and of their folders in its cache."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from litebert.base.errors import LitebertError, ModelError, suggest
from litebert.remote.names import as_url

PREFIX = "hf:"

_REPOSITORY = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_REVISION = re.compile(r"[^\s/\\~^:?*\[]+(/[^\s/\\~^:?*\[]+)*")
"""A name that git allows for a branch or a tag, but for those with `..` in them."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubName:
    repository: str
    """OWNER/NAME, or NAME alone of some old models."""
    revision: str | None = None
    """A branch, a tag or a commit; None is the branch main."""

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def is_hub_name(source: object) -> bool:
    return str(source).startswith(PREFIX)


def parse_name(source: str | Path, error: type[LitebertError] = ModelError) -> HubName:
    """Read `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`."""
    repository, at, revision = str(source).removeprefix(PREFIX).partition("@")
    is_name = _REPOSITORY.fullmatch(repository) and "--" not in repository
    is_revision = _REVISION.fullmatch(revision) if at else True
    # The cache of the Hub has folders and files of these names.
    if not is_name or not is_revision or ".." in str(source):
        raise error(
            f"{source} names no model; write {PREFIX}OWNER/NAME or {PREFIX}OWNER/NAME@REVISION, "
            f"such as {PREFIX}albert/albert-base-v2"
        )
    return HubName(repository, revision or None)


def refuse_missing(folder: str | Path, published: Iterable[str] = ()) -> ModelError:
    """Return the error that a model's folder does not exist, with what may have been meant.

    Args:
        published: repositories of models that people know by their last word.
    """
    if url := as_url(folder):
        return ModelError(
            f"a model cannot be in a store; copy {url} to a folder first, and give that"
        )
    path, text = Path(folder), str(folder)
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    hint = suggest(text, map(str, beside))
    is_bare = len(path.parts) == 1 and not path.suffix
    if not hint and _REPOSITORY.fullmatch(text) and (is_bare or not path.parent.exists()):
        owned = text if "/" in text else f"OWNER/{text}"
        known = next((name for name in published if name.endswith(f"/{text}")), owned)
        hint = f"for a model of that name on the Hugging Face Hub write {PREFIX}{known}"
    return ModelError(
        f"there is no folder {folder}; {hint or 'give the folder of a run or of a model'}"
    )


def is_commit(revision: object) -> TypeGuard[str]:
    """Return whether a revision is a full hash."""
    return isinstance(revision, str) and _COMMIT.fullmatch(revision) is not None


def find_origin(folder: Path) -> HubName | None:
    """Read from its path which commit of a model a folder of the Hub's cache holds; None of any
    other folder.
    """
    snapshots = folder.absolute().parent
    repository = snapshots.parent.name
    if (
        snapshots.name != "snapshots"
        or not repository.startswith("models--")
        or not is_commit(folder.name)
    ):
        return None
    return HubName(repository.removeprefix("models--").replace("--", "/", 1), folder.name)
