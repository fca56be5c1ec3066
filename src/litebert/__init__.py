"""litebert: small text encoders, trained on your own text and shipped.

The verbs of the command line are functions here, with the same names; each is imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litebert.analysis.compare import compare
    from litebert.config import Config, replace
    from litebert.data.prepare import prepare
    from litebert.data.shards import Shards
    from litebert.data.tokenizer import Tokenizer, train_tokenizer
    from litebert.errors import LitebertError
    from litebert.finetuning import FinetuneConfig
    from litebert.interop import convert
    from litebert.model.encoder import Encoder
    from litebert.model.pretrainer import Pretrainer
    from litebert.recipe_files import recipe
    from litebert.tasks.choose import task_of
    from litebert.tasks.finetune import finetune
    from litebert.tasks.predict import load
    from litebert.train.evaluate import evaluate
    from litebert.train.pretrain import pretrain

__all__ = [
    "Config",
    "Encoder",
    "FinetuneConfig",
    "LitebertError",
    "Pretrainer",
    "Shards",
    "Tokenizer",
    "compare",
    "convert",
    "evaluate",
    "finetune",
    "load",
    "prepare",
    "pretrain",
    "recipe",
    "replace",
    "task_of",
    "train_tokenizer",
]

_HOME = {
    "Config": "config",
    "Encoder": "model.encoder",
    "FinetuneConfig": "finetuning",
    "LitebertError": "errors",
    "Pretrainer": "model.pretrainer",
    "Shards": "data.shards",
    "Tokenizer": "data.tokenizer",
    "compare": "analysis.compare",
    "convert": "interop",
    "evaluate": "train.evaluate",
    "finetune": "tasks.finetune",
    "load": "tasks.predict",
    "prepare": "data.prepare",
    "pretrain": "train.pretrain",
    "recipe": "recipe_files",
    "replace": "config",
    "task_of": "tasks.choose",
    "train_tokenizer": "data.tokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'litebert' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(f"litebert.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
