"""Positions that begin after the padding index: the same is computed, whatever tokenizer comes with
the model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from litebert import load
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from toys.families import (
    NO_POOLER,
    assert_equal_outputs,
    build_litebert,
    inputs,
    our_outputs,
    reopen,
    their_outputs,
)
from toys.folders import save_hf

POSITIONS = "roberta.embeddings.position_embeddings.weight"


def counting(offset: int, segment_types: int = 1) -> Pretrainer:
    return build_litebert(
        ("mlm",),
        **NO_POOLER,
        embedding_size=32,
        max_positions=14,
        segment_types=segment_types,
        position_offset=offset,
    )


def tokenizer_with_pad(pad_id: int, folder: Path) -> Tokenizer:
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    pieces.insert(pad_id, "[PAD]")
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return Tokenizer.load(folder / "vocab.txt")


@pytest.mark.parametrize("pad_id", [0, 1, 4])
@pytest.mark.parametrize("offset", [1, 2, 4])
def test_rows_move_with_the_padding_index_of_the_tokenizer(
    offset: int, pad_id: int, tmp_path: Path
) -> None:
    model = counting(offset)
    notes = save_hf(model, tokenizer_with_pad(pad_id, tmp_path / "t"), tmp_path / "hf")
    assert bool(notes) == (pad_id + 1 != offset)
    assert not notes or f"moved by {pad_id + 1 - offset:+d} rows" in notes[0]
    opened = reopen(tmp_path / "hf")
    assert opened.config.pad_token_id == pad_id
    loaded = load(tmp_path / "hf")
    assert loaded.config.encoder.position_offset == pad_id + 1
    assert loaded.config.encoder.max_positions == 14
    for left in (False, True):
        batch = inputs(pad_id, types=1, left=left)
        expected = our_outputs(model, batch)
        assert_equal_outputs(expected, their_outputs(opened, batch))
        assert_equal_outputs(expected, our_outputs(loaded.model, batch))
    # Every position is there, the last one too.
    full = torch.arange(5, 19)[None]
    with torch.no_grad():
        last = opened.roberta(full).last_hidden_state
        assert (last - model.encoder(full).last).abs().max() <= 1e-5


def test_all_rows_are_kept(tmp_path: Path) -> None:
    """Those that no token reads too: reading and writing again changes no bit."""
    model = counting(2)
    assert save_hf(model, None, tmp_path / "one") == ()
    assert save_hf(load(tmp_path / "one").model, None, tmp_path / "two") == ()
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert first[POSITIONS].shape == (16, 32)
    embedding: Any = model.encoder.embedding
    assert torch.equal(first[POSITIONS], embedding.position.weight)


@pytest.mark.parametrize("types", [0, 1, 2])
def test_its_tokenizer_hands_over_token_types_only_where_there_are_two(
    types: int, tmp_path: Path
) -> None:
    save_hf(
        counting(1, segment_types=types), tokenizer_with_pad(0, tmp_path / "t"), tmp_path / "hf"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    encoded = tokenizer("a b", "c", return_tensors="pt")
    assert encoded.get("token_type_ids", torch.zeros(1)).max() == (1 if types == 2 else 0)
    with torch.no_grad():
        assert reopen(tmp_path / "hf")(**encoded).logits.isfinite().all()
