"""How alike two texts are: each is read on its own, pooled to a vector, and the answer is the
cosine of the two.

The losses, by what is known of the training pairs:

    texts       nothing: a text is its own pair, read twice with other tokens left out (CLEAR, Wu et
                al. 2020) or, without deletion, with another dropout mask (SimCSE, Gao et al. 2021)
    positives   the two belong together: the contrastive loss of the same paper, against the other
                pairs of the batch
    scores      how alike the two are: CoSENT (Su 2022), for which only the order of the scores
                counts

With a teacher, a text learns the teacher's vector through a map to its width, and the likeness of
the texts of a batch. Texts without pairs are then read once and have no other loss.

Shapes: B pairs, R texts, S tokens, H hidden size, D numbers of a teacher's vector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError
from litebert.config import Pooling
from litebert.interop.loaded import VectorMap
from litebert.tasks.outputs import Output
from litebert.tasks.values import Compared, Item, Logits, TaskBatch
from litebert.text.records import format_value

if TYPE_CHECKING:  # who answers without PyTorch has no loss
    from torch import Tensor, nn

    from litebert.model.objectives import Loss

log = logging.getLogger("litebert")

Supervision = Literal["texts", "positives", "scores"]
"""The supervision of the training pairs."""
TEMPERATURE = 0.05
"""Divisor of cosines in the losses."""
CLOSING = 8192
"""Texts from whose vectors the map at the end of training is computed, at most."""
LIKENESS = 1.0
"""Weight of the cosines of the texts of a batch beside each text's distance from its teacher."""
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""The strengths among which `fit_map` chooses, as shares of the mean variance of the states."""
HELD_OUT = 5
"""One text of so many is held out to choose the strength."""
DROPOUT = 0.1
"""Dropout of a network that has none, if dropout alone tells a text from itself."""


def sort_sizes(matryoshka: Sequence[int] | None) -> tuple[int, ...]:
    if matryoshka is None:
        return ()
    is_list = isinstance(matryoshka, (list, tuple))
    if not matryoshka or not is_list or not all(type(size) is int for size in matryoshka):
        raise ConfigError(
            f"matryoshka is {format_value(matryoshka)}; give the sizes that vectors may be cut "
            "to, such as 64 128, or leave it out"
        )
    return tuple(sorted(set(matryoshka)))


def scale_to_unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors (..., H) to unit length; a zero vector stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return scaled


def pool_states(
    states: NDArray[np.float32], mask: NDArray[np.bool_], pooling: Pooling
) -> NDArray[np.float32]:
    """Pool the last states (R, S, H), without padding at the end or with it, to vectors (R, H)."""
    if pooling == "cls":
        return states[:, 0]
    real = mask[:, : states.shape[1]].astype(np.float32)
    means: NDArray[np.float32] = np.einsum("rs,rsh->rh", real / real.sum(1, keepdims=True), states)
    return scale_to_unit(means) if pooling == "unit" else means


def compare_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of the vectors u and v of each pair after each other, (2P, H): u, v, |u - v| and u * v,
    (P, 4H)."""
    u, v = vectors[::2], vectors[1::2]
    return np.concatenate((u, v, np.abs(u - v), u * v), axis=1)


@dataclass(frozen=True)
class Similarity(Output):
    """The cosine of the vectors of two texts. A target is a key of each text, int64 (2,), which
    tells equal texts; with `supervision="scores"` a number.
    """

    pooling: Pooling = "mean"
    """Pooling of the last hidden states: their mean, special tokens included, or that of [CLS]."""
    supervision: Supervision = "positives"
    temperature: float = TEMPERATURE
    sizes: tuple[int, ...] = ()
    """Sizes that vectors may be cut to: the loss is also that of their first numbers, so many
    (Kusupati et al. 2022, "Matryoshka Representation Learning").
    """
    whiten: bool = False
    """Whiten the vectors when training has ended."""
    taught: bool = False
    """True if a teacher's vectors are learned."""
    map: VectorMap | None = field(default=None, compare=False, repr=False)
    """The map after the pooling of a finished model."""

    name, head, reads_cls = "similarity", "backbone", False
    classes, task = 0, "pairs"
    scores = ("spearman", "pearson")

    def collate(self, targets: Sequence[Any], size: int) -> NDArray[Any]:
        """Lay out the targets, (B, 2), or (B,) of scores."""
        return np.array(targets, np.float32 if self.supervision == "scores" else np.int64)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """Pool the last states of both texts, (2B, S, H), to vectors of unit length, (B, 2, H)."""
        from torch.nn import functional as F

        vectors = self._pool(logits, batch)
        return F.normalize(vectors, dim=-1).view(len(vectors) // 2, 2, vectors.shape[-1])

    def _pool(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        from litebert.model.heads import pool

        return pool(logits.float(), batch.attention_mask, self.pooling)

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """B times the loss of a batch, or the mean of that of all `sizes`; right are the texts that
        are nearest to their own second.
        """
        from torch.nn import functional as F

        compute = (
            _compute_cosent_loss if self.supervision == "scores" else _compute_contrastive_loss
        )
        total, right = compute(logits, targets, self.temperature, weights)
        for size in self.sizes:
            cut = F.normalize(logits[..., :size], dim=-1)
            total = total + compute(cut, targets, self.temperature, weights)[0]
        return total / (1 + len(self.sizes)), right

    def closing(
        self, items: Sequence[Item], logits: Callable[[Sequence[Item]], Logits], seed: int
    ) -> dict[str, Similarity]:
        """Return the output with each map that training may end with, from up to `CLOSING` texts: a
        student's as it was learned, the same fitted anew, or a map that whitens.
        """
        endings = {"learned with the network": self} if self.taught else {}
        if not (self.whiten or self.taught):
            return {"": self}
        texts = {
            row.ids.tobytes(): (
                row,
                None if item.teacher_logits is None else item.teacher_logits[i],
            )
            for item in items
            for i, row in enumerate(item.rows)
        }
        pairs = list(texts.values())
        if len(pairs) > CLOSING:
            chosen = np.random.default_rng(seed).choice(len(pairs), CLOSING, replace=False)
            pairs = [pairs[i] for i in chosen]
        states = np.concatenate(logits([Item(i, (row,), None) for i, (row, _) in enumerate(pairs)]))
        enough = len(pairs) >= 2 * states.shape[1]
        if self.taught and enough:
            taught = np.stack([vector for _, vector in pairs if vector is not None])
            endings["fitted when training had ended"] = replace(self, map=fit_map(states, taught))
        if self.whiten and enough:
            endings["that whitens"] = replace(self, map=fit_whitening(states))
        if self.whiten and not self.taught:
            if enough:
                log.info(
                    f"the vectors are whitened by a map fitted on {len(pairs):,} training texts"
                )
            else:
                log.info(
                    f"the vectors are not whitened: this needs {2 * states.shape[1]:,} different "
                    f"texts, twice their size, and there are only {len(pairs):,}"
                )
        return endings or {"": self}

    def collate_teacher(
        self, logits: Sequence[NDArray[np.floating[Any]]], size: int
    ) -> NDArray[np.float32]:
        """Lay out the teacher's vectors of each item, (1, D) or (2, D): (R, D)."""
        return np.concatenate(logits).astype(np.float32)

    def distill_loss(
        self, logits: Tensor, batch: TaskBatch, temperature: float, map_: nn.Module | None = None
    ) -> Loss:
        """Compute the distance of mapped vectors from the teacher's, of last states (R, S, H): 1
        minus their cosine, and `LIKENESS` times the mean square error of the cosines of the batch's
        texts.
        """
        import torch
        from torch.nn import functional as F

        from litebert.model.objectives import Loss

        assert map_ is not None
        assert batch.teacher_logits is not None
        vectors = F.normalize(map_(self._pool(logits, batch)), dim=-1)
        taught = F.normalize(batch.teacher_logits, dim=-1)
        cosines = (vectors * taught).sum(-1)
        likeness = (vectors @ vectors.T - taught @ taught.T).square().mean()
        distance = (1 - cosines).mean() + LIKENESS * likeness
        count = torch.full((), batch.lessons, device=logits.device)
        return Loss(distance * batch.lessons, count, None)

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """Pool the last states of both rows, (2, S, H), to the vectors of both texts, (2, H)."""
        if self.pooling == "cls":
            return logits[:, 0]
        return np.stack(
            [
                row_logits[: len(row.ids)].mean(0)
                for row_logits, row in zip(logits, item.rows, strict=True)
            ]
        )

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Any]:
        pairs = [
            scale_to_unit(row_logits if self.map is None else self.map.of(row_logits))
            for row_logits in logits
        ]
        return [Compared(float(np.dot(*pair)), pair) for pair in pairs]

    def record(self, answer: Any) -> dict[str, Any]:
        return {"prediction": answer.value}

    def read_record(self, record: Mapping[str, Any]) -> Compared:
        return Compared(float(record["prediction"]), None)

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Return True if all texts have nearly one vector: only then is the mean of unit vectors as
        long.
        """
        vectors = np.concatenate([answer.vectors for answer in self.answers(logits)])
        mean = vectors.mean(0, dtype=np.float64)
        return len(logits) > 1 and 1 - float(mean @ mean) < 1e-5


def learns_map(output: Output) -> bool:
    """A map to the width of a teacher's vectors is learned beside the network."""
    return isinstance(output, Similarity) and output.taught


def _compute_contrastive_loss(
    vectors: Tensor, keys: Tensor, temperature: float, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropy of finding each second among those of the batch (B, 2, H); keys (B,
    2) tell equal texts, which are left out.
    """
    import torch
    from torch.nn import functional as F

    firsts, seconds = vectors.unbind(1)
    first, second = keys.unbind(1)
    likeness = firsts @ seconds.T / temperature
    same = (second == second[:, None]) | (second == first[:, None]) | (first == first[:, None])
    diagonal = torch.arange(len(keys), device=keys.device)
    same[diagonal, diagonal] = False
    likeness = likeness.masked_fill(same, -torch.inf)
    right = (likeness.argmax(1) == diagonal).sum()
    if weights is None:
        return F.cross_entropy(likeness, diagonal, reduction="sum"), right
    return (F.cross_entropy(likeness, diagonal, reduction="none") * weights).sum(), right


def _compute_cosent_loss(
    vectors: Tensor, scores: Tensor, temperature: float, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute log(1 + sum of exp((cos_i - cos_j) / temperature) over all i, j of which j has the
    higher score), times B; none is right. A pair weighs the product of its rows' weights.
    """
    import torch

    cosines = vectors.prod(1).sum(-1) / temperature
    wrong = (cosines[:, None] - cosines).masked_fill(scores[:, None] >= scores, -torch.inf)
    if weights is not None:
        wrong = wrong + weights.log()[:, None] + weights.log()
    total = torch.cat((wrong.new_zeros(1), wrong.flatten())).logsumexp(0)
    return len(scores) * total, torch.zeros((), dtype=torch.int64, device=scores.device)


def fit_whitening(vectors: NDArray[np.float32]) -> VectorMap:
    """Fit the map after which vectors like these (N, H) have mean 0 and vary alike in all
    directions (Su et al. 2021, "Whitening Sentence Representations").

    A hundredth of the mean variance is added, so that directions that hardly vary are not blown up.
    """
    exact = vectors.astype(np.float64)
    mean = exact.mean(0)
    centered = exact - mean
    variances, directions = np.linalg.eigh(centered.T @ centered / len(exact))
    variances = np.maximum(variances, 0)
    # The second where all are nearly alike.
    floor = max(0.01 * variances.mean(), 1e-8 * np.square(mean).mean(), 1e-30)
    # Turned back, so that it does not depend on the signs and the order of the directions.
    weight = directions / np.sqrt(variances + floor) @ directions.T
    return VectorMap(weight.astype(np.float32), (-weight @ mean).astype(np.float32))


def fit_map(states: NDArray[np.float32], taught: NDArray[np.floating]) -> VectorMap:
    """Fit the map from pooled states (N, H) to the teacher's vectors (N, D) by ridge regression,
    with that of `STRENGTHS` that has the highest mean cosine on a held-out fifth of the texts.
    """
    exact, goals = states.astype(np.float64), taught.astype(np.float64)
    held_out = np.arange(len(exact)) % HELD_OUT == 0
    if held_out.all() or not held_out.any():
        return _fit(exact, goals, STRENGTHS[-1])
    cosines, wanted = [], goals[held_out]
    for strength in STRENGTHS:
        vectors = _fit(exact[~held_out], goals[~held_out], strength).of(states[held_out])
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(wanted, axis=1)
        cosines.append(float(((vectors * wanted).sum(1) / np.maximum(lengths, 1e-30)).mean()))
    return _fit(exact, goals, STRENGTHS[int(np.argmax(cosines))])


def _fit(states: NDArray[np.float64], goals: NDArray[np.float64], strength: float) -> VectorMap:
    mean, goal_mean = states.mean(0), goals.mean(0)
    centered = states - mean
    covariance = centered.T @ centered / len(states)
    penalty = strength * max(float(np.trace(covariance)) / len(covariance), 1e-30)
    weight = np.linalg.solve(
        covariance + penalty * np.eye(len(covariance)),
        centered.T @ (goals - goal_mean) / len(states),
    ).T
    bias = goal_mean - weight @ mean
    return VectorMap(weight.astype(np.float32), bias.astype(np.float32))
