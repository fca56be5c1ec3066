"""Batches of a task: the batch of step N is a pure function of (items, config, seed, N), with
little padding.

Fifty batches at a time, of a keyed permutation, are sorted by length and cut into batches, whose
order is then drawn. So the model sees short and long texts in turn; the price is that the rows of a
batch are not drawn independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.data.random_keys import Keys, derive, draw_uniforms, permute
from litebert.tasks.outputs import Output
from litebert.tasks.rows import PaddedRows
from litebert.tasks.values import EncodedRow, Item, TaskBatch

_ORDER, _POOL, _DELETED = 41, 42, 43  # what a key is for
_POOL_BATCHES = 50


def collate(
    items: Sequence[Item], output: Output, pad_id: int, positions: int | None = None
) -> TaskBatch:
    """Lay items side by side with the targets and the logits of a teacher that are known."""
    padded = PaddedRows([row for item in items for row in item.rows], pad_id, positions)
    size = padded.ids.shape[1]
    has_target = [item.target is not None for item in items]
    targets = output.collate([item.target for item in items if item.target is not None], size)
    ids, types, mask, labels = map(torch.from_numpy, (*padded, targets))
    teacher_logits = [item.teacher_logits for item in items if item.teacher_logits is not None]
    return TaskBatch(
        ids,
        types,
        mask,
        tuple(len(item.rows) for item in items),
        labels,
        output.count(targets),
        None if all(has_target) else torch.tensor(has_target),
        collate_weights([item for item in items if item.target is not None]),
        torch.from_numpy(output.collate_teacher(teacher_logits, size)) if teacher_logits else None,
    )


def collate_weights(items: Sequence[Item]) -> Tensor | None:
    """Lay out the weights of items, (B,); None where all are 1."""
    weights = [item.weight for item in items]
    return None if all(weight == 1 for weight in weights) else torch.tensor(weights)


def delete_tokens(items: Sequence[Item], keys: Keys, deletion: float) -> list[Item]:
    """Return items without a share of the tokens of their rows, drawn by a key for each. The first,
    the last and one between them stay.
    """
    shortened = []
    for item, key in zip(items, keys, strict=True):
        rows = []
        for segment, (ids, types) in enumerate(item.rows):
            draws = draw_uniforms(key[None], len(ids), segment)[0]
            stays = draws >= min(deletion, draws[1:-1].max(initial=0))
            stays[[0, -1]] = True
            rows.append(EncodedRow(ids[stays], types[stays]))
        shortened.append(replace(item, rows=tuple(rows)))
    return shortened


class TaskBatches:
    """The training batches of a task, by step; every item comes once per epoch."""

    def __init__(
        self,
        items: Sequence[Item],
        output: Output,
        pad_id: int,
        batch: int,
        steps: int,
        seed: int,
        *,
        positions: int | None = None,
        deletion: float = 0.0,
    ) -> None:
        """Order the items of a run, which stay in `items`.

        No row is padded beyond `positions`; `deletion` is that of `FinetuneConfig`.
        """
        self.items, self._output, self._pad_id, self._positions = items, output, pad_id, positions
        self._batch, self._steps, self._seed, self._deletion = batch, steps, seed, deletion
        self._lengths = np.array([item.length for item in items])
        self._pool: tuple[int, NDArray[np.int64]] = (-1, np.zeros((0, 0), np.int64))

    def __call__(self, step: int, rows: slice = slice(None)) -> TaskBatch:
        """Return some rows, all by default, of the batch of a step."""
        chosen = self._arrange_pool(step // _POOL_BATCHES)[step % _POOL_BATCHES][rows]
        items = [self.items[i] for i in chosen.tolist()]
        if self._deletion:
            items = delete_tokens(items, derive(self._seed, _DELETED, step, chosen), self._deletion)
        return collate(items, self._output, self._pad_id, self._positions)

    def _arrange_pool(self, pool: int) -> NDArray[np.int64]:
        """Return the items of fifty steps, fewer at the end of the run: (steps, batch)."""
        cached, batches = self._pool
        if cached != pool:
            first = pool * _POOL_BATCHES
            count = min(_POOL_BATCHES, self._steps - first)
            position = np.arange(first * self._batch, (first + count) * self._batch, dtype=np.int64)
            epoch, position = np.divmod(position, len(self.items))
            chosen = permute(position, len(self.items), derive(self._seed, _ORDER, epoch))
            batches = chosen[self._lengths[chosen].argsort(kind="stable")].reshape(
                count, self._batch
            )
            key = np.repeat(derive(self._seed, _POOL, pool), count)
            batches = batches[permute(np.arange(count, dtype=np.int64), count, key)]
            self._pool = (pool, batches)
        return batches
