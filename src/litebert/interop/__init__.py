"""The tables of other programs' names of weights, and the opening and writing of model folders."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litebert.interop.hf.writing import save_hf as save_hf
    from litebert.interop.loaded import LoadedModel as LoadedModel
    from litebert.interop.models import read_folder as read_folder
    from litebert.interop.models import save_litebert as save_litebert

_HOME = {
    "LoadedModel": "loaded",
    "read_folder": "models",
    "save_hf": "hf.writing",
    "save_litebert": "models",
}
"""Imported when first used: an exported model answers without torch."""
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'litebert.interop' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(f"litebert.interop.{_HOME[name]}"), name)
    return value
