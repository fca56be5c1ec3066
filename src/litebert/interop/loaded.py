"""A model in memory with what belongs to it. This module needs no torch, for an exported model
answers without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import (
    ConfigError,
    DataError,
    LitebertError,
    ModelError,
    naming_extras,
)
from litebert.base.registry import OUTPUTS
from litebert.config import Config, HeadActivation, Pooling
from litebert.config.finetuning import HeadName
from litebert.kernels.network import Stored, Weights
from litebert.kernels.packing import Dtype, Packed
from litebert.tokenizer import Tokenizer


class VectorMap(NamedTuple):
    """A map of pooled states, the last step before unit length: weight v + bias, or tanh of it."""

    weight: NDArray[np.float32]
    """(D, H)"""
    bias: NDArray[np.float32]
    """(D,)"""
    tanh: bool = False

    def require(self, width: int) -> None:
        """Refuse states of another width."""
        if self.weight.shape[1] != width:
            raise ModelError(
                f"the Dense module of this model maps vectors of {self.weight.shape[1]} numbers, "
                f"and its states have {width}; restore the one that it was trained with"
            )

    def of(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """(..., H) -> (..., D)."""
        self.require(vectors.shape[-1])
        mapped: NDArray[np.float32] = vectors @ self.weight.T + self.bias
        return np.tanh(mapped) if self.tanh else mapped


if TYPE_CHECKING:
    from litebert.model.pretrainer import Pretrainer
    from litebert.model.task_model import TaskModel


@dataclass(frozen=True)
class Unread:
    """A network whose weights are read when it is first used."""

    read: Callable[[], Pretrainer | TaskModel]
    read_stored: Callable[[], Stored]
    """Reads them without torch, by the names of the network's `state_dict`."""
    file: Path
    """The file of the weights, for messages."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The kind, classes, dense map and pooling of a fine-tuned network; empty of a pretrained
    one."""
    dtype: Dtype | None = None
    """The type in which an export has packed them."""
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the compiled engine has made of the weights, for all that it answers."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "kept": {}}


@dataclass(frozen=True)
class Contents:
    """What a folder of another program holds, in litebert's terms."""

    folder: Path
    config_file: Path
    weights_file: Path
    config: Config
    weights: Weights
    """By the names of litebert's state dict, in float32; read when they are used."""
    head: HeadName | None = None
    """The head of a fine-tuned model; None of a pretrained one."""
    beside: Mapping[str, Weights] = field(default_factory=dict)
    """The weights of objectives that have a file of their own, by the objective."""
    untrained: tuple[str, ...] = ()
    classes: int = 0
    labels: tuple[str, ...] = ()
    task: Mapping[str, Any] = field(default_factory=dict)
    reads_cls: bool = False
    """True where the head reads a text and not each token."""
    dense: HeadActivation | None = None
    """The activation of the dense map in the head."""
    family_dense: HeadActivation | None = None
    """That of a fresh head of the same family."""
    pooling: Pooling = "cls"
    """What a classifier of texts reads."""
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> Weights:
        """All weights."""
        beside = {
            f"objectives.{name}.{key}": array
            for name, weights in self.beside.items()
            for key, array in weights.items()
        }
        return {**self.weights, **beside}


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory."""

    network: Pretrainer | TaskModel | Unread
    """The network in evaluation mode, float32, on the CPU."""
    config: Config
    tokenizer: Tokenizer | None
    """None where the folder has none."""
    path: Path
    labels: tuple[str, ...] = ()
    """Names of the classes of a fine-tuned model, where the folder has them."""
    untrained: tuple[str, ...] = ()
    """Objectives whose head is not in the folder and is freshly initialized."""
    notes: tuple[str, ...] = ()
    """Sentences about it that a person should know."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """The task.json of a fine-tuned model, the `kind` of its head among it."""
    dense: HeadActivation | None = None
    """The activation of the dense map that a fresh classifier of texts puts on [CLS]; None where it
    reads a pooler.
    """
    pooling: Pooling = "cls"
    """The states that a fresh classifier of texts reads."""
    card: str = ""
    """The text of its README.md."""
    vector_map: VectorMap | None = None
    """The map of its sentence vectors, where it is another than that of its folder."""

    @cached_property
    def model(self) -> Pretrainer | TaskModel:
        """The network."""
        with naming_extras():
            return self.network.read() if isinstance(self.network, Unread) else self.network

    def read_weights(self) -> Weights:
        """Read the weights of the network by the names of its `state_dict`, for engines without
        torch."""
        return {
            name: weight.unpack() if isinstance(weight, Packed) else weight
            for name, weight in self.read_stored().items()
        }

    def read_stored(self) -> Stored:
        """Read them as the folder has them, which may be packed."""
        if isinstance(self.network, Unread):
            return self.network.read_stored()
        state = self.network.state_dict()
        return {name: tensor.detach().float().cpu().numpy() for name, tensor in state.items()}

    @property
    def packed(self) -> Dtype | None:
        """The type of the weights of an export; None of any other folder."""
        return self.network.dtype if isinstance(self.network, Unread) else None

    @property
    def head(self) -> HeadName:
        """The head of a fine-tuned model: as its task says, else by what it reads."""
        record = self.network.record if isinstance(self.network, Unread) else {}
        if named := record.get("kind") or self.task.get("kind"):
            return cast(HeadName, named)
        network = cast("TaskModel", self.model)
        return next(
            output.head for output in OUTPUTS.values() if output.reads_cls == network.reads_cls
        )

    @property
    def task_record(self) -> dict[str, Any]:
        """The task.json of a fine-tuned model, from which its task is restored; empty for a
        pretrained one.
        """
        if isinstance(self.network, Unread):
            if not (record := self.network.record):
                return {}
            classes, dense = record["classes"], record.get("dense")
            pooling = record.get("pooling", "cls")
        else:
            from litebert.model.task_model import TaskModel

            network = self.network
            if not isinstance(network, TaskModel):
                return {}
            classes, dense, pooling = network.classes, network.dense, network.pooling
        read = {} if pooling == "cls" else {"pooling": pooling}
        return {
            **self.task,
            "kind": self.head,
            "classes": classes,
            "dense": dense,
            **read,
            "labels": list(self.labels),
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the fields, and nothing that is computed from them. A network
        that was not read yet is read from its folder again.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __post_init__(self) -> None:
        rows = self.config.encoder.vocab_size
        if self.tokenizer is not None and self.tokenizer.vocab_size > rows:
            raise ModelError(
                f"the tokenizer of {self.path} has {self.tokenizer.vocab_size} tokens, and "
                f"the model has {rows} rows "
                "for tokens; give the tokenizer that the model was trained with"
            )


def choose_tokenizer(
    read: Callable[[], Tokenizer | None], substitute: str | Path | None, folder: Path
) -> Tokenizer | None:
    """The tokenizer of a model folder, or the one that a person names for a folder without a
    readable tokenizer.

    Args:
        read: reads the folder's tokenizer; None where the folder has none.
        substitute: what a person names: a folder, *.model, vocab.txt or tokenizer.json.
    """
    if substitute is None:
        return read()
    chosen = Tokenizer.load(substitute)
    try:
        stored = read()
    except LitebertError:  # the substitute is for such a folder
        return chosen
    if stored is not None and stored.fingerprint != chosen.fingerprint:
        raise another_tokenizer(substitute, folder)
    return chosen


def another_tokenizer(substitute: str | Path, folder: Path) -> ConfigError:
    """The refusal of a tokenizer that is not the model's."""
    return ConfigError(
        f"{substitute} is not the tokenizer that {folder} was trained with; leave "
        "--tokenizer out, or name that one"
    )


def require_fit(loaded: LoadedModel, substitute: str | Path) -> None:
    """Check that a tokenizer that a person names belongs to the model: it nearly fills the table of
    the words.

    Published tables are longer than their vocabulary by a few rows, to reach a multiple of 64 or
    128. A tokenizer with more tokens than rows is refused by `LoadedModel`.
    """
    assert loaded.tokenizer is not None
    rows, tokens = loaded.config.encoder.vocab_size, loaded.tokenizer.vocab_size
    if rows - tokens > max(128, rows // 10):
        raise ModelError(
            f"{substitute} has {tokens:,} tokens and {loaded.path} has {rows:,} rows for tokens; "
            "give the tokenizer that the model was trained with"
        )


def require_tokenizer_of(
    data: str | Path, tokenizer: Tokenizer, loaded: LoadedModel, source: str | Path
) -> None:
    """Check that the token ids of prepared text mean to a model what they meant in its training.

    Args:
        data, tokenizer: the folder of the text, and its tokenizer.
        source: the folder of the model, as a person named it.
    """
    if loaded.tokenizer is None:
        raise DataError(
            f"{source} has no tokenizer, so it may not fit {data}; put the "
            "tokenizer that it was trained with there"
        )
    if loaded.tokenizer.fingerprint != tokenizer.fingerprint:
        raise DataError(
            f"{data} was prepared with another tokenizer than {source} has; prepare the data "
            f"with --tokenizer {loaded.path}"
        )


def outputs_of(head: object) -> dict[str, Any]:
    """The registered outputs (`finetuning.outputs.Output`) of a head by name, the usual one
    first."""
    return {name: output for name, output in OUTPUTS.items() if output.head == head}


def note_untrained(untrained: Sequence[str], config: Config, folder: Path) -> list[str]:
    """Say which heads are freshly initialized."""
    objectives = config.build_objectives()
    return [
        f"{folder} has no {objectives[name].network_name}; that objective is untrained"
        for name in untrained
    ]


def fresh_dense(config: Config) -> HeadActivation | None:
    """The activation of the dense map that a fresh classifier of texts puts on [CLS]; None where it
    reads a pooler.

    An objective may say it. Otherwise tanh where positions have an offset, as in RoBERTa's code
    alone; a pooler in the code of the other papers. With prediction=hidden every head has a dense
    map, whatever the objectives.
    """
    if config.encoder.prediction == "hidden":
        return None
    activation = next(
        (
            objective.classifier
            for objective in config.build_objectives().values()
            if objective.classifier
        ),
        None,
    )
    return activation or ("tanh" if config.encoder.position_offset > 0 else None)
