"""Rows of one tokenizer read by another: which tokens stand for the same characters."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.tokenizer import Tokenizer
from litebert.tokenizer.alignment import Alignment
from litebert.tokenizer.training import train_tokenizer

WORDS = [a + b + c + d for a in "bdfg" for b in "aeéi" for c in "klmn" for d in "aou"]
KINDS: Any = ("unigram", "wordpiece", "bpe")


@cache
def tokenizer_of(kind: Any, size: int = 300) -> Tokenizer:
    texts = [" ".join(WORDS[start::7]) for start in range(7)] * 3
    return train_tokenizer(texts, kind=kind, vocab_size=size, shrink=True)


def align_by_hand(first: np.ndarray, second: np.ndarray) -> list[set[int]]:
    """Compare every span with every other, character by character."""
    return [
        {place for place, (c, d) in enumerate(second) if {*range(a, b)} & {*range(c, d)}}
        for a, b in first
    ]


@pytest.mark.parametrize("kinds", [(a, b) for a in KINDS for b in KINDS if a != b])
@given(st.lists(st.sampled_from([*WORDS, "bakabaka", "femo"]), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_tokens_that_overlap_in_characters_are_aligned(
    kinds: tuple[str, str], words: list[str]
) -> None:
    source, other = (tokenizer_of(kind) for kind in kinds)
    text = " ".join(words)
    (ids, spans), (other_ids, other_spans) = (
        tokenizer.encode_offsets([text])[0] for tokenizer in (source, other)
    )
    row = Alignment(source, other).align([source.cls_id, *ids.tolist(), source.sep_id], 512)
    assert row.ids.tolist() == [other.cls_id, *other_ids.tolist(), other.sep_id]
    weights = row.make_weights()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    assert weights[0].argmax() == 0
    assert weights[-1].argmax() == len(row.ids) - 1
    for token, expected in enumerate(align_by_hand(spans, other_spans), 1):
        if expected:  # a token that is a space or a part of a character may overlap none
            aligned = {int(place) - 1 for place in np.flatnonzero(weights[token])}
            # Tokens without a character of their own may stand between those that overlap.
            assert expected <= aligned <= {*range(min(expected), max(expected) + 1)}
            assert np.ptp(weights[token][weights[token] > 0]) < 1e-6


@pytest.mark.parametrize("kinds", [("unigram", "wordpiece"), ("bpe", "unigram")])
def test_a_masked_token_is_masked_for_the_other(kinds: tuple[str, str]) -> None:
    source, other = (tokenizer_of(kind) for kind in kinds)
    ids = source.encode(["baka demo fila"])[0]
    row = [source.cls_id, *ids, source.mask_id, source.sep_id, *ids[:2], source.sep_id]
    aligned = Alignment(source, other).align(row, 512)
    masks = np.flatnonzero(aligned.ids == other.mask_id)
    assert len(masks) == 1
    assert aligned.make_weights()[1 + len(ids)].argmax() == masks[0]
    assert (aligned.ids == other.sep_id).sum() == 2
    assert (np.diff(aligned.first) >= 0).all()
    assert (np.diff(aligned.sources) >= 0).all()
    cut = Alignment(source, other).align(row, 4)
    assert len(cut.ids) == 4
    assert cut.last.max() == 3


@given(st.lists(st.integers(0, 299), min_size=1, max_size=20), st.sampled_from(KINDS))
@settings(max_examples=60, deadline=None)
def test_any_tokens_can_be_aligned(tokens: list[int], kind: Any) -> None:
    """Whatever tokens follow each other, as random replacements of masked ones may."""
    source, other = tokenizer_of(kind), tokenizer_of("wordpiece" if kind != "wordpiece" else "bpe")
    row = Alignment(source, other).align([i % source.vocab_size for i in tokens], 512)
    np.testing.assert_allclose(row.make_weights().sum(1), 1, atol=1e-6)
    assert row.make_weights().shape == (len(tokens), len(row.ids))
    assert len(row.sources) == len(row.ids)
