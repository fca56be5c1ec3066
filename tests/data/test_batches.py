from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import PAIR_FORMATS, Format, MaskingConfig, SequenceConfig
from litebert.data.batches import Batch, Batches
from toys.points import same_batch
from toys.shards import CLS, PAD, SEP, SPECIAL, ToySplit, prose, toy_tokenizer

FIELDS = tuple(field.name for field in fields(Batch) if field.name != "added")


def batches(
    split: ToySplit,
    *,
    length: int = 32,
    task: Any = "sop",
    batch: int = 8,
    seed: int = 0,
    **more: Any,
) -> Batches:
    short, format_ = more.pop("short", 0.1), more.pop("format", "segment-pair")
    vocabulary, separators = int(split.ids.max()) + 1, more.pop("separators", 1)
    tokenizer = toy_tokenizer(vocabulary, pair_separators=separators)
    sequences = SequenceConfig(length=length, short_probability=short, format=format_)
    masking = MaskingConfig(**more)
    return Batches(split, tokenizer, sequences, masking, task, batch, seed, boundaries=True)


def originals(batch: Batch) -> torch.Tensor:
    ids = batch.input_ids.flatten().clone()
    ids[batch.masked_positions] = batch.masked_labels
    return ids.view_as(batch.input_ids)


pairs_and_tasks = st.tuples(st.sampled_from(PAIR_FORMATS), st.sampled_from([None, "sop", "nsp"]))
others = st.tuples(st.sampled_from(sorted({*get_args(Format)} - {*PAIR_FORMATS})), st.none())


@given(
    st.lists(st.lists(st.integers(1, 30), max_size=8), max_size=5),
    st.integers(8, 40),
    pairs_and_tasks | others,
    st.integers(1, 2),
    st.integers(0, 10**12),
    st.integers(1, 9),
    st.integers(-5, 2**40),
)
def test_any_batch(
    documents: list[list[int]],
    length: int,
    kind: tuple[Any, Any],
    separators: int,
    step: int,
    size: int,
    seed: int,
) -> None:
    format_, task = kind
    split = ToySplit([*documents, [3, 9], [4, 2], [40]])

    def make() -> Batches:
        more = {"format": format_, "separators": separators}
        return batches(split, length=length, task=task, batch=size, seed=seed, **more)

    batch = make()(step)
    assert same_batch(batch, make()(step))
    for name in FIELDS:
        value = getattr(batch, name)
        assert value is None or value.dtype == (
            torch.bool if name == "attention_mask" else torch.int64
        )
    rows, width = batch.input_ids.shape
    assert rows == size
    assert width % 8 == 0 or width == length
    real = batch.attention_mask
    real = torch.ones_like(batch.input_ids, dtype=torch.bool) if real is None else real
    lengths = real.sum(1)
    assert batch.attention_mask is None or int(lengths.min()) < width
    assert batch.tokens == int(lengths.sum())
    assert width - int(lengths.max()) < 8
    for ids, types, mask, label in zip(
        originals(batch), batch.token_type_ids, real, batch.sentence_labels, strict=True
    ):
        n = int(mask.sum())
        assert mask[:n].all()
        assert (ids[n:] == PAD).all()
        tokens = ids[:n].tolist()
        seps = [place for place, token in enumerate(tokens) if token == SEP]
        assert tokens[0] == CLS
        assert tokens.count(CLS) == 1
        assert seps[-1] == n - 1
        if format_ in PAIR_FORMATS:
            assert len(seps) in (1, 1 + separators)
            second = seps[-2] + 1 if len(seps) > 1 else n
            assert second == n or second == seps[0] + separators
        else:
            assert len(seps) == 1 or format_ == "full-sentences"
            second = n
        assert types.tolist() == [int(second <= place < n) for place in range(width)]
        assert label in ((-100, 0, 1) if second < n and task else (-100,))
        for start, end in zip([0, *seps], seps, strict=False):
            assert (np.diff(tokens[start + 1 : end]) == 1).all()
    assert not torch.isin(batch.masked_labels, torch.tensor(SPECIAL)).any()
    assert (batch.masked_positions.diff() > 0).all()
    assert set((batch.masked_positions // width).tolist()) == set(range(rows))


@pytest.mark.parametrize(
    ("kind", "wanted", "types"),
    [
        ({"format": "segment-pair"}, "CaaSbbbbbS", "0000111111"),
        ({"format": "segment-pair", "separators": 2}, "CaaSSbbbbbS", "00000111111"),
        ({"format": "sentence-pair"}, "CaaSbbbbbS", "0000111111"),
        ({"format": "sentence-pair", "separators": 2}, "CaaSSbbbbbS", "00000111111"),
        ({"format": "doc-sentences"}, "CaabbbbbS", "000000000"),
        ({"format": "full-sentences"}, "CaabbbbbScccS", "0000000000000"),
        ({"format": "full-sentences", "separators": 2}, "CaabbbbbScccS", "0000000000000"),
    ],
)
def test_the_layout_of_each_format(kind: dict[str, Any], wanted: str, types: str) -> None:
    split = ToySplit([[2, 5], [3]])
    batch = batches(split, task=None, batch=1, short=0.0, **kind)
    rows = [batch(step) for step in range(batch.examples)]
    letters = dict(zip([CLS, SEP, PAD], "CSP", strict=True)) | {
        5 + i: c for i, c in enumerate("aabbbbbccc")
    }
    texts = ["".join(letters[token] for token in originals(row).flatten().tolist()) for row in rows]
    index = next(place for place, text in enumerate(texts) if "a" in text)
    assert texts[index] == wanted.ljust(16, "P")
    assert "".join(map(str, rows[index].token_type_ids.flatten().tolist())) == types.ljust(16, "0")


@given(
    st.integers(0, 1000), st.integers(0, 12), st.integers(1, 12), st.sampled_from(["sop", "nsp"])
)
def test_rows_are_those_of_the_whole_batch(step: int, start: int, count: int, task: Any) -> None:
    make = batches(ToySplit(prose(9, seed=4)), task=task, batch=24)
    whole, part = make(step), make(step, slice(start, start + count))
    width = part.input_ids.shape[1]
    rows = slice(start, start + count)
    for name in ("input_ids", "token_type_ids"):
        assert torch.equal(getattr(whole, name)[rows, :width], getattr(part, name))
        assert (getattr(whole, name)[rows, width:] == 0).all()
    assert torch.equal(whole.sentence_labels[rows], part.sentence_labels)
    across = whole.input_ids.shape[1]
    row, column = whole.masked_positions // across - start, whole.masked_positions % across
    inside = (row >= 0) & (row < count)
    row, column = row[inside], column[inside]
    assert torch.equal(row * width + column, part.masked_positions)
    assert torch.equal(whole.masked_labels[inside], part.masked_labels)
    assert whole.masked_boundaries is not None
    assert part.masked_boundaries is not None
    beside = whole.masked_boundaries[inside]
    moved = torch.where(beside < 0, -1, (beside // across - start) * width + beside % across)
    assert torch.equal(moved, part.masked_boundaries)


def by_document(make: Batches, epoch: int, count: int) -> dict[int, tuple[list[int], list[int]]]:
    """Read an epoch over `count` one-chunk documents with a batch of that size: tokens and masks by
    first token.
    """
    batch = make(epoch)
    documents = {}
    width = batch.input_ids.shape[1]
    for row, ids in enumerate(originals(batch).tolist()):
        text = [token for token in ids if token not in SPECIAL]
        documents[min(text)] = (
            ids,
            [p % width for p in batch.masked_positions.tolist() if p // width == row],
        )
    assert len(documents) == count
    return documents


def test_every_example_comes_once_per_epoch_in_a_new_order() -> None:
    count = 37
    make = batches(ToySplit([[4, 5, 6]] * count), batch=10, short=0.0)
    assert make.examples == count
    # Ten epochs; batches run across their ends.
    rows = torch.cat([originals(make(step)) for step in range(37)])
    firsts = [min(token for token in row if token not in SPECIAL) for row in rows.tolist()]
    epochs = [firsts[start : start + count] for start in range(0, 370, count)]
    assert all(sorted(epoch) == sorted(range(5, 5 + 15 * count, 15)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 10


@pytest.mark.parametrize("copies", [1, 3, 10])
@pytest.mark.parametrize("span", ["single", "ngram", "geometric"])
def test_static_copies_repeat_and_fresh_masks_do_not(copies: int, span: str) -> None:
    split = ToySplit([[8, 7, 9]] * 30)
    epochs = range(copies + 3)
    static = [
        by_document(batches(split, batch=30, short=0.0, span=span, copies=copies), epoch, 30)
        for epoch in epochs
    ]
    for document in static[0]:
        versions = [str(epoch[document]) for epoch in static]
        assert versions[copies:] == (versions[:copies] * 3)[:3]
        assert len(set(versions)) > copies // 2
    assert len({str(sorted(epoch.items())) for epoch in static}) == copies
    fresh = [
        by_document(batches(split, batch=30, short=0.0, span=span), epoch, 30) for epoch in epochs
    ]
    assert len({str(sorted(epoch.items())) for epoch in fresh}) == len(epochs)
    for document in fresh[0]:
        assert len({str(epoch[document]) for epoch in fresh}) > 1


def test_the_seed_and_the_step_count() -> None:
    split = ToySplit(prose(9, seed=4))
    first = batches(split)(3)
    assert not same_batch(first, batches(split)(4))
    assert not same_batch(first, batches(split, seed=1)(3))


def test_no_attention_mask_where_nothing_is_padded() -> None:
    full = batches(ToySplit([[5] * 100]), short=0.0)(0)
    assert full.attention_mask is None
    assert full.input_ids.shape == (8, 32)
    odd = batches(ToySplit([[5] * 100]), short=0.0, length=29)(0)
    assert odd.attention_mask is None
    assert odd.input_ids.shape == (8, 29)
    short = batches(ToySplit([[5, 5]]), short=0.0)(0)
    assert short.input_ids.shape == (8, 16)
    assert short.attention_mask is not None
    assert short.attention_mask.sum(1).tolist() == [13] * 8


@pytest.mark.parametrize("documents", [[[6, 7], [9, 9]], prose(6, seed=5)])
@pytest.mark.parametrize("task", ["sop", "nsp"])
def test_held_out_batches_are_fixed_whatever_the_epoch(
    documents: list[list[int]], task: Any
) -> None:
    split = ToySplit(documents)
    make = batches(split, task=task, short=0.0, unit="token", span="single", copies=1, batch=1)
    rows = [
        {str(make(epoch * make.examples + i).input_ids.tolist()) for i in range(make.examples)}
        for epoch in (0, 1)
    ]
    assert rows[0] == rows[1]


def test_a_batch_moves_whole() -> None:
    for short in (0.0, 1.0):
        batch = batches(ToySplit([[5] * 100]), short=short)(0)
        moved = replace(batch, added={"mine": batch.input_ids}).to("meta")
        assert moved.added["mine"].device.type == "meta"
        for name in FIELDS:
            value = getattr(moved, name)
            assert (value is None) == (getattr(batch, name) is None)
            assert value is None or value.device.type == "meta"
