"""The models that stand in the package, and the archive that holds them.

    litebert.load("vectors")  # the package's own encoder; sentiment and words likewise
    folders = unpack("demo")  # {"sentiment": Path("demo/sentiment"), ...}

`runs/encoder/make.sh` makes `vectors`, and `runs/demo.sh` the others.
"""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

from litebert.base.errors import ModelError
from litebert.base.storage import cache_folder, remove
from litebert.demo.packing import digest, pack, unpack

__all__ = ["ENCODER", "NAMES", "locate", "pack", "unpack"]

NAMES = ("sentiment", "vectors", "words")
ENCODER = "vectors"
"""The encoder where one is needed and none is named."""


def locate(source: str | Path) -> str | Path:
    """Return the folder of a model of the package by its name; any other source comes back as it
    is, and so does the name of a folder that is there.
    """
    named = isinstance(source, str) and source in NAMES and not Path(source).exists()
    return _find(source) if named else source


@cache
def _find(name: str) -> Path:
    """A folder of the user's cache, written once; where that cannot be, one of this process."""
    kept = cache_folder() / f"models-{digest()}"
    try:
        return unpack(kept, only=name)[name]
    except ModelError:
        if (kept / name).is_dir():  # another process was faster
            return kept / name
        folder = Path(tempfile.mkdtemp(prefix="litebert-models-"))
        atexit.register(remove, folder)
        return unpack(folder, only=name)[name]
