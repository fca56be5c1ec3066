"""Batches of a task: every item once per epoch, pure, little padding; targets of every problem."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.base.registry import OUTPUTS
from litebert.finetuning.batches import TaskBatches, collate
from litebert.tasks.rows import group_by_length
from litebert.tasks.text_outputs import OneClass
from litebert.tasks.token_outputs import Tags
from litebert.tasks.values import EncodedRow, Item


def item(number: int, length: int, target: object = 0, rows: int = 1) -> Item:
    ids = np.full(length, number + 10, np.int32)
    return Item(
        number, tuple(EncodedRow(ids, np.zeros(length, np.int32)) for _ in range(rows)), target
    )


def items(count: int, seed: int = 0) -> list[Item]:
    lengths = np.random.default_rng(seed).integers(3, 60, count)
    return [item(i, int(length)) for i, length in enumerate(lengths)]


@settings(max_examples=40)
@given(st.integers(1, 90), st.integers(1, 9), st.integers(1, 3), st.integers(0, 5))
def test_every_item_comes_once_per_epoch(count: int, batch: int, epochs: int, seed: int) -> None:
    steps = -(-epochs * count // batch)
    batches = TaskBatches(items(count), OneClass(), 0, batch, steps, seed)
    seen = Counter(int(row[0]) - 10 for step in range(steps) for row in batches(step).input_ids)
    assert sum(seen.values()) == steps * batch
    spare = steps * batch - epochs * count  # the last batch may reach into one epoch more
    assert all(epochs <= times <= epochs - (-spare // count) for times in seen.values())
    assert set(seen) == set(range(count))


def test_a_batch_is_a_function_of_its_step() -> None:
    made = [TaskBatches(items(300), OneClass(), 0, 8, 130, seed=3) for _ in range(2)]
    forwards = [made[0](step).input_ids for step in range(130)]
    backwards = [made[1](step).input_ids for step in reversed(range(130))][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forwards, backwards, strict=True))
    other = TaskBatches(items(300), OneClass(), 0, 8, 130, seed=4)
    assert any(
        not torch.equal(a, other(step).input_ids) for step, a in enumerate(forwards) if step < 5
    )


def test_rows_of_a_batch_are_its_micro_batches() -> None:
    batches = TaskBatches(items(100), OneClass(), 0, 8, 20, seed=0)
    whole = batches(7)
    parts = [batches(7, slice(start, start + 3)) for start in (0, 3, 6)]
    firsts = torch.cat([part.input_ids[:, 0] for part in parts])
    assert torch.equal(firsts, whole.input_ids[:, 0])
    assert sum(part.tokens for part in parts) == whole.tokens


def test_sorting_saves_most_of_the_padding() -> None:
    many = items(2000)
    batches = TaskBatches(many, OneClass(), 0, 16, 125, seed=0)
    padded = sum(batches(step).input_ids.numel() for step in range(125))
    real = sum(row.length for row in many)
    assert real / padded > 0.85  # in order of the file it would be about 0.5
    lengths = [int(batches(step).input_ids.shape[1]) for step in range(50)]
    assert lengths != sorted(lengths)


def test_what_a_batch_holds() -> None:
    batch = collate([item(0, 3, 1), item(1, 9, 0)], OneClass(), pad_id=7)
    assert batch.input_ids.shape == (2, 16)
    assert batch.input_ids[0].tolist() == [10] * 3 + [7] * 13
    assert batch.attention_mask.sum(1).tolist() == [3, 9]
    assert batch.choices == (1, 1)
    assert batch.tokens == 12
    assert batch.to(torch.device("cpu")).targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("problem", "targets", "kind", "shape"),
    [
        ("classes", (1, 0), torch.int64, (2,)),
        ("number", (0.5, 2.0), torch.float32, (2,)),
        ("labels", ((0, 1, 1), (0, 0, 0)), torch.float32, (2, 3)),
        ("span", ((1, 2), (0, 0)), torch.int64, (2, 2)),
        ("choice", (1, 0), torch.int64, (2,)),
    ],
)
def test_targets_by_output(
    problem: str, targets: tuple[object, ...], kind: torch.dtype, shape: tuple[int]
) -> None:
    batch = collate([item(i, 5, target) for i, target in enumerate(targets)], OUTPUTS[problem](), 0)
    assert (batch.targets.dtype, tuple(batch.targets.shape)) == (kind, shape)


def test_token_targets_are_padded_with_what_is_ignored() -> None:
    batch = collate(
        [item(0, 3, np.array([-100, 2, -100])), item(1, 5, np.array([-100, 0, 1, 2, -100]))],
        Tags(),
        0,
    )
    assert batch.targets.tolist() == [
        [-100, 2, -100, *[-100] * 5],
        [-100, 0, 1, 2, -100, -100, -100, -100],
    ]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4)), max_size=60), st.integers(1, 300))
def test_batches_hold_every_item_once_within_the_bound(
    sizes: list[tuple[int, int]], most: int
) -> None:
    lengths, rows = [length for length, _ in sizes], [count for _, count in sizes]
    batches = list(group_by_length(lengths, most, rows))
    assert sorted(place for batch in batches for place in batch) == list(range(len(sizes)))
    for batch in batches:
        tokens = max(lengths[i] for i in batch) * sum(rows[i] for i in batch)
        assert tokens <= most or len(batch) == 1
    order = [lengths[i] for batch in batches for i in batch]
    assert order == sorted(order, reverse=True)
