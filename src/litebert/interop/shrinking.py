"""A smaller model from the weights of a larger one, and what was lost: narrower states, fewer
blocks, fewer layers, a factorised table.

A block that several layers share becomes the mean of the teacher's blocks there, or one of them.
The tables of tokens, positions and segments, side by side, are factorised by one truncated singular
value decomposition into tables of width E and a map E -> H. The layer norm after their sum then
stands behind the map (`embedding_norm=after`), and the vocabulary head takes the map backwards
(`prediction=hidden`): with all singular values, the network computes what the teacher does. What a
narrower network keeps is in narrowing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from litebert import cost
from litebert.config import Config, EncoderConfig, Sharing
from litebert.errors import ConfigError, ModelError, require
from litebert.interop.loaded import LoadedModel
from litebert.interop.narrowing import Importance, narrow
from litebert.model.pretrainer import Pretrainer

Merge = Literal["average", "first", "middle", "last"]


@dataclass(frozen=True, kw_only=True)
class Shrinking:
    """How a model becomes a smaller one; None keeps what it has."""

    share: Sharing | None = None
    groups: int = 1
    """Number of blocks with share=groups."""
    layers: int | None = None
    embedding_size: int | None = None
    merge: Merge = "average"
    """What a block becomes of the teacher's blocks in its layers: their mean, or the first, middle
    or last.
    """
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
            "name prepared text with --data",
        )

    @property
    def asked(self) -> bool:
        """Whether anything is to shrink."""
        return self.narrows or any(
            one is not None for one in (self.share, self.layers, self.embedding_size)
        )

    @property
    def narrows(self) -> bool:
        """Whether the network shall become narrower."""
        return self.hidden_size is not None or self.intermediate_size is not None


@dataclass(frozen=True)
class Shrunk:
    """A smaller model, and how far it is from the larger one before any training."""

    loaded: LoadedModel
    parameters: tuple[int, int]
    """Before and after, heads included."""
    energy: float | None
    """Share of the tables' squared singular values that is kept; None where they stayed as they
    were.
    """
    distances: Mapping[str, float]
    """By block, the root of the mean squared distance of the teacher's blocks from what they
    became, relative to their own size: 0 where all are equal."""
    left_out: tuple[str, ...]
    """Objectives whose head does not fit the smaller model."""
    kept: Mapping[str, float]
    """By kind of part, the share of the importance that a narrower network keeps."""

    def rows(self) -> list[tuple[str, str]]:
        """For a table."""
        before, after = self.parameters
        rows = [("parameters", f"{before:,} -> {after:,} ({after / before:.1%})")]
        rows += [
            (f"importance of {name} kept", f"{share:.1%}") for name, share in self.kept.items()
        ]
        rows += (
            [] if self.energy is None else [("energy of the embeddings kept", f"{self.energy:.2%}")]
        )
        return rows + [
            (f"distance of {name}", f"{value:.3f}") for name, value in self.distances.items()
        ]


def shrink(loaded: LoadedModel, how: Shrinking) -> Shrunk:
    """A smaller model of a pretrained one.

    Raises:
        ConfigError: a size that cannot be.
        ModelError: the model is fine-tuned, or of a kind whose parts cannot be merged or
            factorised.
    """
    model, path = loaded.model, loaded.path
    if not isinstance(model, Pretrainer):
        raise ModelError(
            f"{path} is fine-tuned; shrink the pretrained model, and let it learn the task with "
            "litebert finetune --teacher"
        )
    theirs, depth = (
        model.encoder.config,
        model.encoder.config.layers if how.layers is None else how.layers,
    )
    if loaded.config.generator is not None:
        raise ModelError(
            f"{path} has a generator that borrows its embeddings, which cannot be shrunk "
            "with it; convert "
            "it to a model without one first"
        )
    if depth > theirs.layers:
        raise ConfigError(
            f"--layers {depth} is more than the {theirs.layers} of {path}; give at most so many"
        )
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    kept: dict[str, float] = {}
    if how.importance is not None and how.narrows:
        state, theirs, kept = narrow(
            state,
            loaded.config.without_its_run(),
            path,
            how.hidden_size,
            how.intermediate_size,
            how.importance,
        )
    shape = replace(
        theirs,
        layers=depth,
        sharing=how.share or theirs.sharing,
        groups=how.groups if how.share else theirs.groups,
    )
    energy = None
    if how.embedding_size not in (None, theirs.embedding_size):
        shape = _factorised_shape(loaded, shape, how.embedding_size or 0)
        energy = _factorise(state, shape.embedding_size)
    merged: dict[str, Tensor] = {}
    distances: dict[str, float] = {}
    if (shape.sharing, shape.groups, depth) != (theirs.sharing, theirs.groups, theirs.layers):
        for part, blocks in (
            ("attention", EncoderConfig.attention_of),
            ("feedforward", EncoderConfig.feedforward_of),
        ):
            for block, found in _sources(blocks, theirs, shape).items():
                own, distances[f"{part} {block + 1}"] = _merged(
                    state, f"encoder.{part}", found, how.merge
                )
                merged.update(
                    {f"encoder.{part}.{block}.{leaf}": tensor for leaf, tensor in own.items()}
                )
        state = {name: one for name, one in state.items() if not name.startswith(_BLOCKS)} | merged
    of_old = loaded.config.without_its_run()
    objectives, left_out = _fitting(of_old, shape, state)
    config = replace(of_old, encoder=shape, objectives=objectives)
    student = Pretrainer(config)
    wanted = student.state_dict()
    absent = tuple(f"objectives.{name}." for name in loaded.untrained)
    missing = [name for name in wanted if name not in state and not name.startswith(absent)]
    assert not missing, missing
    student.load_state_dict(
        {name: state.get(name, one).to(one.dtype) for name, one in wanted.items()}
    )
    counts = [sum(cost.model_parameters(one).values()) for one in (loaded.config, config)]
    untrained = tuple(name for name in loaded.untrained if name in objectives)
    small = replace(loaded, network=student.eval(), config=config, untrained=untrained, card="")
    return Shrunk(small, (counts[0], counts[1]), energy, distances, left_out, kept)


_BLOCKS = ("encoder.attention.", "encoder.feedforward.")


def _sources(
    blocks: Callable[[EncoderConfig], tuple[int, ...]], theirs: EncoderConfig, ours: EncoderConfig
) -> dict[int, list[int]]:
    """Of each block of the student the teacher's blocks, one for each layer of the teacher that it
    stands for.
    """
    found: dict[int, list[int]] = {}
    for layer, source in enumerate(blocks(theirs)):
        found.setdefault(blocks(ours)[layer * ours.layers // theirs.layers], []).append(source)
    return dict(sorted(found.items()))


def _merged(
    state: Mapping[str, Tensor], part: str, sources: Sequence[int], merge: Merge
) -> tuple[dict[str, Tensor], float]:
    """One block out of several, by the names in it, and how far they are from it."""
    chosen = {
        "average": sources,
        "first": sources[:1],
        "middle": sources[len(sources) // 2 :][:1],
        "last": sources[-1:],
    }[merge]
    every = [_block(state, f"{part}.{source}.") for source in sources]
    parts = [_block(state, f"{part}.{source}.") for source in chosen]
    own = {}
    for leaf in dict.fromkeys(
        name for one in every for name in one
    ):  # the first layer may lack a norm
        there = [part[leaf] for part in parts if leaf in part] or [
            one[leaf] for one in every if leaf in one
        ]
        own[leaf] = torch.stack(there).mean(0)
    apart = sum(float((one[leaf] - own[leaf]).square().sum()) for one in every for leaf in one)
    size = sum(float(tensor.square().sum()) for one in every for tensor in one.values())
    return own, (apart / size) ** 0.5


def _block(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }


# ------------------------------------------------------------------------------------ the embedding

_TABLES = tuple(f"encoder.embedding.{name}.weight" for name in ("word", "position", "token_type"))
_MAP = "encoder.embedding.project.weight"


def _factorised_shape(loaded: LoadedModel, shape: EncoderConfig, size: int) -> EncoderConfig:
    """The shape with tables of another width, where that can be done without moving a norm."""
    path, width = loaded.path, shape.hidden_size
    if not 1 <= size < (shape.embedding_size if shape.projects else width):
        most = (shape.embedding_size if shape.projects else width) - 1
        raise ConfigError(
            f"--embedding-size is {size}; factorising the embeddings of {path} takes 1 to {most}"
        )
    if shape.projects and shape.embedding_norm == "before":
        raise ModelError(
            f"{path} has a norm between its tables and its map E -> H, so the two are no "
            "single table to "
            "factorise; leave --embedding-size out"
        )
    if shape.untied:
        raise ModelError(f"{path} has two tables (encoder.untied); leave --embedding-size out")
    if shape.prediction == "embedding" and (shape.projects or not shape.bias):
        raise ModelError(
            f"{path} has a vocabulary head that cannot keep its form "
            "(encoder.prediction=embedding); "
            "leave --embedding-size out"
        )
    known = ("encoder.embedding.norm", *_TABLES, _MAP)
    other = [
        name
        for name in loaded.model.state_dict()
        if name.startswith("encoder.embedding.") and not name.startswith(known)
    ]
    if other:
        raise ModelError(
            f"{path} has {other[0]}, which is no table to factorise; leave --embedding-size out"
        )
    return replace(
        shape,
        embedding_size=size,
        embedding_norm="after",
        prediction="hidden",
        always_project=False,
    )


def _factorise(state: dict[str, Tensor], size: int) -> float:
    """Replace the tables by narrower ones and a map, all in float64; the share of the energy that
    is kept.

    The right singular vectors of the tables side by side are the eigenvectors of their Gram matrix,
    (H, H).
    """
    there = [name for name in _TABLES if name in state]
    rows = torch.cat([state[name] for name in there])
    if _MAP in state:
        rows = rows @ state[_MAP].T
    energy, vectors = torch.linalg.eigh(rows.T @ rows)
    energy, map_HE = energy.flip(0).clamp(min=0), vectors.flip(1)[:, :size]
    sizes = [len(state[name]) for name in there]
    state.update(zip(there, (rows @ map_HE).split(sizes), strict=True))
    state[_MAP] = map_HE
    return float(energy[:size].sum() / energy.sum())


def _fitting(
    config: Config, shape: EncoderConfig, state: Mapping[str, Tensor]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The objectives whose heads have the same form in the smaller model, and those that have
    not."""
    kept: list[str] = []
    for name in config.objectives:
        network = replace(config, encoder=shape).named_objectives()[name].build()
        own = {
            f"objectives.{name}.{key}": tensor.shape for key, tensor in network.state_dict().items()
        }
        if all(key not in state or state[key].shape == form for key, form in own.items()):
            kept.append(name)
    if not kept:
        raise ModelError(
            "no objective of the model keeps its head in the smaller one; leave "
            "--embedding-size and "
            "--hidden-size out"
        )
    return tuple(kept), tuple(name for name in config.objectives if name not in kept)
