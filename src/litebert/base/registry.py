"""The registries by which litebert is extended: each is one kind of part, and maps the names a
person types to those parts.

    OBJECTIVES  what pretraining learns           `--objectives mlm sop`       model/objectives/
    POSITIONS   how the encoder knows token order `--encoder.positions rotary` model/positions.py
    TASKS       what fine-tuning learns           `--task table`               tasks/
    OUTPUTS     what a fine-tuned model answers   `problem` in task.json       tasks/outputs.py
    ENGINES     what computes logits for answers  `load(..., engine="torch")`  answer/engines/
    TRACKERS    where runs are looked at          `--tracker wandb`            train/trackers/
    SOURCES     where text comes from             `litebert prepare SOURCE`    text/sources.py
    FORMATS     what writes a model folder        `litebert convert --to hf`   interop/
    FAMILIES    names of foreign weights          `model_type` in config.json interop/hf/families.py
    OWN_VERBS   verbs beside those of cli.py      `litebert VERB`              cli.py

Add a part of your own in one line, `OBJECTIVES.add("mine", Mine)`, in a Python file. Your program
imports that file, a recipe `mine.py:function` runs it, and so does every command if the environment
has `LITEBERT_EXTENSIONS=mine.py`. Built-in parts stand here as "module:attribute" and are imported
when first asked for, so a verb pays only for what it uses.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from litebert.base.errors import ConfigError, naming_extras, nearest


@cache
def python_file(path: Path) -> dict[str, Any]:
    """Run a Python file once in a process, as a module that may import from its folder, because
    dataclasses look up their module; return what it defines.
    """
    name = f"litebert_extension_{sha256(str(path).encode()).hexdigest()[:16]}"
    loader = SourceFileLoader(name, str(path))
    module = module_from_spec(spec_from_loader(name, loader))  # type: ignore[arg-type]
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return vars(module)


def list_extensions() -> list[str]:
    """The Python files that the environment names in LITEBERT_EXTENSIONS."""
    return list(filter(None, os.environ.get("LITEBERT_EXTENSIONS", "").split(os.pathsep)))


def load_extension(file: str) -> None:
    """Run one of them, which registers its parts."""
    try:
        python_file(Path(file).resolve())
    except (Exception, SystemExit) as error:  # a program of a user fails in any way
        raise ConfigError(
            f"LITEBERT_EXTENSIONS={file} cannot be run: {type(error).__name__}: {error}"
        ) from error


def load_extensions() -> None:
    """Run all of them. Every process does that needs parts by their names."""
    for file in list_extensions():
        load_extension(file)


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause garbage collection around imports: it is a tenth of the time of importing torch."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Registry(Mapping[str, Any]):
    """Names of one kind of part. A part is imported the first time it is looked up."""

    def __init__(
        self, kind: str, method: str = "__call__", wanted: str = "class", **parts: str
    ) -> None:
        """`method` is the one that each part must have; with `__call__`, parts are functions, else
        `wanted` says whether they are classes or objects.
        """
        self.kind, self._method = kind, method
        self._wanted = "function" if method == "__call__" else wanted
        self._parts: dict[str, Any] = dict(parts)

    def add(self, name: str, part: Any) -> None:
        """Give a name to a part."""
        is_right_sort = self._wanted in ("function", "class or object") or isinstance(
            part, type
        ) == (self._wanted == "class")
        if not hasattr(part, self._method) or not is_right_sort:
            method = "" if self._wanted == "function" else f" that has {self._method}"
            raise ConfigError(
                f"{part!r} cannot be the {self.kind} '{name}'; give a {self._wanted}{method}"
            )
        if name in self._parts and self._parts[name] is not part:
            raise ConfigError(f"the {self.kind} '{name}' exists already; choose another name")
        self._parts[name] = part

    def __getitem__(self, name: str) -> Any:
        if name not in self._parts:
            raise ConfigError(f"there is no {self.kind} '{name}'; {nearest(name, self._parts)}")
        part = self._parts[name]
        if isinstance(part, str):
            module, _, attribute = part.partition(":")
            with pause_collection(), naming_extras():
                part = self._parts[name] = getattr(import_module(f"litebert.{module}"), attribute)
        return part

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


OBJECTIVES = Registry(
    "objective",
    "loss",
    mlm="model.objectives.mlm:MaskedLanguageModeling",
    sop="model.objectives.sentence_order:SentenceOrder",
    nsp="model.objectives.sentence_order:NextSentence",
    rtd="model.objectives.rtd:ReplacedTokenDetection",
    sbo="model.objectives.sbo:SpanBoundary",
    soft="model.objectives.distillation:SoftLabels",
    states="model.objectives.distillation:States",
    relations="model.objectives.distillation:Relations",
)
POSITIONS = Registry(
    "positions kind",
    "attention",
    learned="model.positions:LearnedPositions",
    rotary="model.positions:RotaryPositions",
)
TASKS = Registry(
    "task",
    "from_settings",
    table="tasks.table:Table",
    squad="tasks.squad.task:Squad",
    race="tasks.race:RaceTask",
    choices="tasks.choices:ChoiceTask",
    tagging="tasks.tagging.task:TaggingTask",
    pairs="tasks.pairs:Pairs",
    rerank="tasks.retrieval.task:Rerank",
    **dict.fromkeys(
        ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"),
        "tasks.glue:Glue",
    ),
    **{"stsb-vectors": "tasks.pairs:StsbVectors"},
)
OUTPUTS = Registry(
    "output",
    "from_saved",
    classes="tasks.text_outputs:OneClass",
    labels="tasks.text_outputs:SeveralLabels",
    number="tasks.text_outputs:Number",
    tokens="tasks.token_outputs:Tags",
    span="tasks.token_outputs:OneSpan",
    choice="tasks.text_outputs:OneChoice",
    similarity="tasks.similarity:Similarity",
    relevance="tasks.text_outputs:Relevance",
)
ENGINES = Registry(
    "engine",
    "capabilities",
    "class or object",
    compiled="answer.engines.compiled:CompiledRuntime",
    torch="answer.engines.torch_runtime:TorchRuntime",
    onnx="answer.engines.onnx_runtime:OnnxRuntime",
    tfidf="answer.engines.tfidf:TfidfRuntime",
)
TRACKERS = Registry(
    "tracker",
    "log",
    tensorboard="train.trackers.services:TensorBoard",
    wandb="train.trackers.services:Wandb",
    mlflow="train.trackers.services:Mlflow",
    trackio="train.trackers.services:Trackio",
)
SOURCES = Registry(
    "source of text",
    **{"python-docs": "text.python_docs:read_python_docs", "hf:": "text.sources:read_dataset"},
)
FORMATS = Registry(
    "model format", hf="interop.hf.writing:save_hf", litebert="interop.models:save_litebert"
)
FAMILIES = Registry(
    "encoder family",
    "class_of",
    "table",
    **{
        name: f"interop.hf.families:{name.upper()}"
        for name in ("albert", "bert", "roberta", "electra", "modernbert")
    },
)
OWN_VERBS = Registry("verb")
"""Functions of the words after the verb that return an exit status; not in `litebert --help`."""
