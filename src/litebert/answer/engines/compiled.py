"""The engine of CPUs: whole batches in compiled calls (kernels/network.py), without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.runtime import Capabilities, Runtime, check_device
from litebert.base.errors import ConfigError, ModelError
from litebert.base.machine import count_threads
from litebert.config import EncoderConfig, Pooling
from litebert.interop.loaded import Unread, VectorMap, outputs_of
from litebert.kernels.network import (
    Head,
    Network,
    Reads,
    Rows,
    Step,
    Stored,
    find_refusal,
)
from litebert.kernels.packing import DTYPES, Dtype, Floats, Packed, in_panels, is_table, pack
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.tasks.rows import PaddedRows
from litebert.tasks.similarity import compare_vectors

if TYPE_CHECKING:
    from litebert.interop import LoadedModel

MOST_WORK = 10**11
"""Multiplications of a call, about."""


class CompiledRuntime(Runtime):
    """A network on a CPU without padding."""

    capabilities = Capabilities(early_exit=True, takes_threads=True, dtypes=DTYPES)

    def __init__(
        self, loaded: LoadedModel, device: str, threads: int | None = None, dtype: Dtype = "float32"
    ) -> None:
        check_device("compiled", device)
        self.network, weights = open_network(loaded, dtype)
        self._threads = count_threads() if threads is None else threads
        self._reads, steps = list_steps(self.network, loaded.task_record, weights)
        # Of pairs, the last step reads both texts.
        self._joint = steps.pop() if loaded.task_record.get("pooling") == "apart" else None
        self._head = self.network.head(self._reads, steps)
        self._pooled: dict[tuple[Pooling, int], tuple[Head, VectorMap | None]] = {}
        # A call is not interrupted, so it should end within a second or so.
        tokens = max(MOST_WORK // self.network.weights, 512 * self._threads)
        self.capabilities = replace(self.capabilities, tokens=tokens)

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        result = self._head.of(rows.end_to_end, self._threads)
        if self._joint is not None:
            weight = np.asarray(self._joint.weight)  # which no export packs
            joined: NDArray[np.float32] = compare_vectors(result) @ weight.T + self._joint.bias
            return joined
        if self._reads != "tokens":
            return result
        padded = np.zeros((*rows.mask.shape, result.shape[-1]), np.float32)
        padded[rows.mask] = result
        return padded

    def vectors(
        self, rows: PaddedRows, pooling: Pooling, vector_map: VectorMap | None = None
    ) -> NDArray[np.float32]:
        return self._pool(pooling, vector_map).of(rows.end_to_end, self._threads)

    def _pool(self, pooling: Pooling, vector_map: VectorMap | None) -> Head:
        key = pooling, id(vector_map)
        if key not in self._pooled:
            steps = []
            if vector_map is not None:
                vector_map.require(self.network.config.hidden_size)
                steps = [
                    Step(vector_map.weight, vector_map.bias, "tanh" if vector_map.tanh else "none")
                ]
            reads: Reads = "first" if pooling == "cls" else "mean" if pooling == "mean" else "unit"
            head = self.network.head(reads, steps)
            self._pooled[key] = head, vector_map  # which lives on, so that no other has its id
        return self._pooled[key][0]

    def walk(self, rows: PaddedRows) -> CompiledWalk:
        return CompiledWalk(self._head, rows.end_to_end, self._threads)


class CompiledWalk:
    """A batch on its way through the network, as `runtime.Walk` describes it."""

    def __init__(self, head: Head, rows: Rows, threads: int) -> None:
        self._head, self._rows, self._threads, self._layer = head, rows, threads, -1
        self._width = head.network.config.hidden_size
        self._state = np.empty(len(rows.ids) * self._width, np.float32)

    def step(self) -> NDArray[np.float32]:
        begin, self._layer = self._layer, max(self._layer, 0) + 1
        return self._head.of(self._rows, self._threads, self._state, (begin, self._layer))

    def keep(self, rows: NDArray[np.int64], length: int) -> None:
        """Go on with these rows only; padding, which `length` tells others of, there is none."""
        self._rows, tokens = self._rows.select(rows)
        self._state = self._state.reshape(-1, self._width)[tokens].reshape(-1)


def open_network(loaded: LoadedModel, dtype: Dtype = "float32") -> tuple[Network, Stored]:
    """The encoder of a model, which all that answers with it shares, and its other weights."""
    config = loaded.config.encoder
    if refusal := find_refusal(config, dtype):
        raise ConfigError(f"{refusal}; give --engine torch, or another --dtype")
    kept = loaded.network.kept if isinstance(loaded.network, Unread) else {}
    if dtype not in kept:
        weights = {name: _keep(name, a, dtype) for name, a in loaded.read_stored().items()}
        own = {
            name.removeprefix("encoder."): array
            for name, array in weights.items()
            if name.startswith("encoder.")
        }
        try:
            network = Network(config, own, dtype)
            _check_others(loaded, weights)
        except ModelError as error:
            file = loaded.network.file if isinstance(loaded.network, Unread) else loaded.path
            recipes = (loaded.path / name for name in ("recipe.json", "config.json"))
            config_file = next((path for path in recipes if path.is_file()), "its config")
            raise ModelError(f"{file} {error}; it does not belong to {config_file}") from None
        # A generator borrows the embedding, and heads for masks read its tables.
        kept[dtype] = (
            network,
            {
                name: array
                for name, array in weights.items()
                if not name.startswith("encoder.") or name.startswith("encoder.embedding.")
            },
        )
    network, weights = kept[dtype]
    return network, weights


def _keep(name: str, weight: Floats | Packed, dtype: Dtype) -> Floats | Packed:
    """What is read later leaves its file, which another program may write over meanwhile, but for
    what an export has packed; that stays there, so that processes share it."""
    if is_table(name) and (isinstance(weight, Packed) or dtype != "float32"):
        return pack(weight, dtype, is_table=True)
    if isinstance(weight, Packed) or (in_panels(name) and name.startswith("encoder.")):
        return weight  # of which the network packs what is not
    copied = weight.copy()
    return pack(copied, dtype, is_table=True) if is_table(name) else copied


def _check_others(loaded: LoadedModel, weights: Stored) -> None:
    config, record = loaded.config, loaded.task_record
    others = {name: array for name, array in weights.items() if not name.startswith("encoder.")}
    if record.get("kind") == "backbone":
        return
    if record:
        hidden, classes = config.encoder.hidden_size, record["classes"]
        shapes: dict[str, tuple[int, ...]] = {}  # as `TaskModel` has them
        pooling = record.get("pooling")
        if config.encoder.prediction == "hidden" and pooling not in ("unit", "apart"):
            shapes = _list_dense_shapes("head", hidden, hidden, config.encoder.bias)
        elif record.get("dense"):
            shapes = {"head.dense.weight": (hidden, hidden), "head.dense.bias": (hidden,)}
        shapes["head.classifier.weight"] = classes, (4 if pooling == "apart" else 1) * hidden
        shapes["head.classifier.bias"] = (classes,)
        _check_shapes(others, shapes)
        for name in others:
            if name not in shapes:
                raise ModelError(f"has an unknown '{name}'")
        return
    objectives = config.build_objectives()
    sizes = dict.fromkeys(objectives, 0)
    for name, array in others.items():
        kind, _, rest = name.partition(".")
        objective = rest.partition(".")[0]
        if kind != "objectives" or objective not in sizes:
            raise ModelError(f"has an unknown '{name}'")
        sizes[objective] += array.size
    for name, size in sizes.items():
        wanted = sum(objectives[name].parameters().values())
        if wanted and size not in (0, wanted):
            beside = loaded.path / objectives[name].foreign_file
            own = f"(or {beside}) " if objectives[name].foreign_file and beside.is_file() else ""
            raise ModelError(
                f"{own}holds {size:,} numbers of objectives.{name} in place of {wanted:,}"
            )
        if size and knows_masks(objectives[name]):
            reader = config.generator or config.encoder
            _check_shapes(others, list_mask_shapes(reader, f"objectives.{name}.head"))


def _check_shapes(weights: Stored, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse what compiled calls would read beyond its end."""
    for name, shape in shapes.items():
        if name not in weights:
            raise ModelError(f"has no '{name}'")
        if weights[name].shape != shape:
            raise ModelError(
                f"holds {name} of shape {weights[name].shape}, and its config asks for {shape}"
            )


def knows_masks(objective: object) -> bool:
    """True of an objective whose guesses for masks are computed here, and not in methods of its
    own."""
    return isinstance(objective, MaskedLanguageModeling) and all(
        getattr(type(objective), name) is getattr(MaskedLanguageModeling, name)
        for name in ("head", "build", "read", "guesses")
    )


def list_mask_shapes(config: EncoderConfig, name: str) -> dict[str, tuple[int, ...]]:
    """The weights of a head for masked tokens, as `VocabularyHead` has them, behind a name."""
    hidden, width = config.hidden_size, config.embedding_size
    if config.prediction == "hidden":
        shapes = _list_dense_shapes(name, hidden, hidden, config.bias)
    else:
        shapes = _list_dense_shapes(name, width, hidden, True)
    shapes[f"{name}.bias"] = (config.vocab_size,)
    if config.untied:
        shapes[f"{name}.word.weight"] = config.vocab_size, width
        if config.prediction == "hidden" and config.projects:
            shapes[f"{name}.project.weight"] = hidden, width
    return shapes


def _list_dense_shapes(
    name: str, outputs: int, inputs: int, bias: bool
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {f"{name}.dense.weight": (outputs, inputs)}
    shapes[f"{name}.norm.weight"] = (outputs,)
    if bias:
        shapes |= {f"{name}.dense.bias": (outputs,), f"{name}.norm.bias": (outputs,)}
    return shapes


def list_steps(
    network: Network, record: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[Reads, list[Step]]:
    """What the head of a fine-tuned model (`record` is task.json) reads, and its steps."""
    kind = record.get("kind", "backbone")
    outputs = outputs_of(kind)
    reads_cls = kind != "backbone" and next(iter(outputs.values())).reads_cls
    pooling: Pooling = record.get("pooling", "cls")
    reads: Reads = "tokens"
    if reads_cls:
        reads = "first" if pooling == "cls" else "unit" if pooling == "apart" else pooling
    steps: list[Step] = []
    if not record.get("classes"):  # a backbone
        return reads, steps
    if reads == "first" and network.pooler is not None:
        steps.append(network.pooler)
    if "head.dense.weight" in weights:
        activation = record.get("dense") or network.config.activation
        steps.append(_dense("head", weights, activation))
    steps.append(Step(weights["head.classifier.weight"], weights["head.classifier.bias"]))
    return reads, steps


def _dense(name: str, weights: Mapping[str, Any], activation: str) -> Step:
    weight, bias = weights[f"{name}.dense.weight"], weights.get(f"{name}.dense.bias")
    norm = weights.get(f"{name}.norm.weight")
    normed = None if norm is None else (norm, weights.get(f"{name}.norm.bias"))
    return Step(weight, bias, activation, normed)


class CompiledMasks:
    """A pretrained network, and one of its heads for masked tokens, as `MaskNetwork` describes
    it."""

    def __init__(
        self, loaded: LoadedModel, head: str, threads: int | None = None, dtype: Dtype = "float32"
    ) -> None:
        self._network, stored = open_network(loaded, dtype)
        weights: dict[str, Any] = dict(stored)
        generator, name = loaded.config.generator, f"objectives.{head}"
        config = generator or loaded.config.encoder
        if generator is not None:
            own = {
                key.removeprefix(f"{name}.generator."): array
                for key, array in weights.items()
                if key.startswith(f"{name}.generator.")
            }
            for key, array in weights.items():  # it borrows the tables of the encoder
                part = key.removeprefix("encoder.")
                if part.startswith("embedding.") and not part.startswith("embedding.project"):
                    own.setdefault(part, array)
            self._network = Network(config, own, dtype)
        reader = "encoder" if generator is None else f"{name}.generator"
        word = weights["encoder.embedding.word.weight"]
        projection = weights.get(f"{reader}.embedding.project.weight")
        steps = [_dense(f"{name}.head", weights, config.activation)]
        if config.untied:  # a table of its own, and a map E -> H
            word = weights[f"{name}.head.word.weight"]
            projection = weights.get(f"{name}.head.project.weight")
        if config.prediction == "hidden" and projection is not None:
            steps.append(Step(np.ascontiguousarray(projection.T)))
        steps.append(Step(word, weights[f"{name}.head.bias"]))
        self._head = self._network.head("chosen", steps)
        self._threads = count_threads() if threads is None else threads

    def states(
        self, ids: NDArray[np.int64], mask: NDArray[np.bool_] | None = None
    ) -> tuple[Rows, Floats, NDArray[np.int64]]:
        """The rows, their last states, and the number of the token at each flat position."""
        real = np.ones(ids.shape, bool) if mask is None else mask
        starts = np.array([0, *np.cumsum(real.sum(1))], np.int64)
        rows = Rows(ids[real].astype(np.int32), None, starts)
        state = np.empty(len(rows.ids) * self._network.config.hidden_size, np.float32)
        self._head.of(rows, self._threads, state, chosen=np.zeros(0, np.int64))
        return rows, state, np.cumsum(real.ravel()) - 1

    def logits(
        self, states: tuple[Rows, Floats, NDArray[np.int64]], positions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        rows, state, numbers = states
        end = self._network.config.layers, self._network.config.layers
        parts = [
            self._head.of(rows, self._threads, state, end, numbers[positions[at : at + step]])
            for step in (max(1, len(rows.ids)),)
            for at in range(0, max(1, len(positions)), step)
        ]
        return np.concatenate(parts)
