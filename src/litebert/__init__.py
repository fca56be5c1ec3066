"""litebert: small text encoders, trained on your own text.

The verbs of the command line are functions here, with the same names; each is imported when first
used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from litebert.base import machine

# Threads of numpy's BLAS wait for their next product by spinning, 2 to this power of cycles, a
# millisecond and not tens of them. They would take the cores of the threads that answer. It counts
# where numpy is imported after litebert.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

if TYPE_CHECKING:
    from litebert.analysis.compare import compare as compare
    from litebert.analysis.layers import analyze as analyze
    from litebert.answer.batch_function import BatchFunction as BatchFunction
    from litebert.answer.evaluation import evaluate as evaluate
    from litebert.answer.export import export as export
    from litebert.answer.masks.minimal_pairs import evaluate_blimp as evaluate_blimp
    from litebert.answer.merging import merge as merge
    from litebert.answer.model import load as load
    from litebert.answer.retrieval import evaluate_retrieval as evaluate_retrieval
    from litebert.answer.static import load_static as load_static
    from litebert.base.errors import LitebertError as LitebertError
    from litebert.change.conversion import convert as convert
    from litebert.change.conversion import push as push
    from litebert.change.conversion import resize as resize
    from litebert.config import Config as Config
    from litebert.config import replace as replace
    from litebert.config.finetuning import FinetuneConfig as FinetuneConfig
    from litebert.data.prepare import PrepareConfig as PrepareConfig
    from litebert.data.prepare import prepare as prepare
    from litebert.data.prepare import prepare_part as prepare_part
    from litebert.data.shards import Shards as Shards
    from litebert.finetuning.run import finetune as finetune
    from litebert.fitting.run import fit as fit
    from litebert.model.encoder import Encoder as Encoder
    from litebert.model.pretrainer import Pretrainer as Pretrainer
    from litebert.recipes.files import recipe as recipe
    from litebert.studies.plan import StudySettings as StudySettings
    from litebert.studies.run import study as study
    from litebert.tasks.registry import open_task as open_task
    from litebert.tokenizer import Tokenizer as Tokenizer
    from litebert.tokenizer.training import train_tokenizer as train_tokenizer
    from litebert.train.pretrain import pretrain as pretrain

_HOME = {
    "BatchFunction": "answer.batch_function",
    "Config": "config",
    "Encoder": "model.encoder",
    "FinetuneConfig": "config",
    "LitebertError": "base.errors",
    "PrepareConfig": "data.prepare",
    "Pretrainer": "model.pretrainer",
    "Shards": "data.shards",
    "StudySettings": "studies.plan",
    "Tokenizer": "tokenizer",
    "analyze": "analysis.layers",
    "compare": "analysis.compare",
    "convert": "change.conversion",
    "evaluate": "answer.evaluation",
    "evaluate_blimp": "answer.masks.minimal_pairs",
    "evaluate_retrieval": "answer.retrieval",
    "export": "answer.export",
    "finetune": "finetuning.run",
    "fit": "fitting.run",
    "load": "answer.model",
    "load_static": "answer.static",
    "prepare": "data.prepare",
    "prepare_part": "data.prepare",
    "pretrain": "train.pretrain",
    "push": "change.conversion",
    "recipe": "recipes.files",
    "replace": "config",
    "resize": "change.conversion",
    "study": "studies.run",
    "merge": "answer.merging",
    "open_task": "tasks.registry",
    "train_tokenizer": "tokenizer.training",
}
__all__ = sorted(_HOME)


machine.heed_processor_limit()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'litebert' has no attribute '{name}'")
    from litebert.base.errors import naming_extras
    from litebert.base.registry import pause_collection

    with naming_extras(), pause_collection():
        value = globals()[name] = getattr(import_module(f"litebert.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
