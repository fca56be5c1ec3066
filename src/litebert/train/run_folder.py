"""The folder of a run: whose it is, who may write into it, and what a second call finds.

A small JSON file, written last, is its identity. The same command finds it and continues; another
one is refused, with the field that differs.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.base.errors import RunError
from litebert.base.json_reader import read_json
from litebert.base.storage import lock_folder, remove, write_json
from litebert.hub import is_hub_name
from litebert.remote.names import require_local
from litebert.train import checkpoint
from litebert.train.ranks import ALONE, Ranks

log = logging.getLogger("litebert")

ASIDE = "collapsed"
_MOVING = f".{ASIDE}"


@dataclass(frozen=True)
class RunFolder:
    path: Path
    identity_name: str
    leftovers: tuple[str, ...] = ()
    """Files that a kill before the identity is written leaves, beside hidden files."""
    contents: tuple[str, ...] = ()
    """All that a run of this kind writes, which is all that `clear` deletes."""
    ranks: Ranks = ALONE

    @property
    def identity_file(self) -> Path:
        """It is there exactly where the folder is a run."""
        return self.path / self.identity_name

    def check(self) -> None:
        """Refuse a file, a name of the Hub, and a folder that no run of this kind wrote."""
        require_local(self.path)
        if is_hub_name(self.path):
            raise RunError(
                f"{self.path} is a name of the Hugging Face Hub; give --out a folder, whose model "
                "litebert push writes to the Hub"
            )
        if not self.path.exists() or self.identity_file.exists() or (self.path / _MOVING).is_dir():
            return
        if not self.path.is_dir():
            raise RunError(f"{self.path} is a file; give --out a folder")
        expected = (ASIDE, *self.leftovers)
        foreign = sorted(
            path.name
            for path in self.path.iterdir()
            if path.name[0] != "." and path.name not in expected
        )
        if foreign and (self.path / foreign[0] / self.identity_name).is_file():
            raise RunError(
                f"{self.path} holds several runs ({foreign[0]}); give --seeds for seeds, "
                "or another --out"
            )
        if foreign:
            raise RunError(
                f"{self.path} is not a run (it has no {self.identity_name}) and holds other files "
                f"({foreign[0]}); give --out a new or an empty folder"
            )

    def list_removable(self) -> list[str]:
        """List the names in the folder that `clear` would delete; none where there is no run."""
        self.check()
        if self.identity_file.exists() and "format" not in read_json(self.identity_file, RunError):
            raise RunError(
                f"{self.identity_file} is not of a run, so nothing in {self.path} is deleted; "
                "choose another --out"
            )
        names = [path.name for path in self.path.iterdir()] if self.path.is_dir() else []
        writable = (*self.contents, ASIDE, _MOVING)
        if foreign := sorted(name for name in names if name not in writable and name[0] != "."):
            raise RunError(
                f"{self.path} holds {foreign[0]} too, which no run writes, so nothing is deleted; "
                "move it elsewhere, or choose another --out"
            )
        return sorted(name for name in names if name in writable)

    def protect(self, source: str | Path | None) -> None:
        """Refuse to delete a model that a run starts from or learns from."""
        folder = os.path.realpath(self.path)
        if source is not None and folder in (
            os.path.realpath(source),
            *map(str, Path(os.path.realpath(source)).parents),
        ):
            raise RunError(
                f"--overwrite would delete {source}, which the run needs; choose another --out "
                f"than {self.path}"
            )

    def clear(self) -> None:
        """Delete the run, if there is one, its identity last: until then it stays a run."""
        if not self.ranks.main:
            return
        names = self.list_removable()
        for name in sorted(names, key=lambda name: name == self.identity_name):
            remove(self.path / name)
        if names:
            log.info(f"deleted the run in {self.path}: {', '.join(names)}")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the right to write, and finish or remove what a killed process left half done."""
        self.ranks.decide(self.check)
        if not self.ranks.main:
            yield
            return
        with lock_folder(self.path, RunError):
            if (self.path / _MOVING).is_dir():
                self.set_aside()
            checkpoint.tidy(self.path / "checkpoints")
            yield

    def read_identities(self) -> list[dict[str, Any]]:
        files = (self.path / ASIDE / self.identity_name, self.identity_file)
        return [read_json(file, RunError) for file in files if file.exists()]

    def claim(self, identity: Mapping[str, Any]) -> None:
        if self.ranks.main:
            write_json(self.identity_file, identity)

    def refuse_other(
        self,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        free: Collection[str],
        cause: tuple[Collection[str], str] = ((), ""),
    ) -> None:
        """Compare what a run was started with and what is asked for now, but for the `free` fields
        (by dotted name). `cause` has fields, and a clause for the message where these alone differ.
        """
        after = json.loads(json.dumps(after))  # as the file would hold it
        if differences := {
            name: clause for name, clause in _compare(before, after) if name not in free
        }:
            differs = "; ".join(list(differences.values())[:6]) + (
                f"; and {len(differences) - 6} more" if len(differences) > 6 else ""
            )
            fields, reason = cause
            if differences.keys() <= {*fields}:
                differs += f"; {reason}"
            raise RunError(
                f"{self.path} holds another run ({differs}); give the same fields, another --out, "
                "or --overwrite to delete it and start anew"
            )

    @property
    def has_predecessor(self) -> bool:
        return (self.path / ASIDE).is_dir()

    def set_aside(self) -> None:
        if not self.ranks.main:
            return
        aside = self.path / _MOVING  # there already, where a kill fell into the moving
        aside.mkdir(exist_ok=True)
        for path in list(self.path.iterdir()):
            if not path.name.startswith("."):
                path.rename(aside / path.name)
        aside.rename(self.path / ASIDE)


def _compare(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the fields that differ by their dotted names, each with a clause that says how."""
    for key in {**after, **before}:
        old, new, name = before.get(key), after.get(key), f"{path}{key}"
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            yield from _compare(old, new, f"{name}.")
        elif old != new:
            hashed = name.endswith("_fingerprint")  # of which nobody wants to read two
            yield (
                name,
                f"its {name.replace('_', ' ')} differs"
                if hashed
                else f"{name} is {old} there and {new} here",
            )
