"""A smaller model from the weights of a larger one, and what was lost: narrower states
(narrowing.py), fewer blocks, fewer layers, a factorized table.

A block that several layers share becomes the mean of the teacher's blocks there, or one of them.
The tables of tokens, positions and segments, side by side, are factorized by one truncated singular
value decomposition into tables of width E and a map E -> H. The layer norm after their sum then
stands behind the map (`embedding_norm=after`), and the vocabulary head takes the map backwards
(`prediction=hidden`): with all singular values, the network computes what the teacher does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from litebert.base.errors import ConfigError, ModelError, require
from litebert.change.narrowing import Importance, narrow
from litebert.config import Config, EncoderConfig, Sharing, cost
from litebert.interop.loaded import LoadedModel
from litebert.model.pretrainer import Pretrainer

Merge = Literal["average", "first", "middle", "last"]


@dataclass(frozen=True, kw_only=True)
class Shrinking:
    """How a model becomes a smaller one; None keeps what it has."""

    share: Sharing | None = None
    groups: int = 1
    layers: int | None = None
    embedding_size: int | None = None
    merge: Merge = "average"
    """How the teacher's blocks become one: their mean, or the first, middle or last."""
    hidden_size: int | None = None
    intermediate_size: int | None = None
    importance: Callable[[], Importance] | None = None
    """Measures what matters, of which these two keep the most."""

    def __post_init__(self) -> None:
        require(
            self.share is not None
            or (self.groups == 1 and (self.merge == "average" or self.layers is not None)),
            "--groups and --merge say how blocks become fewer; give --share or --layers too",
        )
        require(
            self.importance is not None or not self.narrows,
            "--hidden-size and --intermediate-size keep what matters most on some text; "
            "name prepared text with --shards",
        )

    @property
    def is_active(self) -> bool:
        fewer = (self.share, self.layers, self.embedding_size)
        return self.narrows or any(value is not None for value in fewer)

    @property
    def narrows(self) -> bool:
        return self.hidden_size is not None or self.intermediate_size is not None


@dataclass(frozen=True)
class Shrunk:
    """A smaller model, and how far it is from the larger one before any training."""

    loaded: LoadedModel
    parameters: tuple[int, int]
    """Before and after, heads included."""
    energy: float | None
    """Share of the tables' squared singular values that is kept; None where they stayed."""
    distances: Mapping[str, float]
    """The root of the mean squared distance of the teacher's blocks from what they became, by
    block, relative to their size: 0 where all are equal."""
    left_out: tuple[str, ...]
    """Objectives whose head does not fit the smaller model."""
    importance_kept: Mapping[str, float]
    """The share of the importance that a narrower network keeps, by kind of part."""

    def rows(self) -> list[tuple[str, str]]:
        before, after = self.parameters
        rows = [("parameters", f"{before:,} -> {after:,} ({after / before:.1%})")]
        rows += [
            (f"importance of {name} kept", f"{share:.1%}")
            for name, share in self.importance_kept.items()
        ]
        if self.energy is not None:
            rows.append(("energy of the embeddings kept", f"{self.energy:.2%}"))
        distances = self.distances.items()
        return rows + [(f"distance of {name}", f"{value:.3f}") for name, value in distances]


def shrink(loaded: LoadedModel, how: Shrinking) -> Shrunk:
    path = loaded.path
    model, depth = _require_shrinkable(loaded, how)
    teacher = model.encoder.config
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    importance_kept: dict[str, float] = {}
    if how.importance is not None and how.narrows:
        old, sizes = loaded.config.without_its_run(), (how.hidden_size, how.intermediate_size)
        state, teacher, importance_kept = narrow(state, old, path, *sizes, how.importance)
    shape = replace(
        teacher,
        layers=depth,
        sharing=how.share or teacher.sharing,
        groups=how.groups if how.share else teacher.groups,
    )
    energy = None
    if how.embedding_size not in (None, teacher.embedding_size):
        shape = _factorize_shape(loaded, shape, how.embedding_size or 0)
        energy = _factorize(state, shape.embedding_size)
    distances: dict[str, float] = {}
    if (shape.sharing, shape.groups, depth) != (teacher.sharing, teacher.groups, teacher.layers):
        state, distances = _merge_blocks(state, teacher, shape, how.merge)
    old_config = loaded.config.without_its_run()
    objectives, left_out = _select_objectives(old_config, shape, state)
    config = replace(old_config, encoder=shape, objectives=objectives)
    student = Pretrainer(config)
    fresh = student.state_dict()
    absent = tuple(f"objectives.{name}." for name in loaded.untrained)  # whose heads stay fresh
    missing = [name for name in fresh if name not in state and not name.startswith(absent)]
    assert not missing, missing
    student.load_state_dict(
        {name: state.get(name, tensor).to(tensor.dtype) for name, tensor in fresh.items()}
    )
    student.eval()
    counts = [sum(cost.model_parameters(each).values()) for each in (loaded.config, config)]
    untrained = tuple(name for name in loaded.untrained if name in objectives)
    small = replace(loaded, network=student, config=config, untrained=untrained, card="")
    return Shrunk(small, (counts[0], counts[1]), energy, distances, left_out, importance_kept)


def _require_shrinkable(loaded: LoadedModel, how: Shrinking) -> tuple[Pretrainer, int]:
    model, path = loaded.model, loaded.path
    if not isinstance(model, Pretrainer):
        raise ModelError(
            f"{path} is fine-tuned; shrink the pretrained model, and let it learn the task with "
            "litebert finetune --teacher"
        )
    if loaded.config.generator is not None:
        raise ModelError(
            f"{path} has a generator that borrows its embeddings, which cannot be shrunk "
            "with it; convert it to a model without one first"
        )
    layers = model.encoder.config.layers
    depth = layers if how.layers is None else how.layers
    if depth > layers:
        raise ConfigError(
            f"--layers {depth} is more than the {layers} of {path}; give at most so many"
        )
    return model, depth


# --------------------------------------------------------------------------------------- the blocks

_BLOCKS = ("encoder.attention.", "encoder.feedforward.")


def _merge_blocks(
    state: Mapping[str, Tensor], teacher: EncoderConfig, student: EncoderConfig, merge: Merge
) -> tuple[dict[str, Tensor], dict[str, float]]:
    merged: dict[str, Tensor] = {}
    distances: dict[str, float] = {}
    for part, blocks in (
        ("attention", EncoderConfig.attention_of),
        ("feedforward", EncoderConfig.feedforward_of),
    ):
        # The teacher's blocks of each of the student's, one for each layer that it stands for.
        sources_of: dict[int, list[int]] = {}
        for layer, source in enumerate(blocks(teacher)):
            block = blocks(student)[layer * student.layers // teacher.layers]
            sources_of.setdefault(block, []).append(source)
        for block, sources in sorted(sources_of.items()):
            tensors, distance = _merge(state, f"encoder.{part}", sources, merge)
            distances[f"{part} {block + 1}"] = distance
            merged |= {f"encoder.{part}.{block}.{leaf}": tensor for leaf, tensor in tensors.items()}
    others = {name: tensor for name, tensor in state.items() if not name.startswith(_BLOCKS)}
    return others | merged, distances


def _merge(
    state: Mapping[str, Tensor], part: str, sources: Sequence[int], merge: Merge
) -> tuple[dict[str, Tensor], float]:
    chosen = {
        "average": sources,
        "first": sources[:1],
        "middle": sources[len(sources) // 2 :][:1],
        "last": sources[-1:],
    }[merge]
    blocks = [_block(state, f"{part}.{source}.") for source in sources]
    selection = [_block(state, f"{part}.{source}.") for source in chosen]
    mean = {}
    # The first layer may lack a norm.
    for leaf in dict.fromkeys(name for block in blocks for name in block):
        tensors = [block[leaf] for block in selection if leaf in block] or [
            block[leaf] for block in blocks if leaf in block
        ]
        mean[leaf] = torch.stack(tensors).mean(0)
    apart = sum(
        float((block[leaf] - mean[leaf]).square().sum()) for block in blocks for leaf in block
    )
    size = sum(float(tensor.square().sum()) for block in blocks for tensor in block.values())
    return mean, (apart / size) ** 0.5


def _block(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }


# ------------------------------------------------------------------------------------ the embedding

_TABLES = tuple(f"encoder.embedding.{name}.weight" for name in ("word", "position", "token_type"))
_MAP = "encoder.embedding.project.weight"


def _factorize_shape(loaded: LoadedModel, shape: EncoderConfig, size: int) -> EncoderConfig:
    """The shape with tables of another width, where that can be done without moving a norm."""
    path, width = loaded.path, shape.hidden_size
    if not 1 <= size < (shape.embedding_size if shape.projects else width):
        most = (shape.embedding_size if shape.projects else width) - 1
        raise ConfigError(
            f"--embedding-size is {size}; factorizing the embeddings of {path} takes 1 to {most}"
        )
    if shape.projects and shape.embedding_norm == "before":
        raise ModelError(
            f"{path} has a norm between its tables and its map E -> H, so the two are no single "
            "table to factorize; leave --embedding-size out"
        )
    if shape.untied:
        raise ModelError(f"{path} has two tables (encoder.untied); leave --embedding-size out")
    if shape.prediction == "embedding" and (shape.projects or not shape.bias):
        raise ModelError(
            f"{path} has a vocabulary head that cannot keep its form "
            "(encoder.prediction=embedding); leave --embedding-size out"
        )
    supported = ("encoder.embedding.norm", *_TABLES, _MAP)
    other = [
        name
        for name in loaded.model.state_dict()
        if name.startswith("encoder.embedding.") and not name.startswith(supported)
    ]
    if other:
        raise ModelError(
            f"{path} has {other[0]}, which is no table to factorize; leave --embedding-size out"
        )
    return replace(
        shape,
        embedding_size=size,
        embedding_norm="after",
        prediction="hidden",
        always_project=False,
    )


def _factorize(state: dict[str, Tensor], size: int) -> float:
    """Replace the tables by narrower ones and a map, all in float64; the share of the energy that
    is kept. The right singular vectors are the eigenvectors of the Gram matrix, (H, H).
    """
    tables = [name for name in _TABLES if name in state]
    rows = torch.cat([state[name] for name in tables])
    if _MAP in state:
        rows = rows @ state[_MAP].T
    energy, vectors = torch.linalg.eigh(rows.T @ rows)
    energy, map_HE = energy.flip(0).clamp(min=0), vectors.flip(1)[:, :size]
    sizes = [len(state[name]) for name in tables]
    state.update(zip(tables, (rows @ map_HE).split(sizes), strict=True))
    state[_MAP] = map_HE
    return float(energy[:size].sum() / energy.sum())


def _select_objectives(
    config: Config, shape: EncoderConfig, state: Mapping[str, Tensor]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    objectives = replace(config, encoder=shape).build_objectives()
    fitting: list[str] = []
    for name in config.objectives:
        forms = {
            f"objectives.{name}.{key}": tensor.shape
            for key, tensor in objectives[name].build().state_dict().items()
        }
        if all(key not in state or state[key].shape == form for key, form in forms.items()):
            fitting.append(name)
    if not fitting:
        raise ModelError(
            "no objective of the model keeps its head in the smaller one; leave "
            "--embedding-size and --hidden-size out"
        )
    return tuple(fitting), tuple(name for name in config.objectives if name not in fitting)
