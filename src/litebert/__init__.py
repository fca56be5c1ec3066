"""litebert: small text encoders, trained on your own text.

The verbs of the command line are functions here, with the same names; each is imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litebert.analysis.compare import compare
    from litebert.answer.predictor import load
    from litebert.config import Config, replace
    from litebert.config.finetuning import FinetuneConfig
    from litebert.data.prepare import prepare
    from litebert.data.shards import Shards
    from litebert.errors import LitebertError
    from litebert.finetuning.run import finetune
    from litebert.interop import convert
    from litebert.model.encoder import Encoder
    from litebert.model.pretrainer import Pretrainer
    from litebert.recipes.files import recipe
    from litebert.tasks.registry import task_of
    from litebert.tokenizer import Tokenizer, train_tokenizer
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
    "FinetuneConfig": "config",
    "LitebertError": "errors",
    "Pretrainer": "model.pretrainer",
    "Shards": "data.shards",
    "Tokenizer": "tokenizer",
    "compare": "analysis.compare",
    "convert": "interop",
    "evaluate": "train.evaluate",
    "finetune": "finetuning.run",
    "load": "answer.predictor",
    "prepare": "data.prepare",
    "pretrain": "train.pretrain",
    "recipe": "recipes.files",
    "replace": "config",
    "task_of": "tasks.registry",
    "train_tokenizer": "tokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'litebert' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(f"litebert.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
