"""The models that stand in the package, and the archive that holds them.

    from litebert.demo import unpack
    folders = unpack("demo")  # {"sentiment": Path("demo/sentiment"), ...}

`runs/demo.sh` makes them.
"""

from __future__ import annotations

from litebert.demo.packing import pack, unpack

__all__ = ["pack", "unpack"]
